"""A validator with a memory judges every batch as the plain function does."""

import math
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ahwire.agent_pb2 import AgentStats, Label, MetricsBatch, Point, Series
from ahwire.batch import Validator, validate
from ahwire.errors import TooLargeError
from ahwire.limits import Limits

NOW = 1_781_518_830_000
DAY = 86_400_000


def series(name="cpu", labels=(), points=((NOW, 1.0),)):
    return Series(
        name=name,
        labels=[Label(name=key, value=value) for key, value in labels],
        points=[Point(ts_ms=ts, value=value) for ts, value in points],
    )


def batch(*items):
    return MetricsBatch(seq=7, series=items, stats=AgentStats(rss_bytes=5))


def judged_by(judge, message, now_ms, **more):
    """All that can be seen of a judgement: the result, or the error."""
    try:
        found = judge(message, now_ms=now_ms, **more)
    except TooLargeError as error:
        return str(error)
    return repr(found)  # which tells -0.0 from 0.0


TEXT = st.one_of(
    st.sampled_from(
        ["", "a", "b", "A", "company_id", "Company-ID", "a.b", "__x", " ", "\0", "v" * 12, "é" * 7]
    ),
    st.text(max_size=3),
    st.just("\x1a\x10\x08"),
    st.just("\x1a\x07\x08" + "\x01" * 6),
)
STAMPS = st.sampled_from(
    [NOW, NOW + 1, NOW - DAY, NOW - DAY - 1, NOW + 300_000, NOW + 300_001, 0, -1, 2**35 - 1, 2**42]
)
VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.5, math.nan, math.inf, -math.inf, 5e-324])
POINTS = st.lists(st.tuples(STAMPS, VALUES), max_size=4)
ODD = st.builds(series, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=4), POINTS)
# Few enough that they come again.
USUAL = st.builds(
    series, st.sampled_from(["m", "n.x"]), st.sampled_from([(), (("a", "1"), ("b", "2"))]), POINTS
)
SERIES = USUAL | ODD
# Foreign fields: other versions' and an attacker's, behind or between the fields of ours.
FOREIGN = st.sampled_from(
    [
        b"",
        b"\x22\x00",
        b"\x22\x03abc",
        b"\x1a\x10" + Point(ts_ms=NOW, value=1.5).SerializeToString(),
        b"\x1a\x07" + Point(ts_ms=NOW).SerializeToString(),
        b"\x1a\x09" + Point(ts_ms=NOW).SerializeToString() + b"\x18\x01",
        b"\x0a\x01z",
        b"\x12\x06\x0a\x01n\x12\x01w",
        b"\x22\x14\x1a\x10" + Point(ts_ms=NOW, value=1.5).SerializeToString() + b"xx",
    ]
)
RAW_SERIES = st.builds(
    lambda one, tail, more: Series.FromString(one.SerializeToString() + tail + more),
    SERIES,
    FOREIGN,
    FOREIGN,
)
BATCHES = st.lists(st.lists(SERIES | RAW_SERIES, max_size=5).map(lambda s: batch(*s)), max_size=5)


@settings(deadline=None)
@given(BATCHES, st.sampled_from([0, 2, 3, 1000]), st.sampled_from([0, 900, 5000, 1 << 20]))
@example([batch(series(points=((NOW, 1.5), (NOW, 0.0), (NOW, 2.0))))] * 3, 1000, 1 << 20)
@example(
    [batch(*[series(name, [("a", "1")]) for name in "mnmo"], series("m", [("a", "2")]))], 9, 9999
)
def test_what_is_remembered_never_changes_a_judgement(batches, entries, size):
    validator = Validator(known_series_max=entries, known_bytes_max=size)
    for moment in (NOW, NOW, NOW + DAY):
        for message in batches:
            before = message.SerializeToString()
            found = judged_by(validator.validate, message, moment)
            assert found == judged_by(validate, message, moment)
            assert message.SerializeToString() == before
    assert len(validator) <= max(entries, 0)


