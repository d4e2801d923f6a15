"""What a package's tests skip without, tested alone, is here: in the workspace none is skipped."""

import ast
import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = [*ROOT.glob("packages/*/tests"), ROOT / "reference-server" / "tests"]


def wanted(source, file):
    """The modules that a test file asks for, and the pages it looks for, by `__file__`."""
    modules, pages = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
            modules |= {one.value for one in node.args if isinstance(one, ast.Constant)}
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {"PAGE", "REFERENCE"}:
            _, parents, rest = ast.unparse(node.value).partition(".parents[")
            if parents:
                up, *names = rest.replace("]", "").split(" / ")
                pages.add(file.parents[int(up)].joinpath(*map(ast.literal_eval, names)))
    return modules, pages


def all_wanted():
    files = [file for folder in TESTS for file in folder.rglob("*.py")]
    found = [wanted(file.read_text(encoding="utf-8"), file) for file in files]
    return set().union(*(one for one, _ in found)), set().union(*(one for _, one in found))


def is_there(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_every_module_that_tests_skip_without_is_installed():
    modules, _ = all_wanted()
    assert {"testkit", "testkit.victoria_metrics", "uvicorn"} <= modules
    assert [module for module in sorted(modules) if not is_there(module)] == []


def test_every_page_that_tests_skip_without_is_there():
    _, pages = all_wanted()
    assert len(pages) == 3
    assert [page for page in sorted(pages) if not page.is_file()] == []


def test_what_is_not_there_is_noticed():
    source = (
        'kind = pytest.importorskip("testkit.gone")\nPAGE = Path(__file__).parents[1] / "a.md"\n'
    )
    assert wanted(source, Path("/x/y/test_z.py")) == ({"testkit.gone"}, {Path("/x/a.md")})
    assert not is_there("testkit.gone")
    assert not is_there("gone.altogether")
