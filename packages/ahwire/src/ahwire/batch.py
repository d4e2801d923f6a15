"""Counting, splitting, merging and judging of MetricsBatch messages.

`validate` is what a collector does with a batch. The order of work on labels is part of the
contract: names are normalised, reserved ones are removed (compared without case), of duplicates
the first wins. The tenant's labels are assigned later, by the collector, so nothing that an agent
sends can stand in their place.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import attrs

from ahwire.agent_pb2 import Label, MetricsBatch, RejectedSeries, Series
from ahwire.errors import TooLargeError
from ahwire.limits import DEFAULT, Limits
from ahwire.names import is_reserved_label, metric_name, normalise_name

__all__ = [
    "BAD_LABEL",
    "BAD_NAME",
    "IN_FUTURE",
    "NOT_FINITE",
    "SERIES_LIMIT",
    "TOO_LONG",
    "TOO_MANY_LABELS",
    "TOO_OLD",
    "CleanSeries",
    "Validated",
    "count_points",
    "drop_old_points",
    "merge",
    "split",
    "validate",
]

BAD_NAME = "bad_name"
BAD_LABEL = "bad_label"
TOO_LONG = "too_long"
TOO_MANY_LABELS = "too_many_labels"
TOO_OLD = "too_old"
IN_FUTURE = "in_future"
NOT_FINITE = "not_finite"
SERIES_LIMIT = "series_limit"

_PLAUSIBLE_MS = 366 * 24 * 3600 * 1000
# What a time stamp must be multiplied with to be milliseconds, by the unit that it seems to be in.
_WRONG_UNITS: Sequence[tuple[str, float]] = (
    ("seconds", 1e3),
    ("microseconds", 1e-3),
    ("nanoseconds", 1e-6),
)
_NAME_CHARS_SHOWN = 40


@attrs.frozen(kw_only=True)
class CleanSeries:
    """A series that may be stored, its tenant's labels still to come.

    Attributes:
        index: its place in `MetricsBatch.series`.
        name: normalised, beginning `ah_`.
        labels: (name, value) pairs sorted by name; names are normalised, unique and not reserved.
        points: (Unix milliseconds, finite value) pairs in the order they were sent; never empty.
    """

    index: int
    name: str
    labels: tuple[tuple[str, str], ...]
    points: tuple[tuple[int, float], ...]


@attrs.frozen(kw_only=True)
class Validated:
    """What became of a batch; every point is either in `series` or counted in `dropped_points`.

    Attributes:
        series: what may be stored, in the batch's order.
        rejected: one entry for each (index, code), ready for the acknowledgement.
        accepted_points: points in `series`.
        dropped_points: points in `rejected`.
        warnings: sentences for the agent's log, a handful at most.
    """

    series: tuple[CleanSeries, ...]
    rejected: list[RejectedSeries]
    accepted_points: int
    dropped_points: int
    warnings: list[str]


def count_points(batch: MetricsBatch) -> int:
    """How many points the batch carries, over all of its series."""
    return sum(len(series.points) for series in batch.series)


def split(batch: MetricsBatch, next_seq: Callable[[], int]) -> list[MetricsBatch]:
    """The batch in two halves: by series, or by points when only one series has any.

    Args:
        batch: stays as it is.
        next_seq: gives the sequence number of each half, first half first.

    Returns:
        Two batches that carry every point once, with the times and stats of the whole; or [batch]
        itself, when it has at most one point and so cannot be split. Series without points are
        left out.
    """
    filled = [series for series in batch.series if series.points]
    if len(filled) > 1:
        middle = len(filled) // 2
        return [_part(batch, next_seq(), half) for half in (filled[:middle], filled[middle:])]
    if not filled or len(filled[0].points) == 1:
        return [batch]
    whole = filled[0]
    middle = len(whole.points) // 2
    halves = (whole.points[:middle], whole.points[middle:])
    return [
        _part(batch, next_seq(), [Series(name=whole.name, labels=whole.labels, points=points)])
        for points in halves
    ]


def _part(whole: MetricsBatch, seq: int, series: Iterable[Series]) -> MetricsBatch:
    part = MetricsBatch(
        seq=seq,
        sent_at_ms=whole.sent_at_ms,
        collected_at_ms=whole.collected_at_ms,
        series=series,
    )
    if whole.HasField("stats"):
        part.stats.CopyFrom(whole.stats)
    return part


def merge(batches: Iterable[MetricsBatch], seq: int) -> MetricsBatch:
    """One batch with every point of several; series equal in name and labels are joined.

    Args:
        batches: oldest first; they stay as they are.
        seq: the sequence number of the result.

    Returns:
        A batch whose points keep their times and order, with the newest `collected_at_ms` and the
        stats of the last batch that has any. `sent_at_ms` is left for the sender.
    """
    merged = MetricsBatch(seq=seq)
    joined: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
    for batch in batches:
        merged.collected_at_ms = max(merged.collected_at_ms, batch.collected_at_ms)
        if batch.HasField("stats"):
            merged.stats.CopyFrom(batch.stats)
        for series in batch.series:
            key = (series.name, tuple((label.name, label.value) for label in series.labels))
            known = joined.get(key)
            if known is None:
                joined[key] = added = merged.series.add()
                added.CopyFrom(series)
            else:
                known.points.extend(series.points)
    return merged


def drop_old_points(
    batch: MetricsBatch, *, now_ms: int, max_age_seconds: float
) -> tuple[MetricsBatch, int]:
    """The batch without the points that a collector would refuse as too old.

    Returns:
        (batch, count of points dropped). The batch is the same object when nothing was dropped,
        else a copy in which series left without points are gone.
    """
    oldest_ms = now_ms - round(max_age_seconds * 1000)
    if all(point.ts_ms >= oldest_ms for series in batch.series for point in series.points):
        return batch, 0
    kept: list[Series] = []
    dropped = 0
    for series in batch.series:
        fresh = [point for point in series.points if point.ts_ms >= oldest_ms]
        dropped += len(series.points) - len(fresh)
        if fresh:
            kept.append(Series(name=series.name, labels=series.labels, points=fresh))
    return _part(batch, batch.seq, kept), dropped


def validate(batch: MetricsBatch, *, now_ms: int, limits: Limits = DEFAULT) -> Validated:
    """Judges every series and point of a batch by the rules of the ingest door.

    A fault of a series refuses all of its points under the first code found: `bad_name` (empty or
    blank), `too_long` (a name or a label's value), `bad_label` (a value with NUL in it),
    `too_many_labels`. A fault of a point (`not_finite`, `too_old`, `in_future`, in
    this order) refuses that point. Points exactly at an edge of the time window are in. Lengths are
    those of the names as sent; labels are counted after reserved ones and duplicates are gone.
    Series without points are passed over.

    Args:
        batch: stays as it is.
        now_ms: the collector's wall clock in Unix milliseconds.
        limits: what the batch is held to.

    Raises:
        TooLargeError: more points, or more series, than a batch may have.
    """
    _check_size(batch, limits)
    judge = _Judge(now_ms, limits)
    for index, series in enumerate(batch.series):
        if series.points:
            judge.see(index, series)
    return judge.result()


def _check_size(batch: MetricsBatch, limits: Limits) -> None:
    most = limits.points_per_batch
    # Series first: millions of empty ones fit into a body, and looking into each takes seconds.
    if len(batch.series) > most:
        msg = f"the batch has {len(batch.series)} series; at most {most} are taken, split it"
        raise TooLargeError(msg)
    points = count_points(batch)
    if points > most:
        msg = f"the batch has {points} points; at most {most} are taken, split it"
        raise TooLargeError(msg)


class _Judge:
    """Collects what `validate` finds, series by series."""

    def __init__(self, now_ms: int, limits: Limits) -> None:
        self._now_ms = now_ms
        self._limits = limits
        self._oldest_ms = now_ms - round(limits.point_age_seconds * 1000)
        self._newest_ms = now_ms + round(limits.point_future_seconds * 1000)
        self._series: list[CleanSeries] = []
        self._rejected: list[RejectedSeries] = []
        self._duplicates: list[tuple[int, str]] = []
        self._units: Counter[str] = Counter()

    def see(self, index: int, series: Series) -> None:
        fault = self._name_fault(series.name)
        labels: dict[str, str] = {}
        if fault is None:
            labels, fault = self._clean_labels(index, series.labels)
        if fault is not None:
            self._reject(index, fault, len(series.points))
            return
        points = self._clean_points(index, series)
        if points:
            clean = CleanSeries(
                index=index,
                name=metric_name(series.name),
                labels=tuple(sorted(labels.items())),
                points=points,
            )
            self._series.append(clean)

    def result(self) -> Validated:
        return Validated(
            series=tuple(self._series),
            rejected=self._rejected,
            accepted_points=sum(len(series.points) for series in self._series),
            dropped_points=sum(entry.points for entry in self._rejected),
            warnings=[*self._duplicate_warnings(), *self._unit_warnings()],
        )

    def _reject(self, index: int, code: str, points: int) -> None:
        self._rejected.append(RejectedSeries(index=index, code=code, points=points))

    def _name_fault(self, name: str) -> str | None:
        if not name.strip():
            return BAD_NAME
        if len(name.encode()) > self._limits.name_bytes:
            return TOO_LONG
        return None

    def _clean_labels(
        self, index: int, labels: Iterable[Label]
    ) -> tuple[dict[str, str], str | None]:
        """The labels that stay, and the code of the first fault among them."""
        clean: dict[str, str] = {}
        for label in labels:
            name = normalise_name(label.name)
            if is_reserved_label(name):
                continue
            if name in clean:
                self._duplicates.append((index, name))
                continue
            if len(label.name.encode()) > self._limits.name_bytes:
                return clean, TOO_LONG
            if len(label.value.encode()) > self._limits.label_value_bytes:
                return clean, TOO_LONG
            if "\0" in label.value:
                return clean, BAD_LABEL
            clean[name] = label.value
        too_many = len(clean) > self._limits.labels_per_series
        return clean, TOO_MANY_LABELS if too_many else None

    def _clean_points(self, index: int, series: Series) -> tuple[tuple[int, float], ...]:
        clean: list[tuple[int, float]] = []
        faults: Counter[str] = Counter()
        for point in series.points:
            ts_ms, value = point.ts_ms, point.value
            if not math.isfinite(value):
                faults[NOT_FINITE] += 1
            elif ts_ms < self._oldest_ms:
                faults[TOO_OLD] += 1
                self._guess_unit(ts_ms)
            elif ts_ms > self._newest_ms:
                faults[IN_FUTURE] += 1
                self._guess_unit(ts_ms)
            else:
                clean.append((ts_ms, value))
        for code, count in sorted(faults.items()):
            self._reject(index, code, count)
        return tuple(clean)

    def _guess_unit(self, ts: int) -> None:
        for unit, factor in _WRONG_UNITS:
            if abs(ts * factor - self._now_ms) <= _PLAUSIBLE_MS:
                self._units[unit] += 1

    def _duplicate_warnings(self) -> list[str]:
        if not self._duplicates:
            return []
        index, name = self._duplicates[0]
        warning = (
            f"{len(self._duplicates)} duplicate labels dropped, the first of each name kept "
            f"(series {index}, label {name:.{_NAME_CHARS_SHOWN}})"
        )
        return [warning]

    def _unit_warnings(self) -> list[str]:
        return [
            f"{count} points refused: their ts_ms looks like {unit}; send Unix milliseconds"
            for unit, count in sorted(self._units.items())
        ]
