"""Many rules over many series: what is held is bounded, and done in steps of bounded work."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules.threshold import Evaluator, EvaluatorBounds, Series, Unjudged
from ahrules.threshold._by_metric import MetricRules
from ahrules.threshold._watch import Watch


@pytest.fixture(scope="session", name="limited")
def _limited(rule, begin):
    def make(rules, **bounds):
        evaluator = Evaluator(company_id="acme", bounds=EvaluatorBounds(**bounds))
        evaluator.set_rules(rules, begin)
        evaluator.tick(begin)
        return evaluator

    return make


def core(number):
    return Series(name="cpu", labels={"core": str(number)})


def many(rule, count, **fields):
    return [rule(rule_id=f"r{number:05}", **fields) for number in range(count)]


def test_rules_times_series_are_bounded_counted_and_named(limited, rule, begin):
    """1,000 rules over 500 series hold what the bounds say, and the rest is told."""
    evaluator = limited(many(rule, 1_000), series_watches_max=20, watches_max=1_000)
    for number in range(500):
        told = evaluator.observe("web-1", core(number), begin, 95)
        assert len(told) == (20 if number < 50 else 0)
    assert evaluator.watches_count == 1_000
    # Once a series, not once a point: its other rules are not asked.
    assert evaluator.drops == {"series_watches_max": 50, "watches_max": 450}
    assert evaluator.take_unjudged() == (
        Unjudged(
            reason="series_watches_max",
            rule_id="r00020",
            server_id="web-1",
            series_key='cpu{core="0"}',
            bound=20,
            error="",
        ),
        Unjudged(
            reason="watches_max",
            rule_id="r00000",
            server_id="web-1",
            series_key='cpu{core="50"}',
            bound=1_000,
            error="",
        ),
    )
    assert evaluator.take_unjudged() == ()
    evaluator.forget("web-1", begin)
    assert evaluator.watches_count == 0


def test_what_had_no_room_is_taken_once_there_is_some(limited, rule, begin):
    evaluator = limited(many(rule, 3), series_watches_max=2, watches_max=5)
    for number in range(3):
        evaluator.observe(f"web-{number}", core(0), begin, 5)
    assert evaluator.watches_count == 5
    assert evaluator.state("r00001", "web-2", core(0).key) is None
    evaluator.forget("web-0", begin)
    evaluator.tick(begin + 1)
    assert evaluator.state("r00001", "web-2", core(0).key).name == "OK"
    assert evaluator.state("r00002", "web-2", core(0).key) is None
    # A rule of the series itself leaves: the next one has its place.
    evaluator.set_rules(many(rule, 3)[1:], begin + 1)
    evaluator.tick(begin + 2)
    for server in ("web-1", "web-2"):
        assert evaluator.state("r00002", server, core(0).key).name == "OK"
    assert evaluator.watches_count == 4
    assert evaluator.drops == {"series_watches_max": 2, "watches_max": 1}


def test_the_count_of_rules_over_series_is_kept_over_restarts_and_pieces(limited, rule, begin):
    rules = many(rule, 3)
    evaluator = limited(rules)
    for number in range(4):
        evaluator.observe("web-1", core(number), begin, 5)
    again = limited(rules)
    again.restore(evaluator.snapshot())
    assert again.watches_count == 12
    again.merge(evaluator.snapshot_series("web-1", core(1).key))
    assert again.watches_count == 12
    again.set_rules(rules[:1], begin)
    assert again.watches_count == 4


def test_a_piece_with_a_rule_of_another_metric_leaves_the_series_alone(limited, rule, begin):
    evaluator, other = limited([rule()]), limited([rule(rule_id="m", metric="memory")])
    evaluator.observe("web-1", core(0), begin, 5)
    other.observe("web-1", Series(name="memory"), begin, 5)
    evaluator.merge(other.snapshot_series("web-1", "memory"))
    assert (evaluator.watches_count, evaluator.series_count) == (2, 2)
    assert evaluator.state("m", "web-1", "memory").name == "OK"


def test_rules_that_meet_nothing_are_asked_up_to_a_bound(limited, rule, begin):
    other = [{"label": "core", "op": "ne", "value": "0"}]
    evaluator = limited([*many(rule, 50, matchers=other), rule()], series_rules_max=10)
    before = evaluator.work
    assert evaluator.observe("web-1", core(0), begin, 95) == []
    assert evaluator.work - before == 10
    assert evaluator.drops == {"series_rules_max": 1}
    (found,) = evaluator.take_unjudged()
    assert (found.reason, found.rule_id, found.bound) == ("series_rules_max", "r00010", 10)


def test_what_is_left_out_is_counted_when_the_series_comes_and_not_with_each_try(
    limited, rule, begin
):
    nobody = [{"label": "core", "op": "ne", "value": "0"}]
    rules = [rule(rule_id="first"), *many(rule, 50, matchers=nobody)]
    evaluator = limited(rules, rule_series_max=1, series_rules_max=10)
    for server in ("web-1", "web-2"):
        evaluator.observe(server, core(0), begin, 5)
    counted = {"rule_series_max": 1, "series_rules_max": 2}
    assert evaluator.drops == counted
    evaluator.forget("web-1", begin + 5)
    evaluator.tick(begin + 10)
    assert evaluator.state("first", "web-2", core(0).key) is not None
    assert evaluator.drops == counted


def test_rules_of_other_servers_and_label_values_are_not_even_asked(limited, rule, begin):
    of_servers = [rule(rule_id=f"s{n}", servers=[f"web-{n}"]) for n in range(1_000)]
    of_cores = [
        rule(rule_id=f"c{n}", matchers=[{"label": "core", "op": "eq", "value": str(n)}])
        for n in range(1_000)
    ]
    evaluator = limited(of_servers + of_cores)
    before = evaluator.work
    told = evaluator.observe("web-7", core(9), begin, 95)
    assert [one.rule_id for one in told] == ["s7", "c9"]
    assert evaluator.work - before == 4  # asked, then judged


def test_a_tick_is_done_in_steps_of_bounded_work_and_can_be_left(limited, rule, begin):
    rules = many(rule, 20, no_data="alert", no_data_after_seconds=60)
    evaluator, whole = limited(rules), limited(rules)
    for one in (evaluator, whole):
        for number in range(50):
            one.observe("web-1", core(number), begin, 5)
        for at in (50, 100):
            one.host_seen("web-1", begin + at)
    expected = whole.tick(begin + 100)
    assert len(expected) == 1_000
    told, before = [], evaluator.work
    for step in evaluator.tick_steps(begin + 100, work_max=100):
        assert evaluator.work - before <= 100 + 21
        before = evaluator.work
        told += step
        if len(told) >= 300:
            break
    assert len(told) == 300
    for step in evaluator.tick_steps(begin + 101, work_max=100):
        told += step
    assert len(told) == 1_000
    assert {(one.rule_id, one.series_key) for one in told} == {
        (one.rule_id, one.series_key) for one in expected
    }


def test_taking_what_had_no_room_is_done_in_steps_and_can_be_left(limited, rule, begin):
    evaluator = limited(many(rule, 10), watches_max=400)
    for number in range(40):
        evaluator.observe("web-1", core(number), begin, 5)
        evaluator.observe("web-2", core(number), begin, 5)
        evaluator.observe("web-3", core(number), begin, 5)
    evaluator.tick(begin)
    evaluator.forget("web-1", begin)
    before = evaluator.work
    left_at = evaluator.watches_count
    for _step in evaluator.tick_steps(begin + 1, work_max=50):
        assert evaluator.work - before <= 50 + 11
        before = evaluator.work
        if evaluator.watches_count > left_at:
            break
    assert left_at < evaluator.watches_count < 400
    for _step in evaluator.tick_steps(begin + 2, work_max=10):
        pass
    assert evaluator.watches_count == 400


def test_a_part_of_a_snapshot_is_small_however_many_rules_watch_a_series(limited, rule, begin):
    evaluator = limited(many(rule, 40))
    for number in range(100):
        evaluator.observe("web-1", core(number), begin, 5)
    parts = list(evaluator.snapshot_chunks(50))
    assert max(part.count(b'["r0') for part in parts) <= 50 * 4 + 40
    again = limited(many(rule, 40))
    again.restore(b"".join(parts))
    assert again.snapshot() == evaluator.snapshot()


def test_a_part_of_a_snapshot_has_few_of_many_rules(limited, rule):
    for count in (0, 1, 99, 100, 101, 200, 350):
        evaluator = limited(many(rule, count))
        parts = list(evaluator.snapshot_chunks())
        assert max(part.count(b'"rule_id"') for part in parts) == min(count, 100)
        again = limited([])
        again.restore(b"".join(parts))
        assert again.snapshot() == evaluator.snapshot()


def test_a_window_is_work_too(limited, rule, begin):
    evaluator = limited([rule(agg="avg", agg_seconds=10_000)])
    for at in range(320):
        evaluator.observe("web-1", core(0), begin + at, 5)
    before = evaluator.work
    evaluator.observe("web-1", core(0), begin + 320, 5)
    assert evaluator.work - before == 11


def test_a_rule_over_a_series_takes_little_memory(limited, rule, begin):
    rules = many(rule, 100)
    evaluator = limited(rules)
    series = [core(number) for number in range(200)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for one in series:
            evaluator.observe("web-1", one, begin, 5)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert evaluator.watches_count == 20_000
    assert held / 20_000 < 150


@pytest.mark.parametrize("agg", [{}, {"agg": "max", "agg_seconds": 60}])
def test_a_rule_that_raises_stops_no_other(limited, rule, begin, agg):
    """Whatever one rule does when it judges, its neighbours are judged."""
    evaluator = limited([rule(rule_id="a"), rule(rule_id="b", **agg), rule(rule_id="c")])

    def broken(value, threshold):
        raise ZeroDivisionError("float division by zero")

    evaluator._registry.book.rules["b"].compare = broken
    told = [evaluator.observe("web-1", core(0), begin + at, 95) for at in range(3)]
    assert [[one.rule_id for one in each] for each in told] == [["a", "c"], [], []]
    assert evaluator.drops == {"rule_failed": 3}
    (found,) = evaluator.take_unjudged()
    assert (found.reason, found.rule_id, found.server_id) == ("rule_failed", "b", "web-1")
    assert (found.bound, found.error) == (None, "ZeroDivisionError('float division by zero')")


@pytest.mark.parametrize("agg", [{}, {"agg": "max", "agg_seconds": 60}])
def test_a_rule_that_raises_at_a_point_of_before_stops_no_other(limited, rule, begin, agg):
    """What raised when the point was judged raises after a restart as well."""
    evaluator = limited([rule(rule_id=name, for_seconds=20, **agg) for name in "abc"])
    evaluator.observe("web-1", core(0), begin, 95)

    def broken(value, threshold):
        raise ZeroDivisionError("float division by zero")

    evaluator._registry.book.rules["b"].compare = broken
    evaluator.remember("web-1", core(0), begin + 10, 97)
    assert evaluator.drops == {"rule_failed": 1}
    told = evaluator.observe("web-1", core(0), begin + 20, 96)
    assert [(one.rule_id, one.peak_value) for one in told] == [("a", 97), ("c", 97)]


class _Broken(Watch):
    __slots__ = ()

    def fall_silent(self, now):
        raise OverflowError(now)


def test_a_rule_that_raises_at_a_tick_stops_no_other(limited, rule, begin):
    rules = [rule(rule_id=name, no_data="alert", no_data_after_seconds=60) for name in "abc"]
    evaluator = limited(rules)
    evaluator.observe("web-1", core(0), begin, 5)
    (tracked,) = evaluator._registry
    tracked.watches[1].__class__ = _Broken
    for at in (50, 100):
        evaluator.host_seen("web-1", begin + at)
    assert [one.rule_id for one in evaluator.tick(begin + 100)] == ["a", "c"]
    assert evaluator.drops == {"rule_failed": 1}


texts = st.sampled_from(["", "a", "b"])
matchers = st.fixed_dictionaries(
    {
        "label": st.sampled_from(["x", "y"]),
        "op": st.sampled_from(["eq", "ne", "re", "nre"]),
        "value": texts,
    }
)
rule_fields = st.fixed_dictionaries(
    {"matchers": st.lists(matchers, max_size=3)},
    optional={"servers": st.lists(st.sampled_from(["web-1", "web-2", "web-*"]), min_size=1)},
)


@given(
    st.lists(rule_fields, max_size=12),
    st.sampled_from(["web-1", "web-2", "db"]),
    st.dictionaries(st.sampled_from(["x", "y", "z"]), texts),
)
def test_the_candidates_are_all_that_may_meet_in_their_order(rule, found, server, labels):
    evaluator = Evaluator(company_id="acme")
    evaluator.set_rules([rule(rule_id=f"r{n}", **each) for n, each in enumerate(found)], 0.0)
    compiled = tuple(evaluator._registry.book.rules.values())
    series = Series(name="cpu", labels=labels)
    candidates = MetricRules(compiled).candidates(server, series)
    assert list(candidates) == [each for each in compiled if each in candidates]
    assert [each for each in candidates if each.meets(server, series)] == [
        each for each in compiled if each.meets(server, series)
    ]
