"""How much is held, and that what is not is counted."""

import pytest

from ahrules.threshold import Evaluator, EvaluatorBounds, Series


@pytest.fixture(scope="session", name="limited")
def _limited(rule, begin):
    def make(*rules, idle_seconds=86_400.0, **bounds):
        evaluator = Evaluator(
            company_id="acme", idle_seconds=idle_seconds, bounds=EvaluatorBounds(**bounds)
        )
        evaluator.set_rules(rules or [rule()], begin)
        evaluator.tick(begin)
        return evaluator

    return make


def core(number):
    return Series(name="cpu", labels={"core": str(number)})


def test_series_beyond_the_bound_are_counted_and_those_held_work(limited, begin):
    evaluator = limited(series_max=3)
    told = [evaluator.observe("web-1", core(number), begin, 95) for number in range(5)]
    assert [len(one) for one in told] == [1, 1, 1, 0, 0]
    assert evaluator.series_count == 3
    assert evaluator.drops == {"series_max": 2}
    assert evaluator.observe("web-1", core(0), begin + 1, 5)
    evaluator.forget("web-1", begin)
    assert evaluator.observe("web-1", core(4), begin + 1, 95)


def test_long_keys_and_many_keys_have_bounds(limited, begin):
    evaluator = limited(key_chars_max=20, key_chars_total_max=30)
    long = Series(name="cpu", labels={"path": "/" * 20})
    assert evaluator.observe("web-1", long, begin, 95) == []
    assert evaluator.observe("web-1", core(0), begin, 95)
    assert evaluator.observe("web-1", core(1), begin, 95)
    assert evaluator.observe("web-1", core(2), begin, 95) == []
    assert evaluator.drops == {"key_chars_max": 1, "key_chars_total_max": 1}
    evaluator.forget("web-1", begin)
    assert evaluator.observe("web-1", core(2), begin, 95)


def test_a_rule_that_is_full_takes_another_series_once_one_leaves(limited, rule, begin):
    evaluator = limited(
        rule(), rule(rule_id="r2", servers=["web-2"]), rule_series_max=2, idle_seconds=1_000
    )
    for number in range(4):
        evaluator.observe("web-1", core(number), begin, 5)
    assert evaluator.drops == {"rule_series_max": 2}
    for at in range(100, 1_300, 100):
        for number in (1, 2, 3):
            evaluator.observe("web-1", core(number), begin + at, 5)
        evaluator.tick(begin + at)
    assert evaluator.series_count == 3  # the first one was idle and left
    assert evaluator.observe("web-1", core(2), begin + 2_000, 95)
    # The last one still waits, and was counted once.
    assert evaluator.observe("web-1", core(3), begin + 2_000, 95) == []
    assert evaluator.drops == {"rule_series_max": 2}
    kept = evaluator.snapshot()
    again = limited(rule_series_max=2)
    again.restore(kept)
    again.forget("web-9", begin)
    assert again.state("r", "web-1", core(3).key) is None
    only_one = [{"label": "core", "op": "eq", "value": "3"}]
    again.set_rules([rule(), rule(rule_id="r3", matchers=only_one)], begin)
    assert again.state("r3", "web-1", core(3).key).name == "OK"


def test_a_series_waits_for_a_full_rule_over_restarts_and_changes_of_other_rules(
    limited, rule, begin
):
    first, second = rule(), rule(rule_id="r2")
    evaluator = limited(first, second, rule_series_max=1)
    for number in range(2):
        evaluator.observe(f"web-{number}", core(0), begin, 5)
    kept = evaluator.snapshot()
    evaluator = limited(rule_series_max=1)
    evaluator.restore(kept)
    # The first rule lets web-0 go and takes web-1; the second is full still.
    changed = rule(servers=["web-1"], version=2)
    evaluator.set_rules([changed, second], begin)
    for at in (1, 2):
        evaluator.tick(begin + at)
        assert evaluator.state("r", "web-1", core(0).key).name == "OK"
        assert evaluator.state("r2", "web-1", core(0).key) is None
    evaluator.set_rules([changed, second, rule(rule_id="r3", servers=["web-1"])], begin)
    evaluator.forget("web-0", begin)
    evaluator.tick(begin + 3)
    assert evaluator.state("r2", "web-1", core(0).key).name == "OK"


