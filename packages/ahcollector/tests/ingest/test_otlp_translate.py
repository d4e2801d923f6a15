"""From an OpenTelemetry export to a batch: every data point is all of its samples, or counted."""

import math
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Metric,
    NumberDataPoint,
)
from otlp_exports import (
    DELTA,
    NO_RECORDED_VALUE,
    NOW_MS,
    NOW_NS,
    bucketed,
    export,
    gauge,
    histogram,
    number,
    resource,
    summarised,
    summary,
    total,
    value,
)

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._otlp_labels import text_of
from ahcollector.ingest._otlp_translate import NO_DATA_POINT, translate
from ahwire.limits import DEFAULT, Limits

BYTES_MAX = 8 << 20


def exported(request, *, limits=DEFAULT, bytes_max=BYTES_MAX):
    return translate(request, now_ms=NOW_MS, limits=limits, bytes_max=bytes_max)


def samples(request, **more):
    """{(name, labels): value}, of an export with no time twice."""
    found = {}
    for series in exported(request, **more).translated.batch.series:
        (point,) = series.points
        key = (series.name, tuple((label.name, label.value) for label in series.labels))
        assert key not in found
        found[key] = point.value
    return found


def refused(request, **more):
    found = Counter()
    for one in exported(request, **more).translated.refused:
        found[one.code] += one.points
    return dict(found)


def test_numbers_are_one_sample_each():
    request = export(
        gauge("load", number(0.5, {"cpu": 1}), number(2, {"cpu": 2})),
        total("orders", number(7), unit="{order}"),
        total("queue.size", number(-3), unit="By", monotonic=False),
    )
    assert samples(request) == {
        ("load", (("cpu", "1"),)): 0.5,
        ("load", (("cpu", "2"),)): 2.0,
        ("orders_total", ()): 7.0,
        ("queue_size_bytes", ()): -3.0,
    }


def test_a_histogram_is_its_standard_series():
    point = bucketed([0.005, 5, 1e16], [1, 0, 2, 4], {"path": "/"}, sum=12.5)
    path = ("path", "/")
    assert samples(export(histogram("wait", point, unit="ms"))) == {
        ("wait_milliseconds_bucket", (path, ("le", "0.005"))): 1.0,
        ("wait_milliseconds_bucket", (path, ("le", "5.0"))): 1.0,
        ("wait_milliseconds_bucket", (path, ("le", "1e+16"))): 3.0,
        ("wait_milliseconds_bucket", (path, ("le", "+Inf"))): 7.0,
        ("wait_milliseconds_sum", (path,)): 12.5,
        ("wait_milliseconds_count", (path,)): 7.0,
    }


def test_a_histogram_without_a_sum_or_buckets_has_none():
    point = bucketed([], [], count=4, sum=None)
    assert samples(export(histogram("h", point))) == {
        ("h_bucket", (("le", "+Inf"),)): 4.0,
        ("h_count", ()): 4.0,
    }


def test_a_last_bound_of_infinity_is_the_last_bucket_and_no_other():
    assert samples(export(histogram("h", bucketed([1, math.inf], [1, 2, 0], sum=None)))) == {
        ("h_bucket", (("le", "1.0"),)): 1.0,
        ("h_bucket", (("le", "+Inf"),)): 3.0,
        ("h_count", ()): 3.0,
    }


@pytest.mark.parametrize(
    ("bounds", "counts", "more"),
    [
        ([1, 2], [1, 2], {}),
        ([1], [1, 2, 3], {}),
        ([1], [], {"count": 0}),
        ([], [1, 2], {}),
        ([1, 1], [1, 1, 1], {}),
        ([2, 1], [1, 1, 1], {}),
        ([math.nan], [1, 1], {}),
        ([1, math.nan], [1, 1, 1], {}),
        ([1], [1, 1], {"count": 3}),
        ([1], [2**64 - 1, 2**64 - 1], {"count": 2**64 - 2}),
    ],
)
def test_a_histogram_that_contradicts_itself_is_refused_whole(bounds, counts, more):
    request = export(histogram("h", bucketed(bounds, counts, **{"count": sum(counts), **more})))
    assert refused(request) == {"bad_histogram": 1}
    assert not samples(request)


def test_a_summary_is_its_quantiles_sum_and_count():
    assert samples(export(summary("rpc", summarised({0.5: 1.0, 1.0: 9.0}), unit="s"))) == {
        ("rpc_seconds", (("quantile", "0.5"),)): 1.0,
        ("rpc_seconds", (("quantile", "1.0"),)): 9.0,
        ("rpc_seconds_sum", ()): 1.5,
        ("rpc_seconds_count", ()): 3.0,
    }


