"""What silence does to an alert, and who must have been seen for it (A11)."""

import pytest

from ahrules.threshold import Series

OPENED = ("opened", "no_data")
RESOLVED = ("resolved", "no_data")
RETURNED = ("resolved", "data_returned")


@pytest.fixture(scope="session", name="quiet")
def _quiet(bench, rule):
    """A bench of one rule whose series sent this for 400 s, a tick and a point every 10 s."""

    def make(value, **fields):
        one = bench(rule(**fields))
        for at in range(0, 401, 10):
            one.seen(at)
            one.tick(at)
            one.point(at, value)
        return one

    return make


def test_a11_a_host_that_is_down_is_no_alert_of_its_series(quiet):
    one = quiet(5, no_data="alert")
    one.seen(430)  # its last sign of life came after the last point
    assert one.ticks(410, 5_000, seen=False) == []


def test_a11_a_host_that_is_up_without_a_series_is_an_alert_of_silence_only(quiet):
    one = quiet(5, no_data="alert")
    assert one.ticks(410, 5_000) == [(700, *OPENED)]
    told = one.told[-1]
    assert (told.value, told.peak_value, told.started_at) == (None, None, told.at)
    assert one.state == "SILENT"


def test_the_host_must_be_seen_as_late_as_the_series_is_silent(quiet):
    one = quiet(5, no_data="alert")
    one.seen(699)
    assert one.ticks(410, 900, seen=False) == []
    one.seen(700)
    assert one.tick(910) == [OPENED]


@pytest.mark.parametrize(
    ("policy", "value", "told", "state"),
    [
        ("ok", 5, [], "OK"),
        ("ok", 95, [(700, *RESOLVED)], "OK"),
        ("keep", 5, [], "OK"),
        ("keep", 95, [], "FIRING"),
        ("alert", 5, [(700, *OPENED)], "SILENT"),
        ("alert", 95, [], "FIRING"),
    ],
)
def test_each_policy(quiet, policy, value, told, state):
    one = quiet(value, no_data=policy)
    assert one.ticks(410, 2_000) == told
    assert one.state == state


@pytest.mark.parametrize(
    ("policy", "told", "state"),
    [("ok", [], "OK"), ("keep", [], "PENDING"), ("alert", [(700, *OPENED)], "SILENT")],
)
def test_each_policy_over_pending(quiet, policy, told, state):
    one = quiet(95, no_data=policy, for_seconds=3_600)
    assert one.state == "PENDING"
    assert one.ticks(410, 1_000) == told
    assert one.state == state


@pytest.mark.parametrize(
    ("policy", "told", "state"),
    [("ok", [(720, *RESOLVED)], "OK"), ("keep", [], "KEPT"), ("alert", [], "KEPT")],
)
def test_each_policy_over_an_alert_that_is_kept(quiet, policy, told, state):
    one = quiet(95, no_data=policy, keep_firing_seconds=3_600)
    one.seen(410)
    one.tick(410)
    one.point(420, 5)
    assert one.state == "KEPT"
    assert one.ticks(420, 1_000) == told
    assert one.state == state


def test_an_alert_of_silence_ends_with_the_first_point_which_is_then_judged(quiet):
    one = quiet(5, no_data="alert")
    one.ticks(410, 700)
    assert one.point(720, 5) == [RETURNED]
    assert (one.told[-1].value, one.told[-1].duration_seconds) == (5, 20)
    other = quiet(5, no_data="alert")
    other.ticks(410, 700)
    assert other.point(720, 95) == [RETURNED, ("opened", "condition")]
    first, second = other.told[-2:]
    assert (first.started_at, second.started_at) == (first.at - 20, second.at)
    waiting = quiet(5, no_data="alert", for_seconds=60)
    waiting.ticks(410, 700)
    assert waiting.point(720, 95) == [RETURNED]
    assert waiting.state == "PENDING"


