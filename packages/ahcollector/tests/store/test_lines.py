"""What is sent to VictoriaMetrics: exactly what was given, or a refusal, or a count."""

import gzip
import json
import math
import struct
from collections import Counter

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.errors import PermanentStoreError
from ahcollector.store._lines import (
    SERIES_BYTES_MAX,
    Window,
    check_labels,
    import_lines,
    kept_series,
    series_bytes,
)
from ahcollector.store._write_forms import ImportForm, RemoteWriteForm
from ahcollector.testing._contracts.store import samples
from ahwire.remote_write_pb2 import WriteRequest

ALWAYS = Window(oldest_ms=0, newest_ms=1 << 62)
OWN = (("__name__", "ah_x"), ("company_id", "acme"), ("server_id", "web-1"))

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
points = st.lists(st.tuples(st.integers(0, 4_102_444_800_000), finite), min_size=1, max_size=20)
own_labels = st.dictionaries(texts, texts, max_size=5).map(
    lambda found: tuple(sorted((f"l_{name}", value) for name, value in found.items()))
)
kept = st.builds(
    lambda labels, found: StoredSeries(labels=OWN + labels, points=tuple(found)), own_labels, points
)


def bits(value):
    return struct.pack("d", value)


def told(series):
    """What a row of series says, point by point, with the sign of zero."""
    return [
        (one.labels, timestamp_ms, bits(value))
        for one in series
        for timestamp_ms, value in one.points
    ]


def read_import(bodies):
    for body in bodies:
        count = 0
        plain = gzip.decompress(body.data)
        assert plain.endswith(b"\n")
        for line in plain[:-1].split(b"\n"):
            pairs = json.loads(line, object_pairs_hook=tuple)
            assert [key for key, _ in pairs] == ["metric", "values", "timestamps"]
            labels, values, timestamps = (value for _, value in pairs)
            count += len(values)
            yield StoredSeries(
                labels=labels,
                points=[(at, float(value)) for at, value in zip(timestamps, values, strict=True)],
            )
        assert count == body.samples


def read_remote_write(bodies):
    for body in bodies:
        request = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(body.data)))
        assert body.samples == sum(len(one.samples) for one in request.timeseries)
        for one in request.timeseries:
            yield StoredSeries(
                labels=tuple((label.name, label.value) for label in one.labels),
                points=[(sample.timestamp, sample.value) for sample in one.samples],
            )


@given(given_series=st.lists(kept, max_size=5), body_bytes_max=st.sampled_from([1, 300, 10_000]))
def test_an_import_says_every_double_and_every_label_as_it_is(given_series, body_bytes_max):
    form = ImportForm(line_bytes_max=400, body_bytes_max=body_bytes_max)
    assert told(read_import(form.bodies(given_series))) == told(given_series)


@given(given_series=st.lists(kept, max_size=5), body_bytes_max=st.sampled_from([1, 300, 10_000]))
def test_remote_write_says_every_double_and_every_label_as_it_is(given_series, body_bytes_max):
    form = RemoteWriteForm(body_bytes_max=body_bytes_max)
    assert told(read_remote_write(form.bodies(given_series))) == told(given_series)


@pytest.mark.parametrize(
    "text", ["\\", "\\n", "a\\", '"', '","', "\n", "\x00", "\x7f", "\u2028", "\U0001f600", "/"]
)
def test_what_json_escapes_comes_back_in_names_and_values(text):
    series = StoredSeries(labels=(*OWN, (f"l{text}", text)), points=((1_000, 1.0),))
    form = ImportForm(line_bytes_max=400, body_bytes_max=1_000)
    assert told(read_import(form.bodies([series]))) == told([series])


def test_the_name_and_the_tenant_come_first():
    """C4: versions that keep the first labels only then keep the tenant's."""
    [(line, count)] = import_lines(
        StoredSeries(labels=(*OWN, ("a", "b")), points=((1_000, 1.5), (2_000, 2.0))), 1_000
    )
    assert count == 2
    assert line == (
        b'{"metric":{"__name__":"ah_x","company_id":"acme","server_id":"web-1","a":"b"},'
        b'"values":[1.5,2.0],"timestamps":[1000,2000]}\n'
    )


@given(found=points, line_bytes_max=st.integers(150, 400))
def test_lines_stay_under_their_bound_and_lose_no_point(found, line_bytes_max):
    """C4: a line of 11 MB is skipped in silence, so there is none."""
    series = StoredSeries(labels=OWN, points=found)
    lines = list(import_lines(series, line_bytes_max))
    assert all(len(line) < line_bytes_max or count == 1 for line, count in lines)
    assert sum(count for _, count in lines) == len(found)