def test_a_series_waits_for_the_second_of_two_full_rules(limited, rule, begin):
    holders = [rule(rule_id=name, servers=[name, "late"]) for name in ("r1", "r2")]
    evaluator = limited(*holders, rule_series_max=1)
    for server in ("r1", "r2", "late"):
        evaluator.observe(server, core(0), begin, 5)
    for number, name in enumerate(("r1", "r2"), start=1):
        assert evaluator.state(name, "late", core(0).key) is None
        evaluator.forget(name, begin)
        evaluator.tick(begin + number)
        assert evaluator.state(name, "late", core(0).key).name == "OK"
    assert evaluator.drops == {"rule_series_max": 2}


def test_a_series_that_no_rule_meets_is_not_idle_when_it_comes(limited, rule, begin):
    evaluator = limited(rule(servers=["db-1"]), idle_seconds=600)
    for at in range(0, 2_000, 100):
        evaluator.tick(begin + at)
    evaluator.observe("web-1", core(0), begin, 5)
    evaluator.tick(begin + 2_000)
    assert evaluator.series_count == 1


def test_an_idle_series_leaves_unless_its_alert_is_open(limited, rule, begin):
    evaluator = limited(
        rule(no_data="keep"),
        rule(rule_id="r2", threshold=200, no_data_after_seconds=7_200),
        idle_seconds=3_600,
    )
    evaluator.observe("web-1", core(0), begin, 95)
    evaluator.observe("web-1", core(1), begin, 5)
    evaluator.observe("web-2", core(1), begin, 5)
    for at in range(0, 7_200, 60):
        evaluator.tick(begin + at)
        # Not before the longest silence that a rule asks about.
        assert evaluator.series_count == 3
        assert evaluator.servers == ("web-1", "web-2")
    evaluator.tick(begin + 7_200)
    assert (evaluator.series_count, evaluator.servers) == (1, ("web-1",))
    assert evaluator.state("r", "web-1", core(0).key).name == "FIRING"


def test_a_series_that_no_rule_meets_costs_no_state_and_leaves(limited, rule, begin):
    evaluator = limited(rule(servers=["db-1"]), idle_seconds=600)
    for at in (0, 100):
        assert evaluator.observe("web-1", core(0), begin + at, 95) == []
        assert evaluator.observe("web-1", core(0), begin + at, None) == []
    assert (evaluator.series_count, evaluator.drops) == (1, {})
    for at in range(0, 601, 100):
        evaluator.tick(begin + at)
    assert evaluator.series_count == 0


def test_a_metric_of_no_rule_is_not_even_held(limited, begin):
    evaluator = limited()
    for number in range(100):
        evaluator.observe("web-1", Series(name=f"mem{number}"), begin, 95)
    assert evaluator.series_count == 0


def test_the_drops_are_a_copy(limited, begin):
    evaluator = limited()
    with pytest.raises(TypeError):
        evaluator.drops["late"] = 1


@pytest.mark.parametrize("name", ["no_data_after_seconds", "blind_seconds", "idle_seconds"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_options_that_mean_nothing_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be a number above 0"):
        Evaluator(company_id="acme", **{name: value})


def test_bounds_that_hold_nothing_are_refused():
    for name in ("series_max", "rule_series_max", "window_points_max", "key_chars_max"):
        with pytest.raises(ValueError):
            EvaluatorBounds(**{name: 0})


def test_after_a_restart_with_more_room_a_rule_takes_the_series_it_was_too_full_for(
    limited, rule, begin
):
    small = limited(rule_series_max=2)
    for number in range(4):
        small.observe("web-1", core(number), begin, 5)
    large = Evaluator(company_id="acme", bounds=EvaluatorBounds(rule_series_max=100))
    large.restore(small.snapshot())
    large.set_rules([rule()], begin)
    large.tick(begin + 10)
    told = [large.observe("web-1", core(number), begin + 20, 95) for number in range(4)]
    assert [len(one) for one in told] == [1, 1, 1, 1]


def test_a_rule_that_changes_keeps_its_series_and_takes_no_more_than_its_bound(
    limited, rule, begin
):
    evaluator = limited(rule_series_max=2)
    for server, number in (("web-1", 0), ("web-2", 0), ("web-1", 1)):
        evaluator.observe(server, core(number), begin, 5)
    evaluator.set_rules([rule(version=2)], begin)
    watched = [
        (server, number)
        for server, number in (("web-1", 0), ("web-1", 1), ("web-2", 0))
        if evaluator.state("r", server, core(number).key) is not None
    ]
    assert watched == [("web-1", 0), ("web-2", 0)]
