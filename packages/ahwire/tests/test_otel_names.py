"""Names that OpenTelemetry's metrics and attributes have in the store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahwire.names import normalise_name
from ahwire.otel_names import label_name, metric_name

units = st.sampled_from(
    [
        "",
        "1",
        "s",
        "ms",
        "By",
        "By/s",
        "{request}",
        "{request}/s",
        "%",
        "Cel",
        "m/s",
        "1/s",
        "kg",
        " ",
    ]
) | st.text(max_size=6)


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("http.server.duration", "s", {}, "http_server_duration_seconds"),
        ("http.server.duration", "ms", {}, "http_server_duration_milliseconds"),
        ("process_seconds", "s", {}, "process_seconds"),
        ("orders", "{order}", {"counter": True}, "orders_total"),
        ("orders_total", "", {"counter": True}, "orders_total"),
        ("cpu.time", "s", {"counter": True}, "cpu_time_seconds_total"),
        ("cpu.time_total", "s", {"counter": True}, "cpu_time_seconds_total"),
        ("total", "", {"counter": True}, "total"),
        ("load", "1", {"gauge": True}, "load_ratio"),
        ("load", "1", {}, "load"),
        ("rate", "By/s", {}, "rate_bytes_per_second"),
        ("rate", "1/s", {}, "rate_per_second"),
        ("rate", "foo/bar", {}, "rate_foo_per_bar"),
        ("a..b__c", "", {}, "a_b_c"),
        (".a.", "", {}, "a"),
        ("9lives", "", {}, "_9lives"),
        ("日本", "s", {}, ""),
        ("", "s", {}, ""),
    ],
)
def test_metric_names_are_those_of_the_compatibility_specification(name, unit, kind, expected):
    assert metric_name(name, unit, **kind) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("http.method", "http_method"),
        ("a.-b", "a_b"),
        ("_a", "_a"),
        ("__a", "_a"),
        ("5xx", "key_5xx"),
        ("a_", "a_"),
        ("", ""),
    ],
)
def test_label_names_are_those_of_the_compatibility_specification(key, expected):
    assert label_name(key) == expected


@given(name=st.text(max_size=20), unit=units, counter=st.booleans(), gauge=st.booleans())
def test_a_metric_name_needs_no_further_normalising(name, unit, counter, gauge):
    made = metric_name(name, unit, counter=counter, gauge=gauge)
    assert normalise_name(made) == made
    assert "__" not in made


@given(key=st.text(max_size=20))
def test_a_label_name_needs_no_further_normalising(key):
    assert normalise_name(label_name(key)) == label_name(key)