@pytest.mark.parametrize(
    ("metric", "code"),
    [
        (total("m", number(1), number(2), temporality=DELTA), "delta"),
        (histogram("m", bucketed([], []), bucketed([], []), temporality=DELTA), "delta"),
        (total("m", number(1), number(2), temporality=0), "no_temporality"),
        (total("m", number(1), number(2), temporality=77), "no_temporality"),
        (
            Metric(
                name="m",
                exponential_histogram=ExponentialHistogram(
                    data_points=[ExponentialHistogramDataPoint(count=1)] * 2,
                    aggregation_temporality=2,
                ),
            ),
            "exponential_histogram",
        ),
        (gauge("m", number(1, ns=0), number(2, ns=0)), "no_time"),
        (gauge("m", *[NumberDataPoint(time_unix_nano=NOW_NS)] * 2), "no_value"),
        (gauge("日本", number(1), number(2)), "bad_name"),
        (histogram("", bucketed([], []), bucketed([], [])), "bad_name"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.WhichOneof("data"),
)
def test_what_has_no_meaning_here_is_refused_with_a_reason_and_the_rest_is_kept(metric, code):
    request = export(metric, gauge("good", number(1)))
    assert refused(request) == {code: 2}
    (one,) = exported(request).translated.refused
    assert one.reason.startswith(f"metric {metric.name!r}: ")
    assert samples(request) == {("good", ()): 1.0}


def test_a_kind_of_data_of_a_later_version_counts_as_one():
    assert refused(export(Metric(name="m"), gauge("good", number(1)))) == {"unknown_kind": 1}


@pytest.mark.parametrize(
    ("unit", "per_second"), [("seconds", 1), ("milliseconds", 10**3), ("microseconds", 10**6)]
)
def test_c7_a_time_in_a_wrong_unit_is_named(unit, per_second):
    request = export(gauge("m", number(1, ns=NOW_MS // 1000 * per_second)))
    (one,) = exported(request).translated.refused
    assert (one.code, one.points) == ("too_old", 1)
    assert f"looks like {unit}: send Unix nanoseconds" in one.reason


@pytest.mark.parametrize("ns", [1, 10**6, NOW_NS - 10**18, NOW_NS + 999_999, 2**63 - 1, 2**64 - 1])
def test_c7_other_times_are_left_to_the_common_judgement_in_milliseconds(ns):
    (series,) = exported(export(gauge("m", number(1, ns=ns)))).translated.batch.series
    assert series.points[0].ts_ms == ns // 10**6


def test_a_point_without_a_recorded_value_is_passed_over_and_counted():
    request = export(
        gauge("g", NumberDataPoint(time_unix_nano=NOW_NS, flags=NO_RECORDED_VALUE)),
        histogram("h", bucketed([1], [], flags=NO_RECORDED_VALUE)),
        summary("s", summarised({}, flags=NO_RECORDED_VALUE | 2)),
    )
    found = exported(request).translated
    assert not found.refused
    assert not found.batch.series
    assert [(one.code, one.points) for one in found.passed_over] == [("stale_marker", 3)]


def test_resource_and_scope_say_whose_series_it_is():
    request = export(
        gauge("m", number(1, {"job": "mine", "otel.scope.name": "mine", "a": "1"})),
        labels={
            "service.name": "shop",
            "service.namespace": "eu",
            "service.instance.id": "pod-1",
            "service.version": "2",
            "process.pid": 5,
        },
        scope="shop.web",
        version="0.1",
    )
    identity = (("job", "eu/shop"), ("instance", "pod-1"))
    scope = (("otel_scope_name", "shop.web"), ("otel_scope_version", "0.1"))
    assert samples(request) == {
        ("m", (*identity, *scope, ("a", "1"))): 1.0,
        ("target_info", (*identity, ("service_version", "2"), ("process_pid", "5"))): 1.0,
    }
    (warning,) = exported(request).warnings
    assert warning.startswith("2 attributes left out")


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        ({"service.name": "shop"}, "shop"),
        ({"service.name": "shop", "service.namespace": ""}, "shop"),
        ([("service.name", "first"), ("service.name", "second")], "first"),
        ({"service.namespace": "eu"}, None),
        ({"service.name": ""}, None),
        ({"job": "shop", "service_name": "shop"}, None),
    ],
)
def test_the_job_is_the_service(labels, job):
    ((_, found),) = samples(export(gauge("m", number(1)), labels=labels))
    assert dict(found).get("job") == job


def test_target_info_has_the_newest_time_and_no_owner_and_comes_once():
    labels = {"service.name": "shop", "host.name": "h"}
    request = ExportMetricsServiceRequest(
        resource_metrics=[
            resource(gauge("a", number(1, ns=NOW_NS - 10**9), number(2)), labels=labels),
            resource(gauge("b", number(3)), labels=labels),
        ]
    )
    found = exported(request)
    infos = [series for series in found.translated.batch.series if series.name == "target_info"]
    assert [point.ts_ms for series in infos for point in series.points] == [NOW_MS]
    assert list(found.owners) == [1, 2, NO_DATA_POINT, 3]


@pytest.mark.parametrize(
    ("labels", "metric"),
    [
        ({"host.name": "h"}, gauge("m", number(1))),
        ({"service.name": "shop"}, gauge("m", number(1))),
        ({"service.name": "shop", "host.name": "h"}, gauge("m", number(1, ns=0))),
        ({"service.name": "s", **{f"a{n}": "x" for n in range(27)}}, gauge("m", number(1))),
        ({"service.name": "s", **{f"a{n}": "x" for n in range(99)}}, gauge("m", number(1))),
        (
            {"service.name": "s", "a": "x", **{f"a{n}": "x" * 2000 for n in range(99)}},
            gauge("m", number(1)),
        ),
    ],
    ids=[
        "no service",
        "nothing more",
        "nothing taken",
        "28 labels",
        "100 attributes",
        "100 long ones",
    ],
)
def test_no_target_info_where_it_would_say_nothing_or_could_not_be_stored(labels, metric):
    assert "target_info" not in {name for name, _ in samples(export(metric, labels=labels))}


def test_an_attribute_of_the_resource_too_long_for_a_label_is_left_out_of_target_info():
    labels = {"service.name": "shop", "process.command_line": "x" * 2000, "host.name": "h"}
    found = samples(export(gauge("m", number(1)), labels=labels))
    assert ("target_info", (("job", "shop"), ("host_name", "h"))) in found


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("text", "text"),
        (True, "true"),
        (5, "5"),
        (0.5, "0.5"),
        (math.inf, "Infinity"),
        (b"\x00\xff", "AP8="),
        (["a", 1, None, [True]], '["a",1,null,[true]]'),
        ({"k": "é", "n": {"m": b"\x00"}}, '{"k":"é","n":{"m":"AA=="}}'),
        (None, ""),
        ("", ""),
        ([], "[]"),
    ],
)
def test_values_of_attributes_are_text_or_json(given, text):
    assert text_of(value(given), 1024) == text


@pytest.mark.parametrize(
    "given",
    [
        "x" * 1025,
        "é" * 513,
        b"x" * 769,
        b"x" * 2000,
        [b"x" * 2000],
        [0] * 600,
        [[]] * 100_000,
        {"k" * 2000: 1},
        [{"k": "x" * 2000}, *[1] * 100_000],
    ],
)
def test_a_value_too_long_for_a_label_has_no_text(given):
    assert text_of(value(given), 1024) is None


def test_a_value_at_the_limit_is_a_label():
    assert text_of(value("é" * 512), 1024) == "é" * 512
    assert text_of(value(b"x" * 768), 1024) is not None


def test_of_attributes_that_give_one_label_the_first_wins_and_a_warning_says_so():
    request = export(gauge("m", number(1, [("a.b", "1"), ("a-b", "2"), ("a_b", "3")])))
    assert samples(request) == {("m", (("a_b", "1"),)): 1.0}
    (warning,) = exported(request).warnings
    assert warning.startswith("2 attributes left out")


def test_le_and_quantile_are_the_data_s_own():
    request = export(
        histogram("h", bucketed([], [], {"le": "7"}, count=1, sum=None)),
        summary("s", summarised({0.5: 1.0}, {"quantile": "7"})),
        gauge("g", number(1, {"le": "7", "quantile": "8"})),
    )
    assert samples(request) == {
        ("h_bucket", (("le", "+Inf"),)): 1.0,
        ("h_count", ()): 1.0,
        ("s", (("quantile", "0.5"),)): 1.0,
        ("s_sum", ()): 1.5,
        ("s_count", ()): 3.0,
        ("g", (("le", "7"), ("quantile", "8"))): 1.0,
    }


def test_c5_reserved_labels_are_gone_before_points_are_told_apart():
    request = export(
        gauge("m", number(1, {"company.id": "globex"}), number(2, {"Server_ID": "x", "": "y"}))
    )
    assert samples(request) == {("m", ()): 1.0}
    assert refused(request) == {"duplicate": 1}


def test_points_of_one_series_at_two_times_are_both_kept():
    found = exported(export(gauge("m", number(1), number(2, ns=NOW_NS - 10**9))))
    assert len(found.translated.batch.series) == 2
    assert not found.translated.refused


def test_a_duplicate_is_one_in_whatever_order_its_attributes_are():
    request = export(
        gauge("m", number(1, [("a", "1"), ("b", "2")]), number(2, [("b", "2"), ("a", "1")])),
        histogram("h", bucketed([1], [1, 1])),
        total("h_count", number(9), monotonic=False),
    )
    assert refused(request) == {"duplicate": 2}
    assert samples(request)["h_count", ()] == 2.0


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ({f"a{n}": "x" for n in range(28)}, "too_many_labels"),
        ({f"a{n}": "x" for n in range(100_000)}, "too_many_labels"),
        ([("a", "x")] * 100_000, "too_many_labels"),
        ({"a": "x" * 1025}, "too_long"),
        ({"k" * 201: "x"}, "too_long"),
    ],
    ids=["28", "100,000", "100,000 times one", "long value", "long key"],
)
def test_c4_labels_over_a_limit_are_refused_before_they_are_multiplied(labels, code):
    point = bucketed(range(1000), [0] * 1001, labels)
    assert refused(export(histogram("h", point))) == {code: 1}


