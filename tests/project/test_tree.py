"""The tree: where things are, what a public folder says, what every package has."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "ahwire": ROOT / "packages" / "ahwire",
    "ahrules": ROOT / "packages" / "ahrules",
    "ahwal": ROOT / "packages" / "ahwal",
    "ahcollector": ROOT / "packages" / "ahcollector",
    "ahnotify": ROOT / "packages" / "ahnotify",
    "ah_server": ROOT / "reference-server",
}
FORBIDDEN_NAMES = re.compile(r"^_?(utils?|commons?|helpers?|misc|base_?classes|stuff)(_.*)?$")

# Joined here, so that this file does not hold what it forbids.
REGISTRY_HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"))]
REGISTRY_HOSTS += [".".join(parts) for parts in (("registry", "npmjs"), ("deb", "debian", "org"))]
FOREIGN = re.compile("|".join([*map(re.escape, REGISTRY_HOSTS), r"(?<![\w.-])/(work|root|home)/"]))


def _packages():
    return pytest.mark.parametrize(("name", "folder"), PACKAGES.items(), ids=PACKAGES)


def _public_folders(source):
    """Folders with an `__init__.py` on a path no part of which begins with an underscore."""
    for init in sorted(source.rglob("__init__.py")):
        parts = init.parent.relative_to(source.parent).parts
        # Migrations are scripts that alembic finds by their place and runs one by one.
        if "migrations" not in parts and not any(part.startswith("_") for part in parts):
            yield init


def _committed():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


@_packages()
def test_a_package_has_all_that_a_package_has(name, folder):
    wanted = [
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "changelog.d",
        f"src/{name}/py.typed",
        f"src/{name}/__init__.py",
        "tests/test_exports.py",
    ]
    missing = [path for path in wanted if not (folder / path).exists()]
    assert not missing
    assert list((folder / "changelog.d").glob("*.md")), "every change has its fragment"


@_packages()
def test_the_fragments_of_a_package_can_be_gathered(name, folder):
    draft = ("towncrier", "build", "--draft", "--version", "0", "--dir", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", *draft], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kinds = {path.suffixes[-2].removeprefix(".") for path in (folder / "changelog.d").glob("*.md")}
    assert kinds <= {"feature", "bugfix", "doc", "removal", "misc"}


@_packages()
def test_a_readme_shows_an_example_and_how_to_install(name, folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "```python" in text
    assert re.search(r"pip install|uv add|uv pip install|make setup", text)


@_packages()
def test_a_public_folder_says_what_it_is_and_what_it_exports(name, folder):
    silent = []
    for init in _public_folders(folder / "src" / name):
        tree = ast.parse(init.read_text(encoding="utf-8"))
        assigned = {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        if not ast.get_docstring(tree) or "__all__" not in assigned:
            silent.append(str(init.relative_to(ROOT)))
    assert not silent, "each needs a docstring and __all__"


@_packages()
def test_an_init_only_imports(name, folder):
    """A docstring, imports, `__all__`, and where imports are lazy the module's `__getattr__`."""
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr, ast.If)
    busy = []
    for init in (folder / "src" / name).rglob("__init__.py"):
        for node in ast.parse(init.read_text(encoding="utf-8")).body:
            lazy = isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}
            if not isinstance(node, allowed) and not lazy:
                busy.append(f"{init.relative_to(ROOT)}:{node.lineno}")
    assert not busy


@_packages()
def test_every_folder_of_modules_is_a_package(name, folder):
    source = folder / "src" / name
    folders = {path.parent for path in source.rglob("*.py")}
    bare = [place for place in folders if not (place / "__init__.py").exists()]
    assert not [str(place) for place in bare if "migrations" not in place.parts]


@_packages()
def test_there_is_one_errors_module_with_its_tree_drawn(name, folder):
    text = (folder / "src" / name / "errors.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None
    assert re.search(r"[├└]──|\+-|^ {4,}\w+Error", docstring, re.MULTILINE)


def test_no_module_is_named_after_nothing():
    sources = [folder / "src" for folder in PACKAGES.values()]
    named = [path for source in sources for path in source.rglob("*.py")]
    vague = [str(path) for path in named if FORBIDDEN_NAMES.match(path.stem)]
    vague += [str(path) for path in named if FORBIDDEN_NAMES.match(path.parent.name)]
    assert not vague, "a module has one noun and says it in its name"


def test_testkit_imports_none_of_the_six():
    found = []
    for path in (ROOT / "testkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [str(path) for name in names if name.split(".")[0] in PACKAGES]
    assert not found


def test_no_committed_file_names_a_registry_host_or_a_path_of_one_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in _committed()
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        )
        if FOREIGN.search(line)
    ]
    assert not found


def test_no_lock_file_is_committed():
    assert not [path for path in _committed() if path.name == "uv.lock"]


def test_every_package_is_in_the_gates_and_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    for name, folder in PACKAGES.items():
        place = str(folder.relative_to(ROOT))
        assert place in makefile
        assert f"{place}/src" in tools["mypy"]["mypy_path"]
        assert name in tools["importlinter"]["root_packages"]
        assert name in tools["coverage"]["run"]["source_pkgs"]
