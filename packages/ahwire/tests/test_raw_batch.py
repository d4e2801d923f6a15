"""A batch that was cut and never parsed is judged as the parsed one is."""

import string

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ahwire.agent_pb2 import AgentStats, Label, MetricsBatch, Point, Series
from ahwire.batch import SeriesKey, Validator, take_apart, validate
from ahwire.errors import BadBodyError, TooLargeError
from ahwire.limits import Limits

NOW = 1_781_518_830_000
SERIES_MAX = 20


def series(name="cpu", labels=(), points=((NOW, 1.0),)):
    return Series(
        name=name,
        labels=[Label(name=key, value=value) for key, value in labels],
        points=[Point(ts_ms=ts, value=value) for ts, value in points],
    )


def field(number, kind, data):
    return bytes([number << 3 | kind]) + data


def sized(data):
    length = len(data)
    if length < 0x80:
        return bytes([length]) + data
    return bytes([length & 0x7F | 0x80, length >> 7]) + data


TEXT = st.sampled_from(["", "a", "m", "company_id", "a.b", "v" * 200, "é", "\0"])
POINTS = st.lists(
    st.tuples(
        st.sampled_from([NOW, NOW - 1, NOW - 86_400_001, 0]),
        st.sampled_from([0.0, 1.5, -2.0, float("nan")]),
    ),
    max_size=3,
)
USUAL = st.builds(
    series, st.sampled_from(["m", "n"]), st.sampled_from([(), (("a", "1"), ("b", "2"))]), POINTS
)
ANY = st.builds(series, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3), POINTS)
SERIES_BYTES = (USUAL | ANY).map(lambda one: one.SerializeToString())
# What a sender may write in the place of a series.
ODD_BYTES = st.one_of(
    SERIES_BYTES,
    st.builds(lambda one, cut: one[:cut], SERIES_BYTES, st.integers(0, 40)),
    st.builds(lambda one, more: one + more, SERIES_BYTES, SERIES_BYTES),
    st.builds(lambda more, one: more + one, SERIES_BYTES, SERIES_BYTES),
    st.sampled_from([b"", b"\x0a\x02\xff\xfe", b"\x22\x03abc", b"\x0a\x81\x00m"]),
    st.binary(max_size=30),
)
STATS = AgentStats(interval_seconds=30, delivery_state="ok")
FIELDS = st.one_of(
    ODD_BYTES.map(lambda one: field(3, 2, sized(one))),
    SERIES_BYTES.map(lambda one: field(3, 2, sized(one))),
    st.integers(0, 127).map(lambda seq: field(1, 0, bytes([seq]))),
    st.sampled_from(
        [
            field(4, 2, sized(STATS.SerializeToString())),
            field(5, 0, b"\x80\x01"),
            field(2, 0, b"\xff" * 9 + b"\x01"),
            field(2, 0, b"\xff" * 10 + b"\x01"),
            field(9, 1, b"12345678"),
            field(9, 5, b"1234"),
            field(9, 3, b"") + field(9, 4, b""),
            field(3, 0, b"\x01"),
            field(0, 0, b"\x01"),
            b"\x9a\x00\x02\x0a\x00",
            b"\x1a\x82\x00\x0a\x00",
            b"\x1a\x82\x80\x00\x0a\x00",
            b"\x1a\x82\x80\x80\x00\x0a\x00",
            b"\xfa\x01\x01x",
        ]
    ),
)
BODIES = st.one_of(
    st.lists(FIELDS, max_size=6).map(b"".join),
    st.builds(
        lambda pieces, cut: b"".join(pieces)[:cut],
        st.lists(FIELDS, max_size=4),
        st.integers(0, 60),
    ),
    st.binary(max_size=40),
)


def judged(validator, body, moment):
    """What a door sees of a body: the head and the judgement, or which error."""
    try:
        batch = take_apart(body, series_max=SERIES_MAX) or MetricsBatch.FromString(body)
        head = MetricsBatch()
        head.CopyFrom(batch if isinstance(batch, MetricsBatch) else batch.head)
        del head.series[:]
        found = validator.judge(batch, now_ms=moment)
    except (DecodeError, BadBodyError):
        return "unreadable"
    except TooLargeError as error:
        return str(error)
    series = [
        (index, key.name, key.labels, points)
        for index, key, points in zip(found.indexes, found.keys, found.points, strict=True)
    ]
    counts = (found.accepted_points, found.dropped_points)
    return repr((head.SerializeToString(), series, found.rejected, counts, found.warnings))


def judged_whole(body, moment, limits):
    """The same, by the parser and the plain function."""
    try:
        batch = MetricsBatch.FromString(body)
    except DecodeError:
        return "unreadable"
    try:
        found = validate(batch, now_ms=moment, limits=limits)
    except TooLargeError as error:
        return str(error)
    series = [(one.index, one.name, one.labels, one.points) for one in found.series]
    counts = (found.accepted_points, found.dropped_points)
    del batch.series[:]
    return repr((batch.SerializeToString(), series, found.rejected, counts, found.warnings))


