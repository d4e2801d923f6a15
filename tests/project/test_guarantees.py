"""The guarantees are what the tests show: each line names tests, and each of them is there."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

from ahwal.sender import DropReason

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXPLANATION = DOCS / "explanation"
NAMED = re.compile(r"`((?:[\w.-]+/)*test_\w+\.py)(?:::Test\w+)?(?:::(test_\w+))?(?: -[^`]*)?`")
ALONE = re.compile(r"`(test_\w+)`")


@functools.cache
def files_of_tests():
    folders = [*ROOT.glob("packages/*/tests"), ROOT / "reference-server" / "tests", ROOT / "tests"]
    return [path for folder in folders for path in folder.rglob("test_*.py")]


@functools.cache
def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def is_there(file, test):
    """Whether a file whose path ends so, or any file where none is named, has the test."""
    end = file and f"/{file}"
    found = [path for path in files_of_tests() if f"/{path.relative_to(ROOT)}".endswith(end)]
    return any(not test or test in names_in(path) for path in found)


def section(text, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


def missing_in(text):
    named = [*NAMED.findall(text), *(("", test) for test in ALONE.findall(text))]
    return [f"{file}::{test}" for file, test in named if not is_there(file, test)]


def test_every_test_that_a_page_names_is_there():
    texts = {page: page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    assert len([page for page, text in texts.items() if NAMED.search(text)]) > 6
    assert {page: missing for page, text in texts.items() if (missing := missing_in(text))} == {}


@pytest.mark.parametrize("title", ["Companies apart", "Tokens", "What a body can do", "TLS"])
def test_every_point_about_security_names_a_test_or_says_that_there_is_none(title):
    text, _, _ = section(
        (EXPLANATION / "security.md").read_text(encoding="utf-8"), title
    ).partition("```")
    first, *points = re.split(r"^- ", text, flags=re.MULTILINE)
    told = [one for one in points or [first] if not re.search(r"\*([Tt]ests?:|No test)\s", one)]
    assert not told


def test_every_promise_of_the_agent_names_a_test():
    agent = section((EXPLANATION / "guarantees.md").read_text(encoding="utf-8"), "The agent")
    promises, _, limits = agent.partition("### Where the promise ends")
    assert "not promises" in limits
    rows = [line for line in promises.splitlines() if re.match(r"\| (?!---)", line)]
    rows = [row for row in rows if not row.endswith("| shown by |")]
    points = re.findall(r"^- .*?(?=^- |^$|\Z)", promises, re.MULTILINE | re.DOTALL)
    assert len(rows) > 20
    assert len(points) > 4
    assert [line for line in rows + points if not NAMED.search(line)] == []


@pytest.mark.parametrize("title", ["The collector", "The notification center"])
def test_every_promise_of_the_services_names_a_test_or_says_that_there_is_none(title):
    text = section((EXPLANATION / "guarantees.md").read_text(encoding="utf-8"), title)
    points = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    assert len(points) > 4
    told = re.compile(rf"{NAMED.pattern}|\*No test:|\A\*\*Where that promise ends")
    assert [point for point in points if not told.search(point)] == []


def test_every_reason_for_dropping_points_is_explained():
    table = (
        (EXPLANATION / "ahwal.md").read_text(encoding="utf-8").partition("| reason in `dropped`")[2]
    )
    told = [cell for row in table.split("\n\n")[0].splitlines() for cell in row.split("|")[1:2]]
    assert sorted(re.findall(r"`(\w+)`", "".join(told))) == sorted(map(str, DropReason))


def test_a_test_that_is_not_there_is_noticed():
    assert not is_there("wal/test_crash.py", "test_of_nothing")
    assert not is_there("test_of_nothing.py", "")
    assert missing_in("`wal/test_directory.py::TestAFork::test_of_nothing`")
    assert missing_in("| 30 labels | `test_of_nothing` |") == ["::test_of_nothing"]
    assert is_there(f"project/{Path(__file__).name}", sys._getframe().f_code.co_name)