def test_c4_as_many_labels_as_may_be_are_taken():
    labels = {f"a{n}": "x" for n in range(27)}
    assert not refused(export(gauge("m", number(1, labels))))
    del labels["a26"]  # the place of le
    assert not refused(export(histogram("h", bucketed([], [], labels))))
    labels["a26"] = "x"
    assert refused(export(histogram("h", bucketed([], [], labels)))) == {"too_many_labels": 1}


@pytest.mark.parametrize("where", ["service.name", "scope"])
def test_a_resource_or_scope_over_a_limit_refuses_its_points(where):
    of = {"scope": "x" * 1025} if where == "scope" else {"labels": {where: "x" * 1025}}
    assert refused(export(gauge("m", number(1), number(2, {"a": "b"})), **of)) == {"too_long": 2}


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (export(gauge("m", *[number(n, {"a": n}) for n in range(11)])), "points"),
        (export(histogram("h", bucketed(range(9), [0] * 10))), "samples"),
        (export(histogram("h", bucketed([], [0] * 1_000_000))), "samples"),
        (export(*[Metric()] * 11), "metrics"),
        (export(*[total("m", number(1), number(2), temporality=DELTA)] * 6), "points"),
        (ExportMetricsServiceRequest(resource_metrics=[{}] * 11), "resources"),
        (
            ExportMetricsServiceRequest(resource_metrics=[{"scope_metrics": [{}] * 6}] * 2),
            "scopes",
        ),
        (export(labels=[("a", 1)] * 101), "attributes of resources"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_more_than_a_batch_may_have_is_too_large(request_, what):
    with pytest.raises(RequestRefusedError, match=f"over 1?[01]0 {what}: send less") as refusal:
        exported(request_, limits=Limits(points_per_batch=10))
    assert refusal.value.code == "too_large"


def test_a_small_body_that_would_become_a_large_batch_is_too_large():
    labels = {f"a{n}": "x" * 1000 for n in range(20)}
    point = bucketed(range(10_000), [0] * 10_001, labels)
    with pytest.raises(RequestRefusedError, match="bytes of series") as refusal:
        exported(export(histogram("h", point)))
    assert refusal.value.code == "too_large"


points = st.one_of(
    st.builds(number, st.floats(), st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))),
    st.just(NumberDataPoint(time_unix_nano=NOW_NS)),
    st.just(NumberDataPoint(time_unix_nano=NOW_NS, flags=NO_RECORDED_VALUE)),
    st.builds(number, st.just(1), ns=st.sampled_from([0, 1, NOW_NS, NOW_NS + 1, NOW_MS])),
)
metrics = st.one_of(
    st.builds(lambda name, found: gauge(name, *found), st.sampled_from("mn"), st.lists(points)),
    st.builds(
        lambda found, temporality: total("m", *found, temporality=temporality),
        st.lists(points),
        st.integers(0, 3),
    ),
    st.builds(
        lambda found: histogram("h", *found),
        st.lists(st.builds(bucketed, st.just([1.0]), st.lists(st.integers(0, 3), max_size=3))),
    ),
)


@given(found=st.lists(metrics, max_size=4))
@example(found=[])
def test_every_data_point_is_stored_refused_or_passed_over(found):
    sent = sum(len(getattr(metric, metric.WhichOneof("data")).data_points) for metric in found)
    made = exported(export(*found))
    left_out = (*made.translated.refused, *made.translated.passed_over)
    assert len(made.owners) == len(made.translated.batch.series)
    assert len(set(made.owners)) + sum(one.points for one in left_out) == sent


@given(
    structure=st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats()
        | st.text()
        | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    bytes_max=st.integers(1, 100),
)
def test_the_text_of_a_value_is_never_over_the_limit(structure, bytes_max):
    text = text_of(value(structure), bytes_max)
    assert text is None or len(text.encode()) <= bytes_max


def test_a_value_of_a_kind_of_a_later_version_is_empty():
    assert text_of(AnyValue.FromString(b"\x7a\x01x"), 10) == ""
