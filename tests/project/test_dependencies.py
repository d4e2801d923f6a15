"""What the packages declare: ranges, reasons, everything that is imported, and the pins."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "ahwire": ROOT / "packages" / "ahwire",
    "ahrules": ROOT / "packages" / "ahrules",
    "ahwal": ROOT / "packages" / "ahwal",
    "ahcollector": ROOT / "packages" / "ahcollector",
    "ahnotify": ROOT / "packages" / "ahnotify",
    "ah-reference-server": ROOT / "reference-server",
}
OURS = set(FOLDERS)


def _packages():
    return pytest.mark.parametrize(("name", "folder"), FOLDERS.items(), ids=FOLDERS)


def _project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _declared(folder):
    table = _project(folder)
    groups = [table["dependencies"], *table.get("optional-dependencies", {}).values()]
    return [Requirement(line) for group in groups for line in group]


@_packages()
def test_ours_are_declared_as_a_range(name, folder):
    wrong = [
        str(requirement)
        for requirement in _declared(folder)
        if requirement.name in OURS and str(requirement.specifier) != "<0.2,>=0.1"
    ]
    assert not wrong, "write >=0.1,<0.2"


@_packages()
def test_nothing_is_pinned(name, folder):
    pinned = [
        str(requirement)
        for requirement in _declared(folder)
        if any(part.operator in {"==", "==="} for part in requirement.specifier)
        or not requirement.specifier
    ]
    assert not pinned, "declare a range that begins at the oldest version that works"


@_packages()
def test_a_version_fits_the_range_the_others_declare(name, folder):
    assert _project(folder)["version"] in Requirement("x>=0.1,<0.2").specifier


@_packages()
def test_every_dependency_has_its_reason(name, folder):
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    project = text.split("[project]")[1].split("[project.scripts]")[0].split("[tool.")[0]
    lines = [line.strip() for line in project.splitlines()]
    listed = [line for line in lines if re.match(r'^"[A-Za-z0-9_.\-\[\],]+ *[><=!~]', line)]
    assert len(listed) == len(_declared(folder)), "one dependency a line, so that each is explained"
    unexplained = [line for line in listed if not re.search(r'",\s+# \w+', line)]
    assert not unexplained


def _imported(source):
    """Yield (top-level module, place) of every import."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                yield name, f"{path.relative_to(ROOT)}:{node.lineno}"


def _promised(folder):
    """Names that a package declares, and those that the ones of ours among them declare."""
    found = set()
    for requirement in _declared(folder):
        found.add(canonicalize_name(requirement.name))
        if requirement.name in OURS:
            found |= _promised(FOLDERS[requirement.name])
    return found


@_packages()
def test_whatever_is_imported_is_declared(name, folder):
    """A dependency of a dependency can go away with its next release; ours are promised."""
    declared = _promised(folder)
    owners = packages_distributions()
    undeclared = set()
    for module, place in _imported(folder / "src"):
        top = module.split(".")[0]
        if top in sys.stdlib_module_names or (folder / "src" / top).is_dir():
            continue
        if top == "google":  # a namespace of several distributions
            candidates = {"protobuf", "googleapis-common-protos"}
        else:
            candidates = {canonicalize_name(owner) for owner in owners.get(top, [top])}
        # Whoever runs a contract suite of ours has the runner.
        suite = top == "pytest" and "/testing/" in place
        if not candidates & declared and not suite:
            undeclared.add(f"{place}: {module} of {' or '.join(sorted(candidates))}")
    assert not undeclared


def _pins():
    return (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()


def test_the_pins_name_no_host_and_none_of_ours():
    lines = _pins()
    assert lines, "nox -s lock writes it"
    assert not [line for line in lines if "://" in line or " @ " in line or line.startswith("-")]
    names = {re.split(r"[=\[ ;]", line)[0] for line in lines}
    assert not names & (OURS | {"testkit"})


def test_every_dependency_is_pinned():
    pinned = {canonicalize_name(re.split(r"[=\[ ;]", line)[0]) for line in _pins()}
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "dependency-groups"
    ]
    wanted = [Requirement(line) for group in groups.values() for line in group]
    wanted += [requirement for folder in FOLDERS.values() for requirement in _declared(folder)]
    missing = {
        requirement.name
        for requirement in wanted
        if canonicalize_name(requirement.name) not in pinned and requirement.name not in OURS
    }
    assert not missing, "nox -s lock pins them"
