"""The agent's ledger against the store: is a sample missing for which the WAL's append returned?

The ledger has one JSON line for each batch, written after the append returned:
`{"seq": 7, "collected_at_ms": …, "series": [{"name": …, "labels": {…}, "value": …}, …]}`. A line
that the agent was killed in the middle of is no JSON; it promises nothing and is counted, so that
more of them than kills are noticed. A line of another shape is an error: it would prove nothing.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from ah_server.errors import CheckFailedError
from ahwire.names import metric_name

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]
"""Stored metric name, and the labels without the tenant's, sorted."""


@attrs.frozen(kw_only=True)
class Promised:
    """What the ledger holds: for each series the value at each timestamp (Unix milliseconds)."""

    series: Mapping[SeriesKey, Mapping[int, float]]
    batches: int
    cut_lines: int

    @property
    def samples(self) -> int:
        """How many samples were promised."""
        return sum(len(points) for points in self.series.values())

    @property
    def span_ms(self) -> tuple[int, int]:
        """First and last timestamp; (0, 0) when nothing was promised."""
        stamps = [at for points in self.series.values() for at in points]
        return (min(stamps), max(stamps)) if stamps else (0, 0)


def read_ledger(path: Path) -> Promised:
    """Reads the whole ledger; a missing file is an empty one.

    Raises:
        CheckFailedError: a line is JSON of another shape.
    """
    lines = [line for line in path.read_bytes().split(b"\n") if line] if path.exists() else []
    series: dict[SeriesKey, dict[int, float]] = defaultdict(dict)
    cut_lines = 0
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except ValueError:
            cut_lines += 1
            continue
        try:
            at_ms = int(entry["collected_at_ms"])
            for sample in entry["series"]:
                key = series_key(sample["name"], sample["labels"])
                series[key][at_ms] = float(sample["value"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckFailedError(f"line {number} of the ledger {path}: {error!r}") from error
    return Promised(series=dict(series), batches=len(lines) - cut_lines, cut_lines=cut_lines)


def series_key(name: str, labels: Mapping[str, str]) -> SeriesKey:
    """The key under which a sample of the agent is stored."""
    return metric_name(name), tuple(sorted(labels.items()))


def missing_samples(
    promised: Promised, stored: Mapping[SeriesKey, Mapping[int, tuple[int, float]]], step_ms: int
) -> list[str]:
    """What was promised and is not stored, one sentence each.

    Args:
        promised: the ledger.
        stored: for each series and step end (Unix ms, a multiple of `step_ms`) the count and the
            sum of the samples in (end - step, end].
        step_ms: the step of `stored`.
    """
    found = []
    for key, points in promised.series.items():
        expected: dict[int, list[float]] = defaultdict(list)
        for at_ms, value in points.items():
            expected[-(-at_ms // step_ms) * step_ms].append(value)
        for end_ms, values in sorted(expected.items()):
            count, total = stored.get(key, {}).get(end_ms, (0, 0.0))
            if count < len(values):
                told = f"{len(values)} promised, {count} stored"
            elif count == len(values) and not math.isclose(
                total, math.fsum(values), rel_tol=1e-9, abs_tol=1e-9
            ):
                told = f"the values differ: promised sum {math.fsum(values)!r}, stored {total!r}"
            else:
                continue
            labels = ",".join(f'{name}="{value}"' for name, value in key[1])
            found.append(f"{key[0]}{{{labels}}} up to {end_ms} ms: {told}")
    return found


def join_counts(
    counts: Iterable[tuple[SeriesKey, Sequence[tuple[int, float]]]],
    sums: Iterable[tuple[SeriesKey, Sequence[tuple[int, float]]]],
) -> dict[SeriesKey, dict[int, tuple[int, float]]]:
    """Joins the answers of a count query and a sum query, by series and step end."""
    totals = {key: dict(points) for key, points in sums}
    return {
        key: {at: (round(count), totals.get(key, {}).get(at, 0.0)) for at, count in points}
        for key, points in counts
    }