@settings(deadline=None)
@given(st.lists(POINTS, min_size=1, max_size=8), st.integers(1, 12))
def test_every_point_of_a_known_series_is_judged(lists, most):
    limits = Limits(points_per_batch=most)
    validator = Validator(limits=limits)
    validator.validate(batch(series("m")), now_ms=NOW)
    message = batch(*[series("m", points=points) for points in lists])
    found = judged_by(validator.validate, message, NOW)
    assert found == judged_by(validate, message, NOW, limits=limits)


@settings(deadline=None)
@given(BATCHES, st.integers(0, 6), st.integers(0, 1))
def test_limits_hold_for_what_is_remembered_too(batches, points, labels):
    limits = Limits(points_per_batch=points, labels_per_series=labels, name_bytes=4)
    validator = Validator(limits=limits)
    for message in (*batches, *batches):
        found = judged_by(validator.validate, message, NOW)
        assert found == judged_by(validate, message, NOW, limits=limits)


def test_labels_of_known_series_count_towards_the_limit_of_a_batch():
    limits = Limits(points_per_batch=2, labels_per_series=1)
    validator = Validator(limits=limits)
    known = series("m", [("a", "1")])
    validator.validate(batch(known), now_ms=NOW)
    message = batch(known, series("n", [("a", "1")] * 4))
    found = judged_by(validator.validate, message, NOW)
    assert found == judged_by(validate, message, NOW, limits=limits)
    assert "5 labels" in found


def known_ones(limits):
    validator = Validator(limits=limits)
    for name in "mno":
        validator.validate(batch(series(name, [("a", "1")])), now_ms=NOW)
    return validator


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_known_series_among_others_must_have_finite_values_too(value):
    items = [series(name, [("a", "1")]) for name in "mno"]
    items[1].points[0].value = value
    found = known_ones(Limits()).validate(batch(*items), now_ms=NOW)
    assert [one.index for one in found.series] == [0, 2]
    assert [(one.index, one.code) for one in found.rejected] == [(1, "not_finite")]


@pytest.mark.parametrize("twice", [0, 1, 2])
def test_points_of_known_series_count_towards_the_limit_of_a_batch(twice):
    limits = Limits(points_per_batch=3)
    items = [series(name, [("a", "1")]) for name in "mno"]
    items[twice].points.add(ts_ms=NOW, value=2.0)
    with pytest.raises(TooLargeError, match="the batch has 4 points; at most 3 are taken"):
        known_ones(limits).validate(batch(*items), now_ms=NOW)


def test_series_that_was_clean_is_known_again_with_other_points():
    validator = Validator()
    labels = [("b", "2"), ("a", "1")]
    for points in [((NOW, 1.0),), ((NOW, 0.0),), ((NOW - 5, 2.5), (NOW - 4, 0.0), (NOW, -0.0))]:
        (clean,) = validator.validate(batch(series("m.x", labels, points)), now_ms=NOW).series
        assert (clean.name, clean.labels) == ("ah_m_x", (("a", "1"), ("b", "2")))
        assert clean.points == points
        assert len(validator) == 1


@pytest.mark.parametrize(
    "item",
    [
        series(""),
        series("m", [("company_id", "x")]),
        series("m", [("a", "1"), ("a", "1")]),
        series("m", [("a", "\0")]),
        series("m", points=((NOW, math.nan),)),
        series("m", points=()),
        series("m", [("a", "v" * 1024), ("b", "v" * 1024), ("c", "v" * 1024), ("d", "v" * 1024)]),
    ],
    ids=["no name", "reserved", "double", "NUL", "not finite", "no points", "long"],
)
def test_only_names_and_labels_that_were_clean_are_remembered(item):
    validator = Validator()
    validator.validate(batch(item), now_ms=NOW)
    assert len(validator) == 0


