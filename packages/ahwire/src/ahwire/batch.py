"""Counting, splitting, merging and judging of MetricsBatch messages.

`validate` is what a collector does with a batch, and a `Validator` is the same with a memory: it
knows again the series that were clean before, and of a body that `take_apart` cut it parses only
the others. The order of work on labels is part of the contract: names are normalised, reserved ones
are removed (compared without case), of duplicates the first wins. The tenant's labels are assigned
later, by the collector, so nothing that an agent sends can stand in their place.
"""

from collections.abc import Callable, Iterable

from ahwire._judging import (
    BAD_LABEL,
    BAD_NAME,
    IN_FUTURE,
    NOT_FINITE,
    SERIES_LIMIT,
    TOO_LONG,
    TOO_MANY_LABELS,
    TOO_OLD,
    CleanSeries,
    Judged,
    SeriesKey,
    Validated,
    count_points,
    validate,
)
from ahwire._raw_batch import RawBatch, take_apart
from ahwire._validator import Validator
from ahwire.agent_pb2 import MetricsBatch, Series

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
    "Judged",
    "RawBatch",
    "SeriesKey",
    "Validated",
    "Validator",
    "count_points",
    "drop_old_points",
    "merge",
    "split",
    "take_apart",
    "validate",
]


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
