"""What the SDK measures, as series of Prometheus; data comes from the real SDK."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    InMemoryMetricReader,
    MetricsData,
    NumberDataPoint,
)
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)

from ahwal.opentelemetry._convert import Converter, Refused
from ahwal.opentelemetry._names import label_value, labels_of
from ahwire.otel_names import label_name, metric_name

NOW_MS = 1_700_000_000_000


def convert(data, **options):
    return Converter(**{"scope_labels": False, **options}).convert(data, now_ms=NOW_MS)


def flat(data, **options):
    converted = convert(data, **options)
    assert not converted.refused
    return {
        (s.name, *sorted(s.labels.items())): s.value
        for samples in converted.samples.values()
        for s in samples
    }


def test_each_instrument_becomes_the_series_that_prometheus_users_expect(make_sdk):
    buckets = ExplicitBucketHistogramAggregation([0, 0.5, 10])
    sdk = make_sdk(views=[View(instrument_name="wait", aggregation=buckets)])
    sdk.meter.create_counter("shop.orders", unit="{order}").add(3, {"state": "open"})
    sdk.meter.create_up_down_counter("queue.items").add(-2)
    sdk.meter.create_gauge("load", unit="1").set(0.25)
    sdk.meter.create_observable_counter("cpu.time", [lambda _: [Observation(1.5)]], unit="s")
    sdk.meter.create_observable_up_down_counter("ram", [lambda _: [Observation(7)]], unit="By")
    sdk.meter.create_observable_gauge("heat", [lambda _: [Observation(21.5)]], unit="Cel")
    wait = sdk.meter.create_histogram("wait", unit="ms")
    for value in (0.5, 0.5, 3, 100):
        wait.record(value)
    assert flat(sdk.data()) == {
        ("shop_orders_total", ("state", "open")): 3,
        ("queue_items",): -2,
        ("load_ratio",): 0.25,
        ("cpu_time_seconds_total",): 1.5,
        ("ram_bytes",): 7,
        ("heat_celsius",): 21.5,
        ("wait_milliseconds_bucket", ("le", "0.0")): 0,
        ("wait_milliseconds_bucket", ("le", "0.5")): 2,
        ("wait_milliseconds_bucket", ("le", "10.0")): 3,
        ("wait_milliseconds_bucket", ("le", "+Inf")): 4,
        ("wait_milliseconds_sum",): 104,
        ("wait_milliseconds_count",): 4,
    }


def test_every_point_keeps_the_time_at_which_the_sdk_collected_it(sdk):
    sdk.meter.create_counter("a").add(1)
    sdk.meter.create_histogram("b").record(1)
    data = sdk.data()
    times = {
        point.time_unix_nano // 1_000_000
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert set(convert(data).samples) == times


def points_at(data, *times):
    """The same data with one gauge whose points have these times."""
    resource = data.resource_metrics[0]
    scope = resource.scope_metrics[0]
    points = [NumberDataPoint({"n": n}, 0, time, n) for n, time in enumerate(times)]
    metric = replace(scope.metrics[0], name="g", data=Gauge(points))
    return MetricsData([replace(resource, scope_metrics=[replace(scope, metrics=[metric])])])


def test_points_of_several_times_are_kept_apart_and_one_without_a_time_is_of_now(sdk):
    sdk.meter.create_counter("a").add(1)
    data = points_at(sdk.data(), 5_000_000, 3_999_999, 5_999_999, 0)
    found = convert(data).samples
    assert {at: [s.value for s in samples] for at, samples in found.items()} == {
        3: [1.0],
        5: [0.0, 2.0],
        NOW_MS: [3.0],
    }
    assert list(found) == sorted(found)


def test_deltas_are_refused_and_counted_and_the_rest_is_kept(make_sdk):
    delta = AggregationTemporality.DELTA
    sdk = make_sdk(preferred_temporality={Counter: delta, Histogram: delta})
    counter = sdk.meter.create_counter("a")
    counter.add(1, {"n": 1})
    counter.add(1, {"n": 2})
    sdk.meter.create_histogram("b").record(1)
    sdk.meter.create_up_down_counter("c").add(1)
    converted = convert(sdk.data())
    assert converted.refused == {Refused.DELTA: 3}
    assert [s.name for samples in converted.samples.values() for s in samples] == ["c"]


def test_a_kind_of_data_from_the_future_is_refused_and_counted(sdk):
    sdk.meter.create_counter("a").add(1)
    data = sdk.data()
    data.resource_metrics[0].scope_metrics[0].metrics[0] = replace(
        data.resource_metrics[0].scope_metrics[0].metrics[0], data=object()
    )
    assert convert(data).refused == {Refused.UNKNOWN_KIND: 1}


def test_two_points_of_one_series_are_not_both_kept(sdk):
    sdk.meter.create_gauge("a.b").set(1)
    sdk.meter.create_gauge("a/b").set(2)
    sdk.meter.create_histogram("h").record(1)
    sdk.meter.create_up_down_counter("h_count").add(5)
    converted = convert(sdk.data())
    assert converted.refused == {Refused.DUPLICATE: 2}


def test_scopes_and_chosen_resource_attributes_become_labels(make_sdk):
    sdk = make_sdk(resource={"deployment.environment": "test", "host.cpus": 4})
    sdk.provider.get_meter("library", "1.2").create_counter("a").add(1, {"job": "mine"})
    sdk.provider.get_meter("other").create_counter("a").add(2)
    chosen = {"service.name": "job", "host.cpus": "host.cpus", "missing": "missing"}
    assert flat(sdk.data(), scope_labels=True, resource_labels=chosen) == {
        (
            "a_total",
            ("host_cpus", "4"),
            ("job", "shop"),
            ("otel_scope_name", "library"),
            ("otel_scope_version", "1.2"),
        ): 1,
        ("a_total", ("host_cpus", "4"), ("job", "shop"), ("otel_scope_name", "other")): 2,
    }


def test_values_that_no_float_can_be_are_left_to_the_rule_for_samples(sdk):
    """C3."""
    for _ in range(2):
        sdk.meter.create_counter("huge").add(1 << 1023)  # their sum is an integer, and no float
        sdk.meter.create_up_down_counter("deep").add(-1.7e308)
    assert flat(sdk.data()) == {("huge_total",): math.inf, ("deep",): -math.inf}


VALUES = st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=30)


def histogram_of(values, aggregation):
    reader = InMemoryMetricReader()
    provider = MeterProvider(
        metric_readers=[reader],
        views=[View(instrument_name="*", aggregation=aggregation)],
        shutdown_on_exit=False,
    )
    histogram = provider.get_meter("t").create_histogram("h")
    for value in values:
        histogram.record(value)
    found = flat(reader.get_metrics_data())
    provider.shutdown()
    buckets = {labels[0][1]: v for (name, *labels), v in found.items() if name == "h_bucket"}
    assert found[("h_count",)] == len(values) == buckets["+Inf"]
    assert math.isclose(found[("h_sum",)], sum(values), abs_tol=1e-9)
    return buckets


@given(VALUES, st.sets(st.floats(0, 1e9), max_size=5))
def test_each_bucket_counts_the_values_at_or_below_its_bound(values, bounds):
    buckets = histogram_of(values, ExplicitBucketHistogramAggregation(sorted(bounds)))
    assert buckets == {repr(b): sum(v <= b for v in values) for b in bounds} | {"+Inf": len(values)}


@given(VALUES, st.sampled_from([2, 4, 20, 160]))
def test_an_exponential_histogram_is_exact_at_powers_of_two_whatever_its_scale(values, max_size):
    buckets = histogram_of(values, ExponentialBucketHistogramAggregation(max_size=max_size))
    assert "0.0" in buckets
    for text, count in buckets.items():
        bound = float(text)
        assert bound in (0, math.inf) or math.frexp(bound)[0] == 0.5
        assert count == sum(v <= bound for v in values)
    if max_size == 160 and min(values) > 1e-9:
        # No value is above the last bound, so that no quantile is lost.
        assert max(float(b) for b in buckets if b != "+Inf") >= max(values)


def test_negative_values_of_an_exponential_histogram_are_at_or_below_zero():
    sdk_view = View(instrument_name="*", aggregation=ExponentialBucketHistogramAggregation())
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], views=[sdk_view], shutdown_on_exit=False)
    up_down = provider.get_meter("t").create_up_down_counter("d")
    for value in (-3, -0.5, 0, 3):
        up_down.add(value)
    found = flat(reader.get_metrics_data())
    provider.shutdown()
    assert found[("d_bucket", ("le", "0.0"))] == 3
    assert found[("d_bucket", ("le", "4.0"))] == 4
    assert found[("d_sum",)] == -0.5


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("http.server.duration", "s", "", "http_server_duration_seconds"),
        ("http.server.duration_seconds", "s", "", "http_server_duration_seconds"),
        ("requests", "", "counter", "requests_total"),
        ("requests_total", "", "counter", "requests_total"),
        ("requests_total", "By", "counter", "requests_bytes_total"),
        ("requests", "1", "counter", "requests_total"),
        ("use", "1", "gauge", "use_ratio"),
        ("use_ratio", "1", "gauge", "use_ratio"),
        ("use", "1", "", "use"),
        ("speed", "m/s", "gauge", "speed_meters_per_second"),
        ("rate", "{packet}/s", "gauge", "rate_per_second"),
        ("rate", "1/s", "gauge", "rate_per_second"),
        ("x", "{order}", "gauge", "x"),
        ("x", "By{compressed}", "gauge", "x_bytes"),
        ("x", "furlong/fortnight", "gauge", "x_furlong_per_fortnight"),
        ("a--b..c", "", "", "a_b_c"),
        ("9lives", "", "counter", "_9lives_total"),
        ("größe", "", "", "gr_e"),
        ("", "s", "counter", ""),
        ("...", "s", "counter", ""),
        ("total", "", "counter", "total"),
        ("seconds", "s", "gauge", "seconds"),
    ],
)
def test_names_follow_opentelemetrys_rules_for_prometheus(name, unit, kind, expected):
    assert metric_name(name, unit, counter=kind == "counter", gauge=kind == "gauge") == expected


def test_attributes_of_every_type_become_text():
    assert [label_value(v) for v in ("ä", True, 5, 0.5, ("a", "b"), [1, 2], None)] == [
        "ä", "true", "5", "0.5", '["a","b"]', "[1,2]", "null",
    ]  # fmt: skip
    circular: list = []
    circular.append(circular)
    assert label_value(circular) == "list"
    assert [label_name(k) for k in ("http.method", "a__b", "1st", "a-b")] == [
        "http_method", "a_b", "key_1st", "a_b",
    ]  # fmt: skip
    assert labels_of({"a.b": "2", "a-b": 1, "c": "x"}) == {"a_b": "1;2", "c": "x"}
    assert labels_of(None) == {}


@given(st.text(max_size=20), st.text(max_size=10), st.booleans(), st.booleans())
def test_any_text_gives_a_name_that_can_be_stored_or_none(name, unit, counter, gauge):
    made = metric_name(name, unit, counter=counter, gauge=gauge)
    assert made == "" or (made.isascii() and made.isidentifier() and "__" not in made)