def test_ever_new_series_do_not_make_it_grow():
    """C1: whoever sends names at random makes it forget, and nothing else."""
    by_count = Validator(known_series_max=100)
    by_bytes = Validator(known_bytes_max=100_000)
    for number in range(20):
        message = batch(*[series(f"m{number}_{i}", [("l", "v" * 200)]) for i in range(50)])
        for validator in (by_count, by_bytes):
            validator.validate(message, now_ms=NOW)
    assert 50 <= len(by_count) <= 100
    assert 30 <= len(by_bytes) <= 100_000 // 400


def test_known_series_take_no_more_memory_than_they_may():
    """C1: measured, with names and labels of several lengths that never come again."""
    most = 2 << 20
    validator = Validator(known_bytes_max=most)
    tracemalloc.start()
    try:
        for number in range(24):
            labels, length = ((0, 1), (3, 10), (27, 8), (6, 200))[number % 4]
            items = [
                series(f"m{number}_{i}", [(f"l{n}", f"{i}".rjust(length)) for n in range(labels)])
                for i in range(200)
            ]
            validator.validate(batch(*items), now_ms=NOW)
            del items
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most / 4 < taken_bytes < most


@pytest.mark.parametrize("letter", ["é", "д", "漢", "😀"])
def test_texts_with_one_letter_of_another_script_take_no_more_memory_than_they_may(letter):
    """C1: it makes all letters of the text as wide as it is; and later its bytes are kept too."""
    most = 2 << 20
    validator = Validator(known_bytes_max=most)
    tracemalloc.start()
    try:
        for number in range(4):
            items = [
                series(f"m{number}_{i}", [(f"l{n}", f"{letter}{i:0>950}") for n in range(4)])
                for i in range(200)
            ]
            judged = validator.judge(batch(*items), now_ms=NOW)
            for key in judged.keys:
                # Whoever writes them as protobuf, for one, makes Python keep the bytes.
                Series(labels=[Label(name=name, value=value) for name, value in key.labels])
            del items, judged, key
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most / 4 < taken_bytes < most


def test_who_names_itself_fills_a_quarter_and_what_others_send_is_known_on():
    most = 200_000
    validator = Validator(known_bytes_max=most)
    others = batch(*[series(f"kept{i}") for i in range(40)])
    finish(validator.judging(others, now_ms=NOW, owner="other"))
    for number in range(50):
        ever_new = batch(*[series(f"m{number}_{i}", [("l", "v" * 200)]) for i in range(50)])
        finish(validator.judging(ever_new, now_ms=NOW, owner="greedy"))
    known = {key.name for key in [*validator._newer.values(), *validator._older.values()]}
    assert {f"ah_kept{i}" for i in range(40)} <= known
    greedy = [name for name in known if "kept" not in name]
    assert 10 <= len(greedy) <= most / 2 / 4 / 700
    # And what it sends is judged all the same.
    judged, _ = finish(validator.judging(ever_new, now_ms=NOW, owner="greedy"))
    assert repr(judged) == repr(Validator().judge(ever_new, now_ms=NOW))


@given(
    sent=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(0, 300)), max_size=60
    )
)
def test_no_owner_has_more_than_its_share_of_either_half(sent):
    validator = Validator(known_bytes_max=40_000)
    for owner, number, length in sent:
        item = series(f"{owner}{number}", [("l", "v" * length)])
        finish(validator.judging(batch(item), now_ms=NOW, owner=owner))
        for half in (validator._newer, validator._older):
            for each in "abc":
                names = f"ah_{each}"
                own = [raw for raw, key in half.items() if key.name.startswith(names)]
                assert sum(map(len, own)) * 2 + 360 * len(own) <= 40_000 / 2 / 4


def test_what_is_not_to_be_remembered_is_known_when_it_is_said_so():
    validator = Validator()
    message = batch(series("a"), series(""), series("b"), series("c"))
    judged, _ = finish(validator.judging(message, now_ms=NOW, remember=False))
    assert len(validator) == 0
    assert [judged.keys[place].name for place, _ in judged.fresh] == ["ah_a", "ah_b", "ah_c"]
    validator.remember(judged, without=[1])
    assert {key.name for key in validator._newer.values()} == {"ah_a", "ah_c"}
    again, _ = finish(validator.judging(message, now_ms=NOW, remember=False))
    assert [again.keys[place].name for place, _ in again.fresh] == ["ah_b"]
    assert (again.indexes, again.keys, again.points) == (
        judged.indexes,
        judged.keys,
        judged.points,
    )


