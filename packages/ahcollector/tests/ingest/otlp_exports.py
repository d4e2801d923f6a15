"""Short ways to write what an OpenTelemetry sender sends."""

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
    Summary,
    SummaryDataPoint,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ahwire.codec import compress

PROTOBUF, JSON = "application/x-protobuf", "application/json"
NOW_MS = 1_790_000_000_000
NOW_NS = NOW_MS * 1_000_000
CUMULATIVE, DELTA = 2, 1
NO_RECORDED_VALUE = 1


def value(given):
    if isinstance(given, AnyValue):
        return given
    if isinstance(given, bool):
        return AnyValue(bool_value=given)
    if isinstance(given, int):
        return AnyValue(int_value=given)
    if isinstance(given, float):
        return AnyValue(double_value=given)
    if isinstance(given, bytes):
        return AnyValue(bytes_value=given)
    if isinstance(given, list):
        return AnyValue(array_value={"values": [value(one) for one in given]})
    if isinstance(given, dict):
        return AnyValue(kvlist_value={"values": attributes(given)})
    return AnyValue() if given is None else AnyValue(string_value=given)


def attributes(given):
    """From a mapping, or from pairs where a key comes twice."""
    pairs = given.items() if isinstance(given, dict) else given
    return [KeyValue(key=key, value=value(one)) for key, one in pairs]


def number(given, labels=(), *, ns=NOW_NS, **more):
    kind = {"as_int" if isinstance(given, int) else "as_double": given}
    return NumberDataPoint(time_unix_nano=ns, attributes=attributes(labels), **kind | more)


def gauge(name, *points, unit=""):
    return Metric(name=name, unit=unit, gauge=Gauge(data_points=points))


def total(name, *points, unit="", monotonic=True, temporality=CUMULATIVE):
    return Metric(
        name=name,
        unit=unit,
        sum=Sum(data_points=points, is_monotonic=monotonic, aggregation_temporality=temporality),
    )


def bucketed(bounds, counts, labels=(), *, ns=NOW_NS, **more):
    return HistogramDataPoint(
        **{
            "time_unix_nano": ns,
            "attributes": attributes(labels),
            "explicit_bounds": bounds,
            "bucket_counts": counts,
            "count": sum(counts),
            "sum": 1.5,
            **more,
        }
    )


def histogram(name, *points, unit="", temporality=CUMULATIVE):
    data = Histogram(data_points=points, aggregation_temporality=temporality)
    return Metric(name=name, unit=unit, histogram=data)


def summarised(quantiles, labels=(), *, ns=NOW_NS, count=3, **more):
    return SummaryDataPoint(
        time_unix_nano=ns,
        attributes=attributes(labels),
        count=count,
        sum=1.5,
        quantile_values=[
            SummaryDataPoint.ValueAtQuantile(quantile=key, value=one)
            for key, one in quantiles.items()
        ],
        **more,
    )


def summary(name, *points, unit=""):
    return Metric(name=name, unit=unit, summary=Summary(data_points=points))


def resource(*metrics, labels=(), scope="", version=""):
    return ResourceMetrics(
        resource=Resource(attributes=attributes(labels)),
        scope_metrics=[
            ScopeMetrics(scope=InstrumentationScope(name=scope, version=version), metrics=metrics)
        ],
    )


def export(*metrics, **of):
    """Of one resource and scope."""
    return ExportMetricsServiceRequest(resource_metrics=[resource(*metrics, **of)])


def reply_of(response):
    return ExportMetricsServiceResponse.FromString(response.content)


async def send(world, request, *, token=None, media=PROTOBUF, coding=None, **headers):
    if isinstance(request, ExportMetricsServiceRequest):
        if media == JSON:
            request = json_format.MessageToJson(request, use_integers_for_enums=True).encode()
        else:
            request = request.SerializeToString()
    if coding:
        request = compress(request, coding)
        headers["Content-Encoding"] = coding
    return await world.client.post(
        "/v1/metrics",
        content=request,
        headers={"Authorization": f"Bearer {token or world.token}", "Content-Type": media}
        | {name.replace("_", "-"): text for name, text in headers.items()},
    )


def stored(world):
    return {
        tuple(text for _, text in series.labels): series.points
        for batch in world.bus.batches
        for series in batch.series
    }
