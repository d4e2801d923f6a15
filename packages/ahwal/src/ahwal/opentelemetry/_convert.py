"""From the SDK's data to samples. Pure.

Law of this file: each data point becomes all of its samples, under the time the SDK gave it, or is
counted as refused with a reason.

Sums and gauges become one sample. Histograms become `_bucket` with `le`, `_sum` and `_count`, the
buckets cumulative. Exponential histograms become the same with powers of two as bounds: the finer
buckets of each are added up, which is exact, and bounds that do not depend on the scale of the
moment are what makes them comparable. Values of zero and below are together under `le="0.0"`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from attrs import field, frozen

from ahwal._sample import Sample
from ahwal.opentelemetry._names import label_value, labels_of
from ahwal.opentelemetry._sdk import data
from ahwire.otel_names import label_name, metric_name

_NS_PER_MS = 1_000_000

Key = tuple[str, frozenset[tuple[str, str]]]
# One data point as (suffix, further labels, value).
Parts = Iterator[tuple[str, Mapping[str, str], float]]


class Refused(StrEnum):
    """Why a data point is not exported."""

    DELTA = "delta"  # a difference to the export before, which a lost or repeated batch would break
    DUPLICATE = "duplicate"  # its name, labels and time are those of an earlier point
    UNKNOWN_KIND = "unknown_kind"  # a kind of data that this version does not know


@frozen(kw_only=True)
class Converted:
    """What became of one export.

    Attributes:
        samples: By the time of the data, Unix milliseconds, oldest first.
        refused: Data points by reason; only reasons that occurred.
    """

    samples: Mapping[int, Sequence[Sample]]
    refused: Mapping[Refused, int]


@frozen(kw_only=True)
class Converter:
    """Turns the data of exports into samples.

    Attributes:
        resource_labels: Keys of resource attributes, and the labels that they become.
        scope_labels: Whether the instrumentation scope becomes `otel_scope_name` and
            `otel_scope_version`.
    """

    resource_labels: Mapping[str, str] = field(factory=dict)
    scope_labels: bool = True

    def convert(self, metrics: "data.MetricsData", *, now_ms: int) -> Converted:
        """Return the samples of one export.

        Args:
            metrics: From the SDK.
            now_ms: Time for points that have none, Unix milliseconds.
        """
        collected = _Collected(now_ms=now_ms)
        for resource in metrics.resource_metrics:
            of_resource = self._of_resource(resource)
            for scope in resource.scope_metrics:
                common = {**of_resource, **self._of_scope(scope)}
                for metric in scope.metrics:
                    _convert_metric(metric, common, collected)
        return Converted(samples=dict(sorted(collected.samples.items())), refused=collected.refused)

    def _of_resource(self, resource: "data.ResourceMetrics") -> dict[str, str]:
        attributes = resource.resource.attributes
        return {
            label_name(label): label_value(attributes[key])
            for key, label in self.resource_labels.items()
            if key in attributes
        }

    def _of_scope(self, scope: "data.ScopeMetrics") -> dict[str, str]:
        if not self.scope_labels:
            return {}
        named = {"otel_scope_name": scope.scope.name, "otel_scope_version": scope.scope.version}
        return {name: text for name, text in named.items() if text}


class _Collected:
    """Samples and refusals of one export."""

    def __init__(self, *, now_ms: int) -> None:
        self._now_ms = now_ms
        self._seen: set[tuple[int, Key]] = set()
        self.samples: dict[int, list[Sample]] = {}
        self.refused: dict[Refused, int] = {}

    def refuse(self, reason: Refused, points: int = 1) -> None:
        if points:
            self.refused[reason] = self.refused.get(reason, 0) + points

    def add(self, time_ns: int | None, samples: list[Sample]) -> None:
        """Take all samples of one data point, or none."""
        time_ms = time_ns // _NS_PER_MS if time_ns else self._now_ms
        keys = {(time_ms, (s.name, frozenset(s.labels.items()))) for s in samples}
        if keys & self._seen:
            # The store would keep one of the two, and nobody could tell which.
            self.refuse(Refused.DUPLICATE)
            return
        self._seen |= keys
        self.samples.setdefault(time_ms, []).extend(samples)


def _convert_metric(
    metric: "data.Metric", common: Mapping[str, str], collected: _Collected
) -> None:
    found = metric.data
    unit = metric.unit or ""
    if not _is_known(found):
        collected.refuse(Refused.UNKNOWN_KIND, len(getattr(found, "data_points", ())) or 1)
        return
    temporality = getattr(found, "aggregation_temporality", data.AggregationTemporality.CUMULATIVE)
    if temporality != data.AggregationTemporality.CUMULATIVE:
        collected.refuse(Refused.DELTA, len(found.data_points))
        return
    name = metric_name(
        metric.name,
        unit,
        counter=isinstance(found, data.Sum) and found.is_monotonic,
        gauge=isinstance(found, data.Gauge),
    )
    for point in found.data_points:
        # The scope's and the resource's labels win: they tell whose series this is.
        labels = {**labels_of(point.attributes), **common}
        collected.add(
            point.time_unix_nano,
            [
                Sample(f"{name}{suffix}" if name else "", value, {**labels, **more})
                for suffix, more, value in _parts(point)
            ],
        )


def _is_known(found: object) -> bool:
    # The types say that there is no other kind; a later SDK may bring one.
    return isinstance(found, (data.Sum, data.Gauge, data.Histogram, data.ExponentialHistogram))


def _parts(
    point: "data.NumberDataPoint | data.HistogramDataPoint | data.ExponentialHistogramDataPoint",
) -> Parts:
    if isinstance(point, data.NumberDataPoint):
        yield "", {}, point.value
        return
    if isinstance(point, data.HistogramDataPoint):
        bounds = _explicit(point)
    else:
        bounds = _powers_of_two(point)
    for bound, count in bounds:
        yield "_bucket", {"le": repr(bound)}, count
    yield "_bucket", {"le": "+Inf"}, point.count
    # An SDK may leave the sum out, where values may be negative.
    if point.sum is not None:
        yield "_sum", {}, point.sum
    yield "_count", {}, point.count


def _explicit(point: "data.HistogramDataPoint") -> Iterator[tuple[float, int]]:
    """Yield finite upper bounds and how many values are at or below each."""
    total = 0
    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        total += count
        if math.isfinite(bound):
            yield float(bound), total


def _powers_of_two(point: "data.ExponentialHistogramDataPoint") -> Iterator[tuple[float, int]]:
    """Yield powers of two, from the smallest value's to the largest's, as `_explicit` does.

    At the scale s, bucket i holds what is above base ** i and at most base ** (i + 1), with the
    base 2 ** (2 ** -s). Halving the index once for each step of the scale leads to the scale 0,
    where the base is 2; a scale below 0 is coarser than that already.
    """
    total = point.zero_count + sum(point.negative.bucket_counts)
    steps = max(0, point.scale)
    width = 1 << max(0, -point.scale)
    counts: dict[int, int] = {}
    for place, count in enumerate(point.positive.bucket_counts):
        index = (point.positive.offset + place) >> steps
        counts[index] = counts.get(index, 0) + count
    filled = [index for index, count in counts.items() if count]
    yield 0.0, total
    if not filled:
        return
    for index in range(min(filled), max(filled) + 1):
        total += counts.get(index, 0)
        exponent = (index + 1) * width
        # Beyond these no float is a bound; what is there is in the bucket without one.
        if -1074 <= exponent <= 1023:
            yield math.ldexp(1.0, exponent), total
