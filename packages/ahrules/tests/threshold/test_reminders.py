"""Reminders keep their grid (A8)."""

import pytest

MINUTE = 60
DAY = 24 * 3600


@pytest.mark.parametrize("tick_every", [10, 7])
@pytest.mark.parametrize("slow", [0, 5])
def test_a8_the_kth_reminder_is_k_times_20_minutes_after_the_start(bench, rule, tick_every, slow):
    """24 hours, 5 s to send each, one restart in the middle."""
    one = bench(rule(reminder_seconds=20 * MINUTE, no_data="keep"))
    at, restarted = 0, False
    one.tick(0)
    assert one.point(3, 95) == [("opened", "condition")]
    while at <= DAY:
        at += tick_every + (slow if one.tick(at) else 0)
        if at > DAY / 2 + 500 and not restarted:  # between two of them
            one.restart()
            restarted = True
    opened, *reminders = one.told
    assert {told.kind for told in reminders} == {"reminder"}
    assert len(reminders) == 72 - 1  # the 72nd is due at 24 h and 3 s
    for k, told in enumerate(reminders, start=1):
        assert 0 <= told.at - (opened.started_at + k * 20 * MINUTE) < tick_every + slow
        assert (told.started_at, told.reason) == (opened.started_at, "condition")
        assert told.duration_seconds == told.at - told.started_at


def test_reminders_that_were_missed_are_told_once_and_the_grid_stays(bench, rule):
    one = bench(rule(reminder_seconds=60, no_data="keep"))
    one.tick(0)
    one.point(0, 95)
    one.restart()
    assert [at for at, kind, _ in one.ticks(1_000, 1_200) if kind == "reminder"] == [
        1_000,
        1_020,
        1_080,
        1_140,
        1_200,
    ]


def test_an_alert_that_begins_in_the_past_is_not_reminded_at_once(bench, rule):
    one = bench(rule(reminder_seconds=60, no_data="keep"))
    one.tick(3_600)
    assert one.point(0, 95) == [("opened", "condition")]
    assert [at for at, *_ in one.ticks(3_610, 3_700)] == [3_660]


def test_an_alert_that_opens_before_the_first_tick_is_not_told_beside_a_reminder(bench, rule):
    """After a restart points come first: those of a backlog open what is old already."""
    one = bench(rule(reminder_seconds=60, no_data="keep"), rule(rule_id="r2", threshold=99))
    one.restart()
    assert one.point(0, 95) == [("opened", "condition")]
    assert [at for at, *_ in one.ticks(3_610, 3_700)] == [3_660]


def test_an_alert_that_ended_and_began_again_before_the_first_tick_is_reminded_in_time(bench, rule):
    one = bench(rule(reminder_seconds=60, no_data="keep"))
    one.points([95, 5, 95])
    assert [at for at, *_ in one.ticks(100, 200)] == [140, 200]


def test_what_was_open_before_the_restart_is_reminded_although_a_point_came_first(bench, rule):
    one = bench(rule(reminder_seconds=60, no_data="keep"))
    one.tick(0)
    one.point(0, 95)
    one.restart()
    assert one.point(10, 96) == []
    assert [at for at, *_ in one.ticks(1_000, 1_030)] == [1_000, 1_020]


def test_an_opening_before_a_restore_leaves_nothing_behind(bench, rule):
    one = bench(rule(reminder_seconds=60, no_data="keep"))
    one.point(0, 95)
    kept = one.evaluator.snapshot()
    one.evaluator.restore(kept)
    assert one.ticks(600, 600) == [(600, "reminder", "condition")]


def test_no_reminder_after_the_end_and_none_without_an_interval(bench, rule):
    one = bench(rule(reminder_seconds=60), rule(rule_id="r2"))
    one.tick(0)
    one.points([95, 95, 5])
    assert one.ticks(30, 300) == []
    one.point(310, 95)
    assert [told.rule_id for told in one.told if told.kind == "reminder"] == []
    assert one.ticks(320, 430) == [(370, "reminder", "condition"), (430, "reminder", "condition")]


def test_reminders_go_on_while_an_alert_is_kept_and_while_its_series_is_silent(bench, rule):
    one = bench(rule(reminder_seconds=60, keep_firing_seconds=10_000, no_data="keep"))
    one.tick(0)
    one.points([95, 5])
    assert [at for at, *_ in one.ticks(10, 180)] == [60, 120, 180]
    other = bench(rule(reminder_seconds=60, no_data="alert", no_data_after_seconds=100))
    other.tick(0)
    other.point(0, 5)
    assert other.ticks(10, 230) == [
        (100, "opened", "no_data"),
        (160, "reminder", "no_data"),
        (220, "reminder", "no_data"),
    ]
    assert other.told[-1].value is None


def test_the_first_reminder_of_a_series_that_was_fine_for_long_is_in_time(bench, rule):
    one = bench(rule(reminder_seconds=60, no_data="keep", no_data_after_seconds=36_000))
    for at in range(0, 1_000, 10):
        one.tick(at)
        one.point(at, 5)
    one.point(1_000, 95)
    assert [at for at, *_ in one.ticks(1_000, 1_130)] == [1_060, 1_120]


def test_another_interval_begins_with_the_next_point_of_its_grid(bench, rule):
    one = bench(rule(reminder_seconds=600, no_data="keep"))
    one.tick(0)
    one.point(0, 95)
    assert one.ticks(10, 300) == []
    one.rules(rule(reminder_seconds=70, no_data="keep", version=2), at=300)
    assert [at for at, *_ in one.ticks(310, 430)] == [350, 420]


@pytest.mark.parametrize("seconds", [1.1, 1200.1, 33.3])
def test_a8_the_grid_holds_where_its_seconds_are_no_binary_fractions(bench, rule, seconds, begin):
    one = bench(rule(reminder_seconds=seconds, no_data="keep"))
    one.tick(0)
    one.point(0.2441125, 95)
    started = one.told[0].at
    for k in range(1, 200):
        assert one.evaluator.tick(started + (k - 0.01) * seconds) == []
        assert len(one.evaluator.tick(started + k * seconds)) == 1
