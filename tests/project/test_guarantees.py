"""The guarantees are what the tests show: each line names tests, and each of them is there."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

from ahwal.sender import DropReason

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    name: ROOT / "docs" / folder / f"{name}.md"
    for name, folder in {
        "guarantees": "explanation",
        "security": "explanation",
        "ahwal": "explanation",
        "embed-in-a-prefork-server": "how-to",
        "run-on-redis": "how-to",
    }.items()
}
NAMED = re.compile(r"`((?:[\w.-]+/)*test_\w+\.py)(?:::(test_\w+))?`")


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
    found = [path for path in files_of_tests() if f"/{path.relative_to(ROOT)}".endswith(f"/{file}")]
    return any(not test or test in names_in(path) for path in found)


def section(text, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_the_page_names_is_there(page):
    named = NAMED.findall(PAGES[page].read_text(encoding="utf-8"))
    missing = [f"{file}::{test}" for file, test in named if not is_there(file, test)]
    assert not missing


@pytest.mark.parametrize("title", ["Companies apart", "Tokens", "What a body can do", "TLS"])
def test_every_point_about_security_names_a_test_or_says_that_there_is_none(title):
    text, _, _ = section(PAGES["security"].read_text(encoding="utf-8"), title).partition("```")
    first, *points = re.split(r"^- ", text, flags=re.MULTILINE)
    told = [one for one in points or [first] if not re.search(r"\*([Tt]ests?:|No test)\s", one)]
    assert not told


def test_every_promise_of_the_agent_names_a_test():
    agent = section(PAGES["guarantees"].read_text(encoding="utf-8"), "The agent")
    promises, _, limits = agent.partition("### Where the promise ends")
    assert "not promises" in limits
    rows = [line for line in promises.splitlines() if re.match(r"\| (?!---)", line)]
    rows = [row for row in rows if not row.endswith("| shown by |")]
    points = re.findall(r"^- .*?(?=^- |^$|\Z)", promises, re.MULTILINE | re.DOTALL)
    assert len(rows) > 20
    assert len(points) > 4
    assert [line for line in rows + points if not NAMED.search(line)] == []


def test_every_reason_for_dropping_points_is_explained():
    table = PAGES["ahwal"].read_text(encoding="utf-8").partition("| reason in `dropped`")[2]
    told = [cell for row in table.split("\n\n")[0].splitlines() for cell in row.split("|")[1:2]]
    assert sorted(re.findall(r"`(\w+)`", "".join(told))) == sorted(map(str, DropReason))


def test_a_test_that_is_not_there_is_noticed():
    assert not is_there("wal/test_crash.py", "test_of_nothing")
    assert not is_there("test_of_nothing.py", "")
    assert is_there(f"project/{Path(__file__).name}", sys._getframe().f_code.co_name)
