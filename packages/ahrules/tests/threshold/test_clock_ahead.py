"""A clock that was hours ahead: once it is right, alerts move again (C17)."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules.threshold import Evaluator, Series

AHEAD = 13 * 3_600
FIRES = ("opened", "condition")
ENDS = ("resolved", "condition")


@pytest.fixture(name="went_wrong")
def _went_wrong(bench, rule):
    """A bench at 100 s whose ticks and points were 13 h ahead until now."""

    def make(*values, **fields):
        one = bench(rule(**fields))
        for number, value in enumerate(values):
            at = AHEAD + number * 10
            one.seen(at)
            one.tick(at)
            one.point(at, value)
        one.seen(100)
        one.tick(100)
        return one

    return make


@pytest.mark.fault
def test_an_alert_ends_and_opens_as_soon_as_the_clock_is_right(went_wrong):
    """C17: both clocks were 13 h ahead; the first tick that is right lets points count again."""
    one = went_wrong(95, 95)
    assert (one.state, one.told[0].at - one.told[0].started_at) == ("FIRING", 0)
    assert one.point(110, 5) == [ENDS]
    assert one.told[-1].duration_seconds == 10
    assert one.point(120, 95) == [FIRES]
    assert one.evaluator.drops == {}


def test_how_long_a_condition_held_is_not_known(went_wrong):
    pending = went_wrong(95, 95, for_seconds=60)
    assert pending.state == "OK"
    assert pending.points([95] * 6, begin=110) == []
    assert pending.point(170, 95) == [FIRES]
    kept = went_wrong(95, 5, keep_firing_seconds=60)
    assert kept.state == "FIRING"
    assert kept.points([5] * 6, begin=110) == []
    assert kept.point(170, 5) == [ENDS]


def test_reminders_count_from_the_time_that_is_right(went_wrong):
    one = went_wrong(*[95] * 10, reminder_seconds=20)
    assert ("reminder", "condition") in [(told.kind.value, told.reason.value) for told in one.told]
    assert [at for at, *_ in one.ticks(110, 160)] == [120, 140, 160]


def test_reminders_of_an_alert_from_before_go_on_by_their_grid(bench, rule):
    one = bench(rule(reminder_seconds=20, no_data="keep"))
    one.tick(0)
    one.point(0, 95)
    for at in (AHEAD, AHEAD + 10):
        one.tick(at)
        one.point(at, 95)
    assert [at for at, *_ in one.ticks(20, 70)] == [40, 60]


def test_a_window_goes_on_with_the_newest_value(went_wrong):
    one = went_wrong(100, 80, agg="avg", agg_seconds=30)
    # The last one, 80, counts as of 100 s, where the clock was set right.
    assert one.point(110, 102) == [FIRES]
    assert one.told[-1].value == 91
    assert one.evaluator.drops == {}


def test_a_window_that_began_behind_the_newest_point_stays_empty(bench, rule):
    one = bench(rule(rule_id="other"))
    one.tick(AHEAD)
    one.point(AHEAD, 10)
    one.rules(rule(rule_id="other"), rule(agg="avg", agg_seconds=30), at=AHEAD)
    one.tick(100)
    assert one.point(110, 95) == [FIRES, FIRES]
    assert [told.value for told in one.told] == [95, 95]


def test_silence_counts_from_when_the_clock_was_right(went_wrong):
    one = went_wrong(5, 5, no_data="alert")
    assert one.ticks(110, 400) == [(400, "opened", "no_data")]


@pytest.mark.parametrize("kept", [False, True])
def test_a_restart_does_not_keep_it(bench, rule, kept):
    one = bench(rule())
    one.tick(AHEAD)
    one.point(AHEAD, 95)
    if kept:
        one.tick(100)
    one.restart()
    one.tick(110)
    assert one.point(120, 5) == [ENDS]


def test_what_was_turned_back_is_told_as_moved(went_wrong):
    one = went_wrong(5)
    assert one.evaluator.take_moved() == (("web-1", one.series.key),)


def test_ahead_seconds_must_be_above_0():
    with pytest.raises(ValueError, match="ahead_seconds is 0; it must be a number above 0"):
        Evaluator(company_id="acme", ahead_seconds=0)


steps = st.lists(
    st.tuples(st.integers(1, 30), st.integers(-250, 290), st.sampled_from([5.0, 92.0, 95.0])),
    max_size=40,
)


@given(steps)
def test_points_that_the_door_lets_in_turn_nothing_back(rule, given_steps):
    """A3: no clock is ahead by more than the bound, and late points move nothing, as without it."""
    rules = [
        rule(for_seconds=20, keep_firing_seconds=20, no_data="keep"),
        rule(rule_id="w", agg="avg", agg_seconds=60, reminder_seconds=40),
    ]
    ours, plain = (Evaluator(company_id="acme", ahead_seconds=seconds) for seconds in (300.0, 1e12))
    series, now = Series(name="cpu"), 1_796_000_000.0
    for one in (ours, plain):
        one.set_rules(rules, now)
    for passed, skew, value in given_steps:
        now += passed
        for told in zip(
            *(
                [*one.tick(now), *one.observe("web-1", series, now + skew, value)]
                for one in (ours, plain)
            ),
            strict=True,
        ):
            assert attrs.asdict(told[0]) == attrs.asdict(told[1])
    assert ours.snapshot() == plain.snapshot()
