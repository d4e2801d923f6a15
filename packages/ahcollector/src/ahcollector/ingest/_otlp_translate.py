"""From an OpenTelemetry export to a batch. Pure.

Law of this file: each data point becomes all of its samples, under its own time, or is counted with
a reason. A body is small and what it means may be large (one histogram with many buckets and long
labels), so everything is counted before it is made, and held to what a batch of ours may have.

One sample is one series of the batch, also where several points are of one series: the place of a
refused series so says which data point it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    ResourceMetrics,
    ScopeMetrics,
)

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._foreign import NAME_CHARS_SHOWN, Refused, Translated
from ahcollector.ingest._otlp_labels import Labeller, Labels, Unfit
from ahcollector.ingest._otlp_points import Point, fault_of, kept_free, parts_of, size_of
from ahwire.agent_pb2 import MetricsBatch, Series
from ahwire.batch import BAD_NAME, TOO_OLD
from ahwire.limits import Limits
from ahwire.otel_names import metric_name
from ahwire.status import Code

__all__ = ["NO_DATA_POINT", "Exported", "translate"]

NO_DATA_POINT = -1
"""The owner of a series that is not of the export's data, but of the resource."""

_NS_PER_MS = 1_000_000
_YEAR_NS = 366 * 24 * 3600 * 1_000_000_000
_TARGET = "target_info"
# Attributes of resources that may come for each point that may; they are few and looked through.
_RESOURCE_ATTRIBUTES_OVER = 10
# About what a sample takes beside its name and its labels, and a label beside its texts.
_SAMPLE_BYTES = 32
_LABEL_BYTES = 6

# What a time must be multiplied with to be in nanoseconds, by the unit that it seems to be in.
_WRONG_UNITS = (("seconds", 10**9), ("milliseconds", 10**6), ("microseconds", 10**3))

_DELTA = (
    "delta temporality; one lost or repeated request would make it wrong: send cumulative values "
    "(OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative, or the deltatocumulative "
    "processor)"
)
_NO_TEMPORALITY = "no temporality is given: the sender is at fault"
_EXPONENTIAL = (
    "exponential histograms are not stored: send histograms with explicit bounds "
    "(OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION=explicit_bucket_histogram)"
)
_UNKNOWN_KIND = "it has no data of a kind that is known here"
_NO_NAME = "nothing of its name can stay: give it one with letters or digits"
_NO_TIME = "a data point has no time: the sender is at fault"
_DUPLICATE = (
    "its name, labels and time are those of an earlier point of the request: tell them apart by an "
    "attribute"
)
_SHADOWED = (
    "attributes left out: their label was there already, from another attribute, the resource, the "
    "scope or the kind of data"
)
_STALE = "no value was recorded"
_NAN = "no value"


@attrs.frozen(kw_only=True)
class Exported:
    """What an export means.

    Attributes:
        translated: For the common entry.
        owners: The data point of each series of the batch, as a number, or NO_DATA_POINT.
        warnings: Sentences for the sender's log.
    """

    translated: Translated
    owners: Sequence[int]
    warnings: tuple[str, ...]


def translate(
    request: ExportMetricsServiceRequest, *, now_ms: int, limits: Limits, bytes_max: int
) -> Exported:
    """Return what an export means; stays as it is.

    Args:
        request: As it came.
        now_ms: Unix milliseconds, to name a wrong unit.
        limits: What batches are held to.
        bytes_max: About how large the batch may become.

    Raises:
        RequestRefusedError: too_large: more than a batch may have.
    """
    pieces_max = limits.points_per_batch
    _refuse_over(len(request.resource_metrics), pieces_max, "resources")
    attributes = sum(len(one.resource.attributes) for one in request.resource_metrics)
    _refuse_over(attributes, _RESOURCE_ATTRIBUTES_OVER * pieces_max, "attributes of resources")
    # Counted level by level: to make an object of each of millions of empty ones takes minutes.
    scopes = sum(len(one.scope_metrics) for one in request.resource_metrics)
    _refuse_over(scopes, pieces_max, "scopes")
    metrics = sum(len(s.metrics) for one in request.resource_metrics for s in one.scope_metrics)
    _refuse_over(metrics, pieces_max, "metrics")
    translation = _Translation(now_ms=now_ms, limits=limits, bytes_max=bytes_max)
    for resource in request.resource_metrics:
        translation.resource(resource)
    return translation.result()


