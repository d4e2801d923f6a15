"""A state from when it moved last, and the points since, are what was there before a crash."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules.threshold import Evaluator, Series

CPU = Series(name="cpu", labels={"core": "0"})
MEM = Series(name="mem")
BEGIN = 1_796_000_000.0

aggregates = st.sampled_from(
    [{}, *({"agg": agg, "agg_seconds": 30} for agg in ("avg", "min", "max", "sum"))]
)
fields = st.fixed_dictionaries(
    {
        "for_seconds": st.sampled_from([0, 15, 40]),
        "keep_firing_seconds": st.sampled_from([0, 15, 40]),
        "resolve_threshold": st.sampled_from([None, 40]),
        "op": st.just("gt"),
        "threshold": st.just(50),
    }
)
points = st.lists(
    st.tuples(
        st.sampled_from([CPU, MEM]),
        st.integers(-12, 20),
        st.sampled_from([0.0, 39.5, 45.0, 51.0, 60.0, 99.0]),
    ),
    max_size=40,
)


def course(given):
    """The points with times that mostly rise: a step back is a late one."""
    times = itertools.accumulate(step for _, step, _ in given)
    return [
        (series, BEGIN + at, value) for (series, _, value), at in zip(given, times, strict=True)
    ]


@given(
    rules=st.lists(st.tuples(fields, aggregates), min_size=1, max_size=3),
    given_points=points,
    at=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_what_moved_and_the_points_since_are_the_state(rule, rules, given_points, at):
    """Killed at any point: a snapshot, the series that moved since, and all points since."""
    rules = [
        rule(rule_id=f"r{number}-{metric}", metric=metric, **one, **aggregate)
        for number, (one, aggregate) in enumerate(rules)
        for metric in ("cpu", "mem")
    ]
    whole_at, killed_at = sorted(at)
    evaluator = Evaluator(company_id="acme")
    evaluator.set_rules(rules, BEGIN)
    whole, pieces, since = evaluator.snapshot(), {}, []
    steps = course(given_points)
    for number, (series, ts, value) in enumerate(steps[:killed_at]):
        evaluator.observe("web", series, ts, value)
        since.append((series, ts, value))
        for moved in evaluator.take_moved():
            pieces[moved] = evaluator.snapshot_series(*moved)
        if number == whole_at:
            whole, pieces, since = evaluator.snapshot(), {}, []
    again = Evaluator(company_id="acme")
    again.restore(whole)
    for piece in pieces.values():
        again.merge(piece)
    for series, ts, value in since:
        again.remember("web", series, ts, value)
    assert rows(again) == rows(evaluator)
    assert again.take_moved() == ()
    for series, ts, value in steps[killed_at:]:
        told, expected = (one.observe("web", series, ts, value) for one in (again, evaluator))
        assert told == expected


def rows(evaluator):
    """The series of a snapshot, in an order of their own."""
    return sorted(evaluator.snapshot().splitlines()[1:-1])


def test_what_moved_is_told_once_also_where_nothing_was_told(bench, rule):
    there = bench(rule(for_seconds=20, keep_firing_seconds=20, no_data="ok"))
    moved = []
    for at, value in enumerate([50, 95, 95, 95, 50, 95, 50, 50, 50]):
        there.point(at * 10, value)
        moved.append(len(there.evaluator.take_moved()))
    assert moved == [0, 1, 0, 1, 1, 1, 1, 0, 1]
    assert there.evaluator.take_moved() == ()


def test_silence_that_ends_a_wait_is_a_move(bench, rule):
    there = bench(rule(for_seconds=2000))
    there.tick(0)
    there.point(1, 95)
    assert there.evaluator.take_moved() == (("web-1", 'cpu{core="0"}'),)
    there.ticks(10, 400)
    assert there.state == "OK"
    assert there.evaluator.take_moved() == (("web-1", 'cpu{core="0"}'),)


def test_series_that_left_did_not_move(bench, rule):
    there = bench(rule())
    there.point(0, 95)
    there.evaluator.forget("web-1", BEGIN)
    assert there.evaluator.take_moved() == ()


def test_windows_are_known_by_metric_and_series(bench, rule):
    there = bench(
        rule(agg="avg", agg_seconds=30, matchers=[{"label": "core", "op": "eq", "value": "0"}]),
        rule(rule_id="plain", metric="mem"),
    )
    other = Series(name="cpu", labels={"core": "1"})
    there.point(0, 1)
    there.point(0, 1, series=other)
    assert there.evaluator.window_metrics == {"cpu"}
    assert there.evaluator.has_window("web-1", there.series.key)
    assert not there.evaluator.has_window("web-1", other.key)
    assert not there.evaluator.has_window("web-2", there.series.key)


@pytest.mark.parametrize("wrong", [float("nan"), None, float("inf")])
def test_only_numbers_are_remembered(bench, rule, wrong):
    there = bench(rule(agg="max", agg_seconds=30))
    with pytest.raises((TypeError, ValueError), match="value"):
        there.evaluator.remember("web-1", there.series, BEGIN, wrong)
    there.evaluator.remember("web-1", Series(name="unwatched"), BEGIN, 1)
    assert there.evaluator.series_count == 0


def test_silent_series_stays_silent_where_a_point_is_remembered(bench, rule):
    """Its piece would have told that it ended; then the point was judged by a state of before."""
    there = bench(rule(no_data="alert"))
    there.tick(0)
    there.point(1, 10)
    there.ticks(10, 400)
    assert there.state == "SILENT"
    there.evaluator.remember("web-1", there.series, BEGIN + 410, 20)
    assert there.state == "SILENT"


def test_a_window_whose_sum_is_no_number_is_remembered_as_it_was_judged(rule):
    evaluator = Evaluator(company_id="acme")
    evaluator.set_rules([rule(agg="sum", agg_seconds=30)], BEGIN)
    assert evaluator.metrics == {"cpu"}
    for at in (0, 10):
        evaluator.remember("web", CPU, BEGIN + at, 1.7e308)
    assert evaluator.observe("web", CPU, BEGIN + 11, 1.7e308) == []
    (opened,) = evaluator.observe("web", CPU, BEGIN + 41, 99)
    assert opened.value == 99
