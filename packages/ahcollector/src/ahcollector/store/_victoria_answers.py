"""What VictoriaMetrics' answers to queries mean: pure functions.

Every function raises ValueError where an answer is not of its form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ahcollector.store.base import LatestSample, RangeSeries, SeriesInfo

__all__ = [
    "read_edges",
    "read_labels",
    "read_latest",
    "read_names",
    "read_newest",
    "read_ranges",
    "read_samples",
]

Labels = tuple[tuple[str, str], ...]

_FIRST = ("__name__", "company_id", "server_id")


@attrs.frozen(kw_only=True)
class _Row:
    metric: Mapping[str, str]
    points: tuple[tuple[int, float], ...]


def _data(body: bytes) -> Any:
    answer = json.loads(body)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise ValueError("no answer of success")
    return answer.get("data")


def _rows(body: bytes) -> Iterator[_Row]:
    """Return the series of a vector or a matrix."""
    data = _data(body)
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        raise ValueError("no result")
    for row in data["result"]:
        try:
            pairs = row["values"] if "values" in row else [row["value"]]
            # Times are seconds with at most three decimals; a value is a string, for NaN's sake.
            points = tuple([(_ms(at), float(value)) for at, value in pairs])
            metric = _metric(row["metric"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"a series is not of its form ({error!r})") from error
        if not points:
            raise ValueError("a series has no point")
        yield _Row(metric=metric, points=points)


def _ms(seconds: float) -> int:
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is no time")
    return round(seconds * 1000)


def _metric(found: Any) -> Mapping[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("the labels of a series are no texts")
    return found


def _labels(metric: Mapping[str, str], name: str | None = None) -> Labels:
    """Return labels in the stored order."""
    whole = dict(metric) if name is None else {**metric, "__name__": name}
    first = [(label, whole.pop(label)) for label in _FIRST if label in whole]
    return (*first, *sorted(whole.items()))


def read_labels(body: bytes) -> list[Labels]:
    """Read a list of series."""
    data = _data(body)
    if not isinstance(data, list):
        raise ValueError("no list of series")
    return sorted(_labels(_metric(one)) for one in data)


def read_names(body: bytes) -> list[str]:
    """Read a list of names."""
    data = _data(body)
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError("no list of names")
    return sorted(data)


def read_ranges(body: bytes, *, name: str, last_ms: int) -> list[RangeSeries]:
    """Read a range; what is after `last_ms` was not asked for."""
    result = []
    for row in _rows(body):
        points = tuple([point for point in row.points if point[0] <= last_ms])
        if points:
            result.append(RangeSeries(labels=_labels(row.metric, name), points=points))
    return sorted(result, key=lambda series: series.labels)


def read_samples(body: bytes) -> list[RangeSeries]:
    """Read samples as they are stored."""
    return [RangeSeries(labels=_labels(row.metric), points=row.points) for row in _rows(body)]


def read_newest(body: bytes, *, since_ms: int) -> list[LatestSample]:
    """Take the newest of samples as they are stored."""
    result = []
    for series in read_samples(body):
        timestamp_ms, value = series.points[-1]
        if timestamp_ms >= since_ms:
            result.append(
                LatestSample(labels=series.labels, timestamp_ms=timestamp_ms, value=value)
            )
    return sorted(result, key=lambda sample: sample.labels)


def read_latest(body: bytes, *, mark: str) -> list[LatestSample]:
    """Read the newest values and their times, told apart by the label `mark`: value or time."""
    found = _marked(body, mark)
    return [
        LatestSample(labels=labels, timestamp_ms=_ms(both["time"]), value=both["value"])
        for labels, both in sorted(found.items())
        if both.keys() == {"time", "value"}
    ]


def read_edges(body: bytes, *, mark: str) -> list[SeriesInfo]:
    """Read first and last times, told apart by the label `mark`: first or last."""
    found = _marked(body, mark)
    return [
        SeriesInfo(labels=labels, first_ms=_ms(both["first"]), last_ms=_ms(both["last"]))
        for labels, both in sorted(found.items())
        if both.keys() == {"first", "last"}
    ]


def _marked(body: bytes, mark: str) -> dict[Labels, dict[str, float]]:
    found: dict[Labels, dict[str, float]] = {}
    for row in _rows(body):
        metric = dict(row.metric)
        kind = metric.pop(mark, "")
        found.setdefault(_labels(metric), {})[kind] = row.points[-1][1]
    return found