def _refuse_over(count: int, most: int, what: str) -> None:
    if count > most:
        raise RequestRefusedError(
            Code.TOO_LARGE, f"the request has over {most} {what}: send less at once"
        )


class _Translation:
    """The work on one request."""

    def __init__(self, *, now_ms: int, limits: Limits, bytes_max: int) -> None:
        self._now_ns = now_ms * _NS_PER_MS
        self._limits = limits
        self._bytes_max = bytes_max
        self._bytes_left = bytes_max
        self._labeller = Labeller(limits=limits)
        self._batch = MetricsBatch()
        self._owners: list[int] = []
        self._data_points = 0
        self._refused: Counter[tuple[str, str]] = Counter()
        self._stale = 0
        self._nan = 0
        self._label_sets: dict[tuple[tuple[str, str], ...], int] = {}
        self._seen: set[tuple[int, int, str, str]] = set()

    def result(self) -> Exported:
        shadowed = self._labeller.shadowed
        passed_over = (
            Refused(reason=_STALE, code="stale_marker", points=self._stale),
            Refused(reason=_NAN, code="not_a_number", points=self._nan),
        )
        return Exported(
            translated=Translated(
                batch=self._batch,
                refused=tuple(
                    Refused(reason=reason, code=code, points=points)
                    for (reason, code), points in self._refused.items()
                ),
                passed_over=tuple(one for one in passed_over if one.points),
            ),
            owners=self._owners,
            warnings=(f"{shadowed} {_SHADOWED}",) if shadowed else (),
        )

    def resource(self, resource: ResourceMetrics) -> None:
        attributes = resource.resource.attributes
        identity = self._labeller.of_resource(attributes)
        newest_ns = 0
        for scope in resource.scope_metrics:
            above = _joined(identity, self._labeller.of_scope(scope.scope))
            newest_ns = max(newest_ns, self._scope(scope, above))
        if newest_ns and isinstance(identity, dict) and identity:
            target = self._labeller.of_target(attributes, identity)
            # With nothing but the identity it would say nothing.
            if isinstance(target, dict) and len(target) > len(identity):
                self._target(target, newest_ns)

    def _scope(self, scope: ScopeMetrics, above: Labels | Unfit) -> int:
        """Translate a scope; return the newest time of what was taken of it, 0 for none."""
        newest_ns = 0
        for metric in scope.metrics:
            points, unfit = _data_of(metric)
            _refuse_over(self._data_points + len(points), self._limits.points_per_batch, "points")
            if unfit is not None:
                self._data_points += len(points)
                self._refuse(metric, unfit, len(points))
                continue
            name = _name_of(metric)
            for point in points:
                self._data_points += 1
                fault = self._point(name, point, above)
                if fault is None:
                    newest_ns = max(newest_ns, point.time_unix_nano)
                else:
                    self._refuse(metric, fault)
        return newest_ns

    def _point(self, name: str, point: Point, above: Labels | Unfit) -> Unfit | None:
        """Take a data point; or return why not."""
        if point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            self._stale += 1
            return None
        if isinstance(above, Unfit):
            return above
        if not name:
            return Unfit(code=BAD_NAME, reason=_NO_NAME)
        _refuse_over(len(self._owners) + size_of(point), self._limits.points_per_batch, "samples")
        unfit = self._time_fault(point.time_unix_nano) or fault_of(point)
        if unfit is not None:
            return unfit
        own = kept_free(point)
        labels = self._labeller.of_point(point.attributes, above, kept_free=own)
        if isinstance(labels, Unfit):
            return labels
        return self._samples(name, point, labels, own)

    def _samples(self, name: str, point: Point, labels: Labels, own: str) -> Unfit | None:
        time_ms = point.time_unix_nano // _NS_PER_MS
        self._spend(size_of(point), name, labels)
        plain = self._plain(labels)
        label_set = self._label_set(labels)
        every = list(parts_of(point))
        # Not a number says that there is no value, as a quantile of what observed nothing.
        parts = [part for part in every if not math.isnan(part.value)]
        keys = [(label_set, time_ms, name + part.suffix, part.bound) for part in parts]
        if not self._seen.isdisjoint(keys):
            # The store would keep one of the two, and nobody could tell which.
            return Unfit(code="duplicate", reason=_DUPLICATE)
        self._seen.update(keys)
        self._nan += len(every) - len(parts)
        for part in parts:
            series = self._batch.series.add()
            series.CopyFrom(plain)
            series.name = name + part.suffix
            if part.bound:
                series.labels.add(name=own, value=part.bound)
            series.points.add(ts_ms=time_ms, value=part.value)
            self._owners.append(self._data_points)
        return None

    def _target(self, labels: Labels, time_ns: int) -> None:
        """Add the resource's ``target_info``, once for each of its times."""
        _refuse_over(len(self._owners) + 1, self._limits.points_per_batch, "samples")
        self._spend(1, _TARGET, labels)
        key = (self._label_set(labels), time_ns // _NS_PER_MS, _TARGET, "")
        if key in self._seen:
            return
        self._seen.add(key)
        series = self._batch.series.add()
        series.CopyFrom(self._plain(labels))
        series.name = _TARGET
        series.points.add(ts_ms=time_ns // _NS_PER_MS, value=1.0)
        self._owners.append(NO_DATA_POINT)

    def _spend(self, samples: int, name: str, labels: Labels) -> None:
        texts = sum(len(key) + len(text) + _LABEL_BYTES for key, text in labels.items())
        self._bytes_left -= samples * (_SAMPLE_BYTES + len(name) + texts)
        if self._bytes_left < 0:
            raise RequestRefusedError(
                Code.TOO_LARGE,
                f"the request comes to over {self._bytes_max} bytes of series: send less at once",
            )

    def _plain(self, labels: Labels) -> Series:
        series = Series()
        for name, text in labels.items():
            series.labels.add(name=name, value=text)
        return series

    def _label_set(self, labels: Labels) -> int:
        """Return a number that stands for labels, in whatever order they are."""
        return self._label_sets.setdefault(tuple(sorted(labels.items())), len(self._label_sets))

    def _time_fault(self, time_ns: int) -> Unfit | None:
        if not time_ns:
            return Unfit(code="no_time", reason=_NO_TIME)
        for unit, factor in _WRONG_UNITS:
            if abs(time_ns * factor - self._now_ns) <= _YEAR_NS:
                return Unfit(
                    code=TOO_OLD,
                    reason=f"time_unix_nano {time_ns} looks like {unit}: send Unix nanoseconds",
                )
        return None

    def _refuse(self, metric: Metric, unfit: Unfit, points: int = 1) -> None:
        if not points:
            return
        name = metric.name[:NAME_CHARS_SHOWN]
        self._refused[f"metric {name!r}: {unfit.reason}", unfit.code] += points


def _joined(identity: Labels | Unfit, scope: Labels | Unfit) -> Labels | Unfit:
    if isinstance(identity, Unfit):
        return identity
    return scope if isinstance(scope, Unfit) else {**identity, **scope}


def _name_of(metric: Metric) -> str:
    kind = metric.WhichOneof("data")
    return metric_name(
        metric.name,
        metric.unit,
        counter=kind == "sum" and metric.sum.is_monotonic,
        gauge=kind == "gauge",
    )


def _data_of(metric: Metric) -> tuple[Sequence[Any], Unfit | None]:
    """Return the data points of a metric, and why none of them can be stored, if so."""
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        return metric.gauge.data_points, None
    if kind == "sum":
        return metric.sum.data_points, _temporality_fault(metric.sum.aggregation_temporality)
    if kind == "histogram":
        histogram = metric.histogram
        return histogram.data_points, _temporality_fault(histogram.aggregation_temporality)
    if kind == "summary":
        return metric.summary.data_points, None
    if kind == "exponential_histogram":
        unfit = Unfit(code="exponential_histogram", reason=_EXPONENTIAL)
        return metric.exponential_histogram.data_points, unfit
    # How many points there are is not known; there is one at least, or nobody would have sent it.
    return (None,), Unfit(code="unknown_kind", reason=_UNKNOWN_KIND)


def _temporality_fault(temporality: int) -> Unfit | None:
    if temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE:
        return None
    if temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA:
        return Unfit(code="delta", reason=_DELTA)
    return Unfit(code="no_temporality", reason=_NO_TEMPORALITY)
