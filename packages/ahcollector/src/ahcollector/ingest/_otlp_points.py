"""What one data point of OpenTelemetry means in series. Pure.

A number is one sample. A histogram is its standard Prometheus series: ``_bucket`` with cumulative
counts up to each ``le`` and ``+Inf``, ``_sum`` where it has one, and ``_count``. A summary is its
quantiles, ``_sum`` and ``_count``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import attrs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from ahcollector.ingest._otlp_labels import Unfit

__all__ = ["Part", "Point", "fault_of", "kept_free", "parts_of", "size_of"]

Point = NumberDataPoint | HistogramDataPoint | SummaryDataPoint

_NO_VALUE = "no_value"
_BAD_HISTOGRAM = "bad_histogram"


@attrs.frozen
class Part:
    """One sample of a data point.

    Attributes:
        suffix: Comes behind the metric's name.
        value: Of the sample.
        bound: Value of the label that `kept_free` names; empty for a sample without it.
    """

    suffix: str
    value: float
    bound: str = ""


def kept_free(point: Point) -> str:
    """Return the label that a kind of data needs for itself, or the empty text."""
    if isinstance(point, HistogramDataPoint):
        return "le"
    return "quantile" if isinstance(point, SummaryDataPoint) else ""


def size_of(point: Point) -> int:
    """Return how many samples a data point becomes at most, without looking at them."""
    if isinstance(point, HistogramDataPoint):
        return max(len(point.bucket_counts), len(point.explicit_bounds) + 1) + 2
    return len(point.quantile_values) + 2 if isinstance(point, SummaryDataPoint) else 1


def fault_of(point: Point) -> Unfit | None:
    """Return why a data point contradicts itself or says nothing, if it does."""
    if isinstance(point, NumberDataPoint):
        if point.WhichOneof("value") is None:
            return Unfit(code=_NO_VALUE, reason="a data point has no value: the sender is at fault")
        return None
    if isinstance(point, HistogramDataPoint):
        return _histogram_fault(point)
    return None


def _histogram_fault(point: HistogramDataPoint) -> Unfit | None:
    counts, bounds = point.bucket_counts, point.explicit_bounds
    fault = None
    if counts or bounds:
        if len(counts) != len(bounds) + 1:
            fault = f"it has {len(counts)} buckets for {len(bounds)} bounds, not one more"
        elif sum(counts) != point.count:
            fault = f"its buckets hold {sum(counts)} values and its count is {point.count}"
        elif not _rising(bounds):
            fault = "its bounds do not rise strictly"
    if fault is None:
        return None
    return Unfit(code=_BAD_HISTOGRAM, reason=f"{fault}: the sender is at fault")


def _rising(bounds: Iterable[float]) -> bool:
    last = -math.inf
    for place, bound in enumerate(bounds):
        if math.isnan(bound) or (place and bound <= last):
            return False
        last = bound
    return True


def parts_of(point: Point) -> Iterator[Part]:
    """Yield the samples of a data point that has no fault."""
    if isinstance(point, NumberDataPoint):
        yield Part("", point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)
        return
    if isinstance(point, HistogramDataPoint):
        yield from _buckets(point)
        if point.HasField("sum"):  # left out where values may be negative
            yield Part("_sum", point.sum)
    else:
        for one in point.quantile_values:
            yield Part("", one.value, repr(one.quantile))
        yield Part("_sum", point.sum)
    yield Part("_count", point.count)


def _buckets(point: HistogramDataPoint) -> Iterator[Part]:
    total = 0
    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        total += count
        if bound < math.inf:  # some senders write the last bound too
            yield Part("_bucket", total, repr(bound))
    yield Part("_bucket", point.count, "+Inf")
