import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire.agent_pb2 import AgentStats, Label, MetricsBatch, Point, Series
from ahwire.batch import count_points, drop_old_points, merge, split

NOW = 1_781_518_830_000
DAY = 86_400_000


def series(name="cpu", labels=(), points=((NOW, 1.0),)):
    return Series(
        name=name,
        labels=[Label(name=key, value=value) for key, value in labels],
        points=[Point(ts_ms=ts, value=value) for ts, value in points],
    )


def batch(*items, seq=7):
    return MetricsBatch(
        seq=seq,
        sent_at_ms=3,
        collected_at_ms=2,
        series=items,
        stats=AgentStats(rss_bytes=5),
    )


def flat(*batches):
    """Every point with its series, as a sorted list."""
    return sorted(
        (s.name, tuple((label.name, label.value) for label in s.labels), p.ts_ms, p.value)
        for b in batches
        for s in b.series
        for p in s.points
    )


POINTS = st.lists(st.tuples(st.integers(0, 2**40), st.floats(allow_nan=False)), max_size=4)
LABELS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=2)
BATCHES = st.builds(
    batch, st.builds(series, st.sampled_from(["m", "n"]), LABELS, POINTS)
) | st.lists(st.builds(series, st.sampled_from(["m", "n"]), LABELS, POINTS), max_size=6).map(
    lambda items: batch(*items)
)


@settings(deadline=None)
@given(BATCHES)
def test_split_down_to_single_points_keeps_every_point(whole):
    numbers = itertools.count(100)
    waiting, singles = [whole], []
    while waiting:
        part = waiting.pop()
        halves = split(part, lambda: next(numbers))
        if halves == [part]:
            singles.append(part)
            continue
        first, second = halves
        assert first.seq < second.seq
        assert min(count_points(first), count_points(second)) >= 1
        assert {half.stats.rss_bytes for half in halves} == {5}
        assert {(half.sent_at_ms, half.collected_at_ms) for half in halves} == {(3, 2)}
        waiting += halves
    assert all(count_points(single) <= 1 for single in singles)
    assert flat(*singles) == flat(whole)


def test_split_goes_by_series_first():
    whole = batch(series("a"), series("b"), series("c", points=((1, 1), (2, 2), (3, 3))))
    first, second = split(whole, iter((1, 2)).__next__)
    assert [s.name for s in first.series] == ["a"]
    assert [s.name for s in second.series] == ["b", "c"]
    assert (first.seq, second.seq) == (1, 2)


def test_split_of_one_series_goes_by_points():
    whole = batch(series("a", [("l", "v")], ((1, 1), (2, 2), (3, 3))), series("empty", points=()))
    first, second = split(whole, iter((1, 2)).__next__)
    assert [p.ts_ms for p in first.series[0].points] == [1]
    assert [p.ts_ms for p in second.series[0].points] == [2, 3]
    assert {half.series[0].labels[0].value for half in (first, second)} == {"v"}


@pytest.mark.parametrize("whole", [batch(), batch(series()), batch(series(points=()), series())])
def test_one_point_cannot_be_split(whole):
    assert split(whole, None) == [whole]


def test_eight_series_are_fifteen_batches():
    # W19: at most 15 requests for a batch of 8 series.
    numbers = itertools.count()
    waiting, seen = [batch(*(series(str(n)) for n in range(8)))], 0
    while waiting:
        part = waiting.pop()
        seen += 1
        halves = split(part, lambda: next(numbers))
        waiting += halves if len(halves) == 2 else []
    assert seen == 15


def test_half_of_a_batch_without_stats_has_none():
    whole = MetricsBatch(series=[series("a"), series("b")])
    assert not any(half.HasField("stats") for half in split(whole, lambda: 1))


# merge


@settings(deadline=None)
@given(st.lists(BATCHES, max_size=4))
def test_merge_keeps_every_point_and_joins_equal_series(batches):
    before = [b.SerializeToString(deterministic=True) for b in batches]
    merged = merge(batches, 99)
    assert merged.seq == 99
    assert flat(merged) == flat(*batches)
    keys = [(s.name, tuple((x.name, x.value) for x in s.labels)) for s in merged.series]
    assert len(set(keys)) == len(keys)
    assert [b.SerializeToString(deterministic=True) for b in batches] == before


def test_merge_takes_the_newest_time_and_stats():
    first = batch(series(points=((1, 1.0),)))
    second = batch(series(points=((2, 2.0),)))
    second.collected_at_ms, second.stats.rss_bytes = 9, 6
    third = MetricsBatch(collected_at_ms=5)
    merged = merge([first, second, third], 1)
    assert (merged.collected_at_ms, merged.stats.rss_bytes, merged.sent_at_ms) == (9, 6, 0)
    assert [p.ts_ms for p in merged.series[0].points] == [1, 2]


def test_label_maps_that_look_alike_are_not_joined():
    # C26
    merged = merge(
        [
            batch(
                series("m", [("a", "bc")]),
                series("m", [("ab", "c")]),
                series("m", [("a", "b=c,d"), ("e", "")]),
                series("m", [("a", "b"), ("c", "d\n")]),
                series("m", [("a", "")]),
                series("m"),
            )
        ],
        1,
    )
    assert len(merged.series) == 6


# drop_old_points


def test_old_points_go_and_the_rest_stays():
    # W30: a batch of 999 good points and 1 old keeps 999.
    items = [(NOW, 1.0)] * 998 + [(NOW - DAY, 1.0), (NOW - DAY - 1, 1.0)]
    whole = batch(series(points=items), series("gone", points=((0, 1.0),)))
    kept, dropped = drop_old_points(whole, now_ms=NOW, max_age_seconds=86_400)
    assert (count_points(kept), dropped) == (999, 2)
    assert [s.name for s in kept.series] == ["cpu"]
    assert (kept.seq, kept.stats.rss_bytes, kept.collected_at_ms) == (7, 5, 2)
    assert count_points(whole) == 1001


def test_batch_without_old_points_is_given_back():
    whole = batch(series())
    kept, dropped = drop_old_points(whole, now_ms=NOW, max_age_seconds=1)
    assert kept is whole
    assert dropped == 0
