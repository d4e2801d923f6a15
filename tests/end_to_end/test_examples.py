"""Each example runs as it stands, in an empty directory, with warnings as errors.

The prefork example runs under a real gunicorn, in `test_embedding.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LINES_MAX = 72


def test_there_are_examples():
    assert len(list(EXAMPLES.glob("*.py"))) >= 3


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_example_runs_and_says_what_it_did(example, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert ": False" not in done.stdout  # what an example says of itself is true
    assert list(tmp_path.iterdir()) == []


def test_the_examples_of_a_users_own_tests_pass(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-c", os.devnull, f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'tmp'}"),
            str(EXAMPLES / "testing"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_an_example_is_one_idea_of_some_sixty_lines():
    long = {
        str(path.relative_to(EXAMPLES)): lines
        for path in EXAMPLES.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert not long