def test_what_is_asked_for_again_outlives_what_is_not():
    validator = Validator(known_series_max=8)
    kept = batch(series("kept"))
    for number in range(20):
        validator.validate(kept, now_ms=NOW)
        validator.validate(batch(series(f"other{number}")), now_ms=NOW)
    recalled = validator._newer | validator._older
    assert "ah_kept" in {key.name for key in recalled.values()}


def test_point_fields_in_a_foreign_field_are_no_points():
    """A field of a later version that ends in the bytes of a point belongs to that version."""
    point = b"\x1a\x10" + Point(ts_ms=NOW, value=1.5).SerializeToString()
    known = series("m")
    foreign = Series.FromString(known.SerializeToString() + b"\x22" + bytes([len(point)]) + point)
    validator = Validator()
    for message in (batch(known), batch(foreign), batch(foreign)):
        (clean,) = validator.validate(message, now_ms=NOW).series
        assert clean.points == ((NOW, 1.0),)


@pytest.mark.parametrize(
    "point",
    [
        # A foreign field of 8 bytes where the value would be.
        "1a1008 808080808130 19 000000000000f03f",
        # A time of 5 bytes, and foreign numbers where its last byte and the value would be.
        "1a1008 8080808001 3011 2001200120012001",
    ],
)
def test_points_that_only_look_like_plain_ones_are_judged_the_long_way(point):
    moment = (0x30 << 35) + (1 << 28)
    validator = Validator()
    validator.validate(batch(series("m", points=((moment, 1.0),))), now_ms=moment)
    odd = Series(name="m").SerializeToString() + bytes.fromhex(point)
    message = batch(Series.FromString(odd))
    assert message.series[0].SerializeToString() == odd
    assert judged_by(validator.validate, message, moment) == judged_by(validate, message, moment)


def test_bodies_of_many_tiny_labels_are_refused_without_a_walk_through_them():
    """C1: a body of 8 MiB holds four million labels of two bytes."""
    most = Limits(points_per_batch=2, labels_per_series=1)
    item = series("m", [("", "")] * 5)
    for judge in (
        Validator(limits=most).validate,
        lambda b, now_ms: validate(b, now_ms=now_ms, limits=most),
    ):
        with pytest.raises(TooLargeError, match="the batch has 5 labels; at most 4 are taken"):
            judge(batch(item), now_ms=NOW)


def finish(steps):
    """What is judged in steps, and how many yields there were."""
    yields = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, yields
        yields += 1


def test_new_series_are_judged_in_steps_and_known_ones_at_once():
    validator = Validator()
    many = batch(*(series(f"m{number}", (("a", "x" * 90),)) for number in range(3_000)))
    judged, yields = finish(validator.judging(many, now_ms=NOW))
    assert repr(judged) == repr(Validator().judge(many, now_ms=NOW))
    assert yields >= 5
    assert finish(validator.judging(many, now_ms=NOW)) == (judged, 0)


def test_batches_that_are_judged_in_turns_come_to_the_same():
    # Their memory is so small that each makes the other's series forgotten.
    validator = Validator(known_series_max=400)
    one, other = (
        batch(*(series(f"{prefix}{number}", (("a", "x" * 90),)) for number in range(1_500)))
        for prefix in "mn"
    )
    steps = [validator.judging(message, now_ms=NOW) for message in (one, other, one)]
    for _ in range(3):
        for each in steps:
            next(each)
    steps.pop().close()
    found = [finish(each)[0] for each in steps]
    assert repr(found) == repr([Validator().judge(each, now_ms=NOW) for each in (one, other)])