def test_a_series_of_a_quarter_of_a_million_points_is_lines_under_two_megabytes():
    """C4."""
    found = [(1_700_000_000_000 + n, 0.1 + n) for n in range(250_000)]
    lines = list(import_lines(StoredSeries(labels=OWN, points=found), 2_000_000))
    assert max(len(line) for line, _ in lines) < 2_000_000
    assert sum(count for _, count in lines) == 250_000


def test_a_body_is_over_its_bound_by_one_line_at_most():
    series = [StoredSeries(labels=OWN, points=[(n, 1.0)]) for n in range(1_000)]
    form = ImportForm(line_bytes_max=1_000, body_bytes_max=2_000)
    sizes = [len(gzip.decompress(body.data)) for body in form.bodies(series)]
    assert len(sizes) > 10
    assert max(sizes) < 3_000


@given(
    found=st.lists(
        st.tuples(st.integers(0, 400), st.one_of(st.floats(), finite)), min_size=1, max_size=30
    )
)
def test_every_point_is_sent_or_counted_by_reason(found):
    """C3, C7."""
    dropped = Counter()
    window = Window(oldest_ms=100, newest_ms=300)
    kept_points = [
        point
        for series in kept_series([samples(found)], window, dropped)
        for point in series.points
    ]
    expected = [(at, value) for at, value in found if math.isfinite(value) and 100 <= at <= 300]
    assert kept_points == expected
    assert dropped == Counter(
        "non_finite" if not math.isfinite(value) else "too_old" if at < 100 else "in_future"
        for at, value in found
        if not math.isfinite(value) or not 100 <= at <= 300
    )


def many(count):
    return tuple((f"l{number:02}", "v") for number in range(count))


def long_together(count, char="v"):
    return tuple((f"l{number:02}".ljust(250, "n"), char * 4_096) for number in range(count))


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (many(28), "31 labels, over 30"),
        ((("n" * 257, "v"),), "a label name of 257 bytes, over 256"),
        ((("n", "é" * 2_049),), "4098 bytes in label 'n', over 4096"),
        ((("n", ""),), "the empty label 'n'"),
        ((("", "v"),), "the empty label ''"),
        ((("n", "\ud800"),), "a lone surrogate"),
        ((("\ud800", "v"),), "a lone surrogate"),
        (long_together(16), "69624 bytes of labels as they are kept, over 64000"),
        (long_together(8, "\x01"), "67608 bytes of labels as they are kept, over 64000"),
    ],
    ids=[
        "many",
        "name",
        "value",
        "empty value",
        "empty name",
        "surrogate",
        "of a name",
        "together",
        "escaped together",
    ],
)
def test_what_would_be_cut_or_dropped_in_silence_is_refused_by_us(labels, why):
    """C4."""
    with pytest.raises(PermanentStoreError, match="and say nothing") as caught:
        check_labels(samples([(1, 1.0)], labels=labels))
    assert why in str(caught.value)


def test_what_is_at_the_limits_is_taken():
    """C4."""
    check_labels(samples([(1, 1.0)], labels=many(27)))
    check_labels(samples([(1, 1.0)], labels=(("n" * 256, "é" * 2_048),)))
    check_labels(samples([(1, 1.0)], labels=long_together(14)))


@given(
    st.sampled_from("\x00\x01\x02\x03v"),
    st.lists(
        st.tuples(st.sampled_from([63, 64]), st.integers(990, 1_300)),
        min_size=25,
        max_size=27,
    ),
)
def test_no_series_that_is_taken_is_longer_than_its_index_can_hold(char, own):
    """C4: the short way round, for labels that are short and plain, lets no longer one pass."""
    labels = tuple(
        (f"l{number:02}".ljust(name_chars, char), char * value_chars)
        for number, (name_chars, value_chars) in enumerate(own)
    )
    batch = samples([(1, 1.0)], labels=labels)
    size = series_bytes(batch.series[0].labels)
    try:
        check_labels(batch)
    except PermanentStoreError:
        assert size > SERIES_BYTES_MAX
    else:
        assert size <= SERIES_BYTES_MAX


def test_a_batch_without_series_is_nothing():
    batch = SampleBatch(
        company_id="acme",
        server_id="web-1",
        agent_id="a",
        request_id="r",
        received_at_ms=0,
        series=(StoredSeries(labels=OWN, points=()),),
    )
    assert list(kept_series([batch], ALWAYS, Counter())) == []
    assert list(RemoteWriteForm(body_bytes_max=1_000).bodies([])) == []
