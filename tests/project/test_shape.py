"""The size of modules and functions, and the exceptions made to the checkers' rules."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 400
BODY_LINES_MAX = 70
TYPE_IGNORES_PER_THOUSAND_LINES = 1

GENERATED = "_pb2.py"
FOLDERS = [*sorted((ROOT / "packages").glob("*/src")), ROOT / "reference-server" / "src"]
SCRIPTS = [ROOT / "testkit" / "src", ROOT / "examples", ROOT / "benchmarks"]

_EXCEPTION = re.compile(r"#\s*(?P<what>noqa|type: ignore)(?P<rules>:\s*[A-Z0-9, ]+|\[[a-z-, ]+\])?")
_REASON = re.compile(r"[A-Za-z]{2,}.*[A-Za-z]{2,}")


def _modules(*folders):
    return [
        path
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if not path.name.endswith(GENERATED)
    ]


MODULES = [*_modules(*FOLDERS, *SCRIPTS), ROOT / "noxfile.py"]


def _name(path):
    return str(path.relative_to(ROOT))


def _body_lines(function):
    """Count the lines of a function's body, its docstring left out."""
    body = function.body
    if ast.get_docstring(function, clean=False) is not None:
        body = body[1:]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_no_module_is_longer_than_400_lines():
    too_long = {
        _name(path): count
        for path in MODULES
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert not too_long, "make two of each"


def test_no_function_body_is_longer_than_70_lines():
    too_long = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = _body_lines(node)
                if count > BODY_LINES_MAX:
                    too_long[f"{_name(path)}:{node.lineno} {node.name}"] = count
    assert not too_long, "make two of each"


def _exceptions():
    for path in MODULES:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            found = _EXCEPTION.search(line)
            if found:
                before = lines[number - 2].strip() if number > 1 else ""
                yield f"{_name(path)}:{number}", found, line[found.end() :], before


def test_every_exception_to_a_rule_names_the_rule_and_gives_a_reason():
    """`# noqa: RULE - reason`, `# type: ignore[code] # reason`, or it is on the line above."""
    bare = [
        place
        for place, found, after, before in _exceptions()
        if not found["rules"] or not (_REASON.search(after) or before.startswith("#"))
    ]
    assert not bare


def test_type_ignores_are_rare():
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES)
    ignores = [place for place, found, _, _ in _exceptions() if found["what"] != "noqa"]
    allowed = max(1, lines * TYPE_IGNORES_PER_THOUSAND_LINES // 1000)
    assert len(ignores) <= allowed, f"{len(ignores)} in {lines} lines: {ignores}"


@pytest.mark.parametrize(("lines", "expected"), [(1, 1), (70, 70), (71, 71)])
def test_a_body_is_counted_without_its_head_and_docstring(lines, expected):
    source = "def f(\n    a,\n):\n    '''Say.\n\n    More.\n    '''\n" + "    a += 1\n" * lines
    assert _body_lines(ast.parse(source).body[0]) == expected
