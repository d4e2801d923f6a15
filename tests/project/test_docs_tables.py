"""The tables of the reference pages are what the code says."""

import ast
import functools
import importlib
import inspect
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["ahwire", "ahrules", "ahwal", "ahcollector", "ahnotify"]
SHOWN = re.compile(r"^::: (\S+)\n((?: {4}.*\n)*)", re.MULTILINE)


def test_every_setting_metric_exit_code_and_status_has_its_line():
    script = Path(__file__).with_name("docs_tables.py")
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def public_modules(package):
    """What stands directly in a package on a public path, generated code left out."""
    source = ROOT / "packages" / package / "src" / package
    for path in sorted(source.iterdir()):
        is_module = path.suffix == ".py" or (path / "__init__.py").exists()
        if is_module and not path.name.startswith("_") and not path.stem.endswith("_pb2"):
            yield f"{package}.{path.stem}"


def shown_on(package):
    """Yield (module, its members that are shown: a list, None for all of them) of a page."""
    page = ROOT / "docs" / "reference" / f"{package}.md"
    for module, options in SHOWN.findall(page.read_text(encoding="utf-8") + "\n"):
        members = (yaml.safe_load(options) or {}).get("options", {}).get("members")
        yield importlib.import_module(module), [] if members is False else members


@functools.cache
def explained_values(package):
    """Names of a package's values that have a docstring below them; others are not shown."""
    found = set()
    for path in (ROOT / "packages" / package / "src" / package).rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for value, text in itertools.pairwise(body):
            if isinstance(value, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Expr):
                target = value.target if isinstance(value, ast.AnnAssign) else value.targets[0]
                found.add(ast.unparse(target))
    return found


def is_shown(package, name):
    thing = getattr(importlib.import_module(package), name)
    has_text = inspect.isclass(thing) or inspect.isroutine(thing)
    for module, members in shown_on(package):
        own = (getattr(module, "__all__", None) or vars(module)) if members is None else members
        if name in own and getattr(module, name) is thing:
            return members is not None or has_text or name in explained_values(package)
    return False


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_of_a_package_is_on_its_page(package):
    names = importlib.import_module(package).__all__
    assert [name for name in names if not is_shown(package, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_module_is_on_its_package_s_page(package):
    page = (ROOT / "docs" / "reference" / f"{package}.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))
    modules = {package, *public_modules(package)}
    assert modules <= shown
    # One folder down are the adapters of vendors that are extras: they are imported by themselves.
    adapters = shown - modules
    assert all(adapter.rpartition(".")[0] in modules for adapter in adapters)
    assert [name for name in adapters if not importlib.import_module(name).__all__] == []