def test_a_point_from_before_the_alert_of_silence_ends_it_without_a_negative_duration(quiet):
    one = quiet(5, no_data="alert")
    one.ticks(410, 700)
    assert one.point(650, 5) == [RETURNED]
    assert (one.told[-1].duration_seconds, one.told[-1].at) == (0, one.told[-2].at)


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf")])
def test_a1_points_that_are_no_data_are_silence(quiet, nothing):
    one = quiet(5, no_data="alert")
    for at in range(410, 700, 10):
        one.seen(at)
        assert one.tick(at) == one.point(at, nothing) == []
    one.seen(700)
    assert one.tick(700) == [OPENED]
    assert one.point(700, nothing) == []


def test_a_backlog_that_drains_is_no_silence(quiet):
    """The agent was away for an hour and now sends what it kept, oldest first."""
    one = quiet(5, no_data="alert")
    one.ticks(410, 4_000, seen=False)
    told = one.ticks(4_010, 4_030)
    for number in range(60):
        at = 4_040 + number * 10
        one.seen(at)
        told += one.tick(at)
        told += one.point(410 + number * 60, 5)
    # The host was away as long as its series: the silence of that time is not the series'.
    assert told == []


def test_after_a_start_a_full_window_passes_before_silence_counts(quiet):
    one = quiet(5, no_data="alert")
    one.restart()
    assert one.ticks(5_000, 5_290) == []
    assert one.ticks(5_300, 5_300) == [(5_300, *OPENED)]


@pytest.mark.parametrize("jump", [130, 100_000, -800, -1_000])
def test_who_did_not_tick_cannot_tell_silence(quiet, jump):
    """The process slept, was blocked, or its clock was set."""
    one = quiet(5, no_data="alert")
    one.ticks(410, 680)
    begin = 680 + jump
    one.seen(begin)
    assert one.ticks(begin, begin + 290) == []
    # After a step back the last point lies ahead, and silence counts from there; where it lies
    # more than 600 s ahead, from now.
    silent = (begin if begin < 400 - 600 else max(begin, 400)) + 300
    assert one.ticks(begin + 300, silent) == [(silent, *OPENED)]


def test_a_rule_that_comes_when_a_series_is_long_silent_waits_a_window(quiet, rule):
    one = quiet(5, no_data="keep")
    one.ticks(410, 2_000)
    both = [rule(no_data="keep"), rule(rule_id="r2", no_data="alert")]
    one.rules(*both, at=2_000)
    assert one.ticks(2_010, 2_290) == []
    assert one.ticks(2_300, 2_300) == [(2_300, *OPENED)]


def test_rules_have_their_own_window_or_the_evaluators(bench, rule):
    fields = {"no_data": "alert"}
    one = bench(rule(**fields), rule(rule_id="r2", no_data_after_seconds=60, **fields))
    one.tick(0)
    one.point(0, 5)
    assert one.ticks(10, 400) == [(60, *OPENED), (300, *OPENED)]
    assert [told.rule_id for told in one.told] == ["r2", "r"]
    other = bench(rule(**fields), no_data_after_seconds=100)
    other.tick(0)
    other.point(0, 5)
    assert other.ticks(10, 400) == [(100, *OPENED)]


def test_an_agent_whose_clock_is_ahead_or_behind_raises_no_false_alarm(bench, rule):
    for skew in (-3_600, -60, 60, 290):
        one = bench(rule(no_data="alert"))
        for at in range(0, 2_000, 10):
            one.seen(at)
            assert one.tick(at) == []
            assert one.point(at + skew, 5) == []


def test_a_series_that_falls_silent_again_is_noticed_again(quiet):
    one = quiet(95, no_data="ok", for_seconds=3_600)
    assert one.ticks(410, 700) == []
    assert one.state == "OK"
    one.points([95, 95], begin=710)
    assert one.ticks(720, 1_010) == []
    assert one.state == "PENDING"
    one.ticks(1_020, 1_030)
    assert one.state == "OK"


