"""What the long tests of the WAL counted, and the page that says so.

As a program it runs them and writes `docs/reference/nightly.md`, up to the part of another library;
nothing before that is typed by hand::

    python packages/ahwal/tests/wal/wal_report.py [options of pytest]
"""

import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

REPORT_VARIABLE = "AH_WAL_REPORT"
FOLDER = "packages/ahwal/tests/wal"
SOURCES = ("packages/ahwal/src/ahwal/wal", "packages/ahwal/src/ahwal/testing")
PAGE = Path("docs/reference/nightly.md")
OTHERS = "## The nightly run of ahrules"
COMMAND = [
    *("pytest", "-q", "--hypothesis-profile=nightly", "-m", "nightly or not nightly", FOLDER),
]
LIBRARIES = ("ahwal", "google-crc32c", "hypothesis", "pytest", "atheris")


class Tally:
    """Counts by what was done and where."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.notes: list[str] = []
        self.outcomes: Counter[str] = Counter()

    def count(self, what: str, where: str, number: int = 1) -> None:
        self.counts.setdefault(what, Counter())[where] += number

    def note(self, sentence: str) -> None:
        """Add a sentence to the report."""
        self.notes.append(sentence)

    def write(self, path: Path) -> None:
        document = {"counts": self.counts, "notes": self.notes, "outcomes": self.outcomes}
        path.write_text(json.dumps(document), encoding="utf-8")


def commit_of(root: Path) -> str:
    """The commit of the tree, and whether the WAL was changed since."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", *SOURCES, FOLDER)
    return f"`{git('rev-parse', '--short', 'HEAD')}`{' and changes' if changed else ''}"


def versions() -> str:
    found = [f"Python {platform.python_version()}", f"{platform.system()} {platform.machine()}"]
    for name in LIBRARIES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def page(found: dict, *, begun: str, commit: str, seconds: float, code: int) -> str:
    total = sum(sum(counts.values()) for counts in found["counts"].values())
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(found["outcomes"].items()))
    lines = [
        "# The nightly run of the WAL",
        "",
        "Written by `packages/ahwal/tests/wal/wal_report.py`, which made the run.",
        "",
        "| | |",
        "| --- | --- |",
        f"| result | {'every test passed' if code == 0 else f'FAILED, exit code {code}'} |",
        f"| begun | {begun} |",
        f"| commit | {commit} |",
        f"| versions | {versions()} |",
        f"| command | `{shlex.join(COMMAND)}` |",
        f"| tests | {outcomes} |",
        f"| seconds | {seconds:,.0f} |",
        f"| crashes | {total:,} |",
        "",
        "## Where it was cut",
        "",
        "Each history was run again for each of its system calls and ended in it; then it was",
        "ended a second time, during recovery or soon after; then what is there was compared with",
        "a ledger. Those that end at the `end of the history` were ended once, and so was a real",
        "process each time, at a random moment.",
        "A power cut keeps any prefix of each file's unsynced writes, the last one in part or as",
        "zeros, and any of the unsynced names; a kill keeps everything.",
        "",
    ]
    kinds = sorted(found["counts"])
    places = sorted({place for counts in found["counts"].values() for place in counts})
    lines += [f"| in the call | {' | '.join(kinds)} |", "| --- |" + " --: |" * len(kinds)]
    for place in places:
        row = [f"{found['counts'][kind].get(place, 0):,}" for kind in kinds]
        lines.append(f"| {place} | {' | '.join(row)} |")
    sums = [f"{sum(found['counts'][kind].values()):,}" for kind in kinds]
    lines += [f"| together | {' | '.join(sums)} |", ""]
    if found["notes"]:
        lines += ["## Further", "", *(f"- {note}" for note in sorted(found["notes"])), ""]
    return "\n".join(lines)


def main() -> None:
    root = Path(__file__).resolve().parents[4]
    begun, commit = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", commit_of(root)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wal.json"
        done = subprocess.run(
            [sys.executable, "-m", *COMMAND, *sys.argv[1:]],
            cwd=root,
            env=os.environ | {REPORT_VARIABLE: str(path)},
            check=False,
        )
        found = json.loads(path.read_text(encoding="utf-8"))
    seconds, code = time.monotonic() - started, done.returncode
    text = page(found, begun=begun, commit=commit, seconds=seconds, code=code)
    _, part, rest = (root / PAGE).read_text(encoding="utf-8").partition(OTHERS)
    (root / PAGE).write_text("\n".join(filter(None, (text, part + rest))), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
