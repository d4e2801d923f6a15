"""What every benchmark shares: rounds in turns, medians, one line a figure, JSON for the docs.

A benchmark is a script `bench_<question>.py` whose `measure(options)` returns rows. Peers are
measured in the same process and in turns with us, round by round, after a warm-up, so that a load
from elsewhere meets both. A row is kept whether its figure was reached or not.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs

HERE = Path(__file__).resolve().parent


@attrs.frozen(kw_only=True)
class Row:
    """One question and its answer.

    Attributes:
        question: What was asked, with the peer.
        measured: The answer with its spread, in words.
        value: The answer, in the unit of `limit`.
        limit: The figure to reach.
        less_is_better: Whether the limit is a ceiling.
        target: The figure to reach, in words.
        note: What the reader must know; why it was not reached.
        figures: All numbers behind it, units last in their names.
    """

    question: str
    measured: str
    value: float
    limit: float
    less_is_better: bool
    target: str
    note: str = ""
    figures: Mapping[str, object] = attrs.field(factory=dict[str, object])

    @property
    def reached(self) -> bool:
        """Whether the value is on the right side of the limit."""
        return self.value <= self.limit if self.less_is_better else self.value >= self.limit


@attrs.frozen(kw_only=True)
class Options:
    """How a benchmark is run.

    Attributes:
        quick: A few rounds only: shows that it runs, its figures mean nothing.
    """

    quick: bool

    def rounds(self, count: int) -> int:
        """The rounds to make."""
        return max(2, count // 50) if self.quick else count


@attrs.frozen(kw_only=True)
class Times:
    """Measurements of one thing, in seconds or as a rate.

    Attributes:
        values: One a round, in the order of the rounds.
    """

    values: Sequence[float]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter lies below the first and above the second."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, n=4)
        return low, high

    @property
    def fast(self) -> float:
        """The first quartile: what it is while the machine is left alone."""
        return self.quartiles[0]

    def micros(self) -> str:
        """Median and quartiles in microseconds."""
        low, high = self.quartiles
        return f"{self.median * 1e6:.0f} µs ({low * 1e6:.0f} to {high * 1e6:.0f})"

    def each(self, digits: int = 0) -> str:
        """Median and quartiles as they are."""
        low, high = self.quartiles
        return f"{self.median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


@contextmanager
def work_folder() -> Iterator[Path]:
    """An empty folder on the disk of the workspace, for temporary files may lie in memory."""
    home = HERE.parent / ".nox" / "bench"
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as name:
        yield Path(name)


def seconds_of(action: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def cpu_seconds_of(action: Callable[[], object]) -> float:
    """How long the processor works on one call: for what waits for nothing."""
    began = time.process_time()
    action()
    return time.process_time() - began


def in_turns(
    cases: Mapping[str, Callable[[], float]], *, rounds: int, warm_up: int = 1
) -> dict[str, Times]:
    """Run each case once a round and keep what it returns, but for the rounds of the warm-up.

    The first case of a round changes, so that none always follows the same one.
    """
    names = list(cases)
    values: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + warm_up):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            value = cases[name]()
            if number >= warm_up:
                values[name].append(value)
    return {name: Times(values=found) for name, found in values.items()}


def by_rounds(ours: Times, peer: Times) -> Times:
    """What ours is of the peer's in each round: what else the machine did met both."""
    return Times(values=[a / b for a, b in zip(ours.values, peer.values, strict=True)])


def main(file: str, measure: Callable[[Options], list[Row]], *, packages: Sequence[str]) -> None:
    """Run a benchmark from its command line.

    Args:
        file: The script, `__file__`.
        measure: What it measures.
        packages: Distributions whose versions belong to the answer.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--quick", action="store_true", help="few rounds: only to see it run")
    given = parser.parse_args()
    began = time.monotonic()
    rows = measure(Options(quick=given.quick))
    for row in rows:
        outcome = "reached" if row.reached else "NOT REACHED"
        print(f"| {row.question} | {row.measured} | {row.target}: {outcome} |")
        if row.note:
            print(f"    {row.note}")
    if given.json:
        answer = {
            "bench": Path(file).stem.removeprefix("bench_"),
            "seconds": round(time.monotonic() - began, 1),
            "circumstances": circumstances(packages),
            "rows": [attrs.asdict(row) | {"reached": row.reached} for row in rows],
        }
        given.json.write_text(json.dumps(answer, indent=2, ensure_ascii=False) + "\n")


def circumstances(packages: Sequence[str]) -> dict[str, Any]:
    """Machine, time, commit and versions."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--", "packages", "reference-server")),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 1),
        "versions": {name: _version(name) for name in packages},
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