def test_a_host_of_which_nothing_is_held_is_not_remembered(bench, rule):
    one = bench(rule())
    for number in range(100):
        one.evaluator.host_seen(f"web-{number}", 0.0)
    assert one.evaluator.series_count == 0
    other = Series(name="mem")
    assert one.point(0, 95, series=other) == []
    assert one.evaluator.series_count == 0


def test_a_clock_that_is_no_number_is_refused(bench, rule):
    with pytest.raises(ValueError, match="now is nan; give Unix seconds"):
        bench(rule()).tick(float("nan"))


@pytest.mark.parametrize("alive", [False, True])
def test_a11_a_clock_that_was_an_hour_ahead_and_is_set_right_changes_no_judgement_of_silence(
    bench, rule, alive
):
    told = []
    for ahead in (3_600, 0):
        one = bench(rule(no_data="alert"))
        for at in range(0, 401, 10):
            one.tick(at + ahead)
            one.point(at, 5)
            one.seen(at + ahead)
        one.tick(405)
        one.point(410, 5)
        one.seen(410)
        told.append(one.ticks(420, 5_000, seen=alive))
    assert told[0] == told[1]
    assert len(told[0]) == alive


@pytest.mark.fault
@pytest.mark.parametrize("policy", ["alert", "ok"])
def test_a11_a_host_that_comes_back_gives_its_series_time_to_come_too(quiet, policy):
    """A11: silence that the host shares is none of its series; it counts from the host's return."""
    value = 95 if policy == "ok" else 5
    one = quiet(value, no_data=policy)
    assert one.ticks(410, 2_000, seen=False) == []
    assert one.ticks(2_010, 2_200) == []
    assert one.point(2_205, value) == []
    silent = quiet(value, no_data=policy)
    silent.ticks(410, 2_000, seen=False)
    told = OPENED if policy == "alert" else RESOLVED
    assert silent.ticks(2_010, 3_000) == [(2_310, *told)]


def test_a_host_that_is_seen_more_seldom_than_the_rule_is_patient_is_told_with_its_second_sign(
    quiet,
):
    one = quiet(5, no_data="alert")
    told = []
    for at in range(410, 3_000, 10):
        if at % 400 == 0:
            one.seen(at)
        told += [(at, *each) for each in one.tick(at)]
    assert told == [(1_200, *OPENED)]


def test_each_rule_counts_the_return_by_its_own_patience(bench, rule):
    one = bench(
        rule(no_data="alert"), rule(rule_id="r2", no_data="alert", no_data_after_seconds=60)
    )
    one.ticks(0, 0)
    one.point(0, 5)
    # Away for 200 s: a return for the one of 60 s, none for the one of 300 s.
    assert one.ticks(10, 190, seen=False) == []
    assert one.ticks(200, 400) == [(260, *OPENED), (300, *OPENED)]
    assert [told.rule_id for told in one.told] == ["r2", "r"]


@pytest.mark.parametrize("between", ["a point", "a restart", "a pause of the ticks"])
def test_a_return_is_one_again_after_a_point_and_after_a_start(quiet, between):
    one = quiet(5, no_data="alert")
    assert one.ticks(410, 1_400, seen=False) == []
    assert one.ticks(1_410, 1_500) == []
    if between == "a restart":
        one.restart()
    begin = 100_000 if between == "a pause of the ticks" else 1_510
    assert one.ticks(begin, begin) == []
    if between == "a point":
        one.point(begin + 5, 5)
    assert one.ticks(begin + 10, begin + 1_000, seen=False) == []
    assert one.ticks(begin + 1_010, begin + 1_310) == [(begin + 1_310, *OPENED)]


def test_a_new_server_did_not_come_back(bench, rule):
    """What is held of it begins with its first point, and so does what is known of it."""
    one = bench(rule(no_data="alert"))
    one.ticks(0, 1_000)
    one.point(1_005, 5)
    assert one.ticks(1_010, 1_100, seen=False) == []
    assert one.ticks(1_110, 1_310) == [(1_310, *OPENED)]