@settings(deadline=None)
@given(
    st.lists(BODIES, min_size=1, max_size=4),
    st.sampled_from(
        [Limits(), Limits(points_per_batch=SERIES_MAX), Limits(points_per_batch=2, name_bytes=3)]
    ),
)
@example(
    [b"".join(field(3, 2, sized(series(name).SerializeToString())) for name in "mnmo")], Limits()
)
@example([field(3, 2, sized(series("m").SerializeToString())) * 3], Limits(points_per_batch=2))
@example([field(3, 2, sized(b"\x0a\x01m" * 2 + series().SerializeToString()[5:]))] * 2, Limits())
def test_cutting_a_body_changes_nothing_that_is_found_in_it(bodies, limits):
    validator = Validator(limits=limits)
    for body in (*bodies, *bodies):
        assert judged(validator, body, NOW) == judged_whole(body, NOW, limits)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 16_383, 16_384, 200_000])
def test_series_of_every_length_is_cut_where_it_ends(length):
    batch = MetricsBatch(seq=7, sent_at_ms=NOW, stats=STATS, collected_at_ms=NOW)
    batch.series.extend([series("x" * length, points=()), series("b")])
    raw = take_apart(batch.SerializeToString(), series_max=SERIES_MAX)
    assert raw is not None
    assert [Series.FromString(one) for one in raw.series] == list(batch.series)
    assert raw.whole() == batch
    del batch.series[:]
    assert raw.head == batch


@pytest.mark.parametrize(
    "body",
    [
        b"\x1a\x82\x80\x80\x00\x0a\x00",  # a length of four bytes
        b"\x9a\x00\x02\x0a\x00",  # a tag of two bytes
        b"\x10" + b"\xff" * 10 + b"\x01",  # a number of eleven bytes
        b"\x4b\x4c",  # a group
        b"\x00\x01",  # field 0
        b"\x1a\x05\x0a",  # cut in a series
        b"\x22\x05\x0a",  # cut in another field
        b"\x49\x01",  # cut in eight bytes
        b"\x4d\x01",  # cut in four bytes
        b"\x10\x80",  # cut in a number
        b"\x1a",  # cut in a length
    ],
    ids=bytes.hex,
)
def test_body_that_is_cut_or_unusual_is_left_to_the_parser(body):
    assert take_apart(body, series_max=SERIES_MAX) is None


def test_fields_of_later_versions_stay_in_the_head():
    rest = [b"\x49" + b"12345678", b"\x4d" + b"1234", b"\x52\x02ab", b"\x08\x07", b"\x58\xff\x01"]
    rest.append(b"\x5a\x80\x01" + b"x" * 128)
    raw = take_apart(b"\x1a\x00".join(rest), series_max=SERIES_MAX)
    assert raw.series == (b"",) * (len(rest) - 1)
    assert raw.head == MetricsBatch.FromString(b"".join(rest))
    assert raw.head.seq == 7


def test_body_of_more_series_than_a_batch_may_have_is_left_to_the_parser():
    body = b"\x1a\x00" * (SERIES_MAX + 1)
    assert take_apart(body, series_max=SERIES_MAX) is None
    assert take_apart(body[2:], series_max=SERIES_MAX) is not None


def test_body_of_a_thousand_fields_that_are_no_series_is_left_to_the_parser():
    assert take_apart(b"\x08\x01" * 1_000, series_max=9).head.seq == 1
    assert take_apart(b"\x08\x01" * 1_001, series_max=9) is None


def test_known_series_of_a_cut_body_share_their_key():
    batch = MetricsBatch(series=[series("m", [("a", "1")], ((NOW, value),)) for value in (0, 1.5)])
    validator = Validator()
    validator.validate(batch, now_ms=NOW)
    raw = take_apart(batch.SerializeToString(), series_max=SERIES_MAX)
    found = validator.judge(raw, now_ms=NOW)
    assert found.points == [((NOW, 0.0),), ((NOW, 1.5),)]
    assert found.keys[0] is found.keys[1]


def test_what_cannot_be_read_is_not_quoted():
    raw = take_apart(field(3, 2, sized(b"\x0a\x08secret\xff\xfe")), series_max=SERIES_MAX)
    with pytest.raises(BadBodyError) as caught:
        Validator().judge(raw, now_ms=NOW)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


NAMES = st.text(string.ascii_lowercase + "_1,;:=", min_size=1, max_size=3)
LABELS = st.lists(st.tuples(NAMES, st.text(max_size=3)), max_size=3).map(tuple)


@given(NAMES, LABELS, NAMES, LABELS)
@example("m", (("a", "bc"),), "m", (("ab", "c"),))
@example("m", (("a", ""),), "m", ())
@example("m", (("a", "1,1"),), "m", (("a", "1"), (",", "1")))
@example("1;m", (), "m", (("1", ""),))
@example("m", (("a", "\ud83d\ude00"),), "m", (("a", "\U0001f600"),))
def test_c26_fingerprints_are_equal_for_equal_series_only(name, labels, other, others):
    one, two = SeriesKey.of(name, labels), SeriesKey.of(other, others)
    assert (one.fingerprint == two.fingerprint) == ((name, labels) == (other, others))
    assert len(one.fingerprint) == 16


def test_fingerprint_is_the_same_in_every_version():
    """It is kept by stores that outlive a process: another one would make all series new."""
    key = SeriesKey.of("ah_disk", (("device", "sda"), ("text", "é=\n")))
    assert key.fingerprint.hex() == "d9b256d2e8bda849141227fb30e96ce5"
