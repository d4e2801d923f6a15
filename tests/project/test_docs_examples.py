"""Every Python example in the documentation runs as it stands.

A page's fenced `python` blocks are one program, in order: a later block may use what an earlier one
made. Each page runs in a process of its own, in an empty directory, with warnings as errors. One
that leaves something there runs again beside it, as a reader's program does at its second start.
What cannot be run is not fenced as Python.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 60
FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>.*?)[ \t]*$")


def pages():
    readmes = [*ROOT.glob("*.md"), *ROOT.glob("packages/*/*.md"), *ROOT.glob("*/README.md")]
    found = {path for path in readmes if not path.name.startswith("CHANGELOG")}
    return sorted(found | set((ROOT / "docs").rglob("*.md")))


def fences(text):
    """Yield (line number of the opening fence, info string, lines) of each fenced block."""
    opened, lines = None, []
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if opened is None:
            if match:
                opened, lines = (number, match), []
            continue
        start, opening = opened
        closes = match and not match["info"] and match["fence"].startswith(opening["fence"])
        if closes:
            yield start, opening["info"], lines
            opened = None
        else:
            lines.append(line.removeprefix(opening["indent"]))
    assert opened is None, f"the fence opened in line {opened[0]} is never closed"


def program(text):
    """The page's Python as one file whose line numbers are the page's."""
    lines = [""] * (len(text.splitlines()) + 1)
    for start, info, block in fences(text):
        if info == "python":
            lines[start : start + len(block)] = block
    return "\n".join(lines)


def name(path):
    return str(path.relative_to(ROOT))


def has_python(path):
    return any(info == "python" for _, info, _ in fences(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", pages(), ids=name)
def test_python_is_fenced_as_python_and_nothing_else(path):
    """`py`, `python no-run` and the like would hide an example from the test below."""
    odd = [
        f"{name(path)}:{start}: {info}"
        for start, info, _ in fences(path.read_text(encoding="utf-8"))
        if re.match(r"\W*(py|python|python3|pycon)\b", info) and info != "python"
    ]
    assert not odd


@pytest.mark.parametrize("path", [path for path in pages() if has_python(path)], ids=name)
def test_the_python_of_a_page_runs(path, tmp_path):
    script = tmp_path / f"page_{path.stem}.py"  # a page may have the name of what it imports
    script.write_text(program(path.read_text(encoding="utf-8")), encoding="utf-8")
    directory = tmp_path / "cwd"
    directory.mkdir()
    first = run(script, directory)
    assert first.returncode == 0, f"{name(path)}:\n{first.stdout}\n{first.stderr}"
    if any(directory.iterdir()):
        second = run(script, directory)
        told = f"{name(path)}, run again:\n{second.stdout}\n{second.stderr}"
        assert second.returncode == 0, told


def run(script, directory):
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=directory,
        env={**os.environ, "HOME": str(directory), "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit_of_the_agent(tmp_path):
    page = (ROOT / "docs" / "how-to" / "run-the-agent.md").read_text(encoding="utf-8")
    (lines,) = [block for _, info, block in fences(page) if info == "ini"]
    unit = tmp_path / "ahagent.service"
    # The program of the page is on no machine that tests.
    unit.write_text("\n".join(lines).replace("/opt/ahwal/bin/ahagent", sys.executable))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    # It looks at the machine's own units too, whose faults are not ours.
    assert [line for line in result.stderr.splitlines() if unit.name in line] == []


def test_a_page_s_blocks_share_names_and_keep_their_lines():
    page = "# T\n\n```python\na = 1\n```\n\n- item\n\n    ```python\n    b = a\n    ```\n"
    assert program(page).splitlines()[3] == "a = 1"
    assert program(page).splitlines()[9] == "b = a"


def test_other_languages_and_nested_fences_are_left_alone():
    page = "````text\n```python\nraise SystemExit(1)\n```\n````\n```console\n$ ls\n```\n"
    assert program(page).strip() == ""
    assert [info for _, info, _ in fences(page)] == ["text", "console"]
