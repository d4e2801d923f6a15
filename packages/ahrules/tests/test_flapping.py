"""Alerts that open and resolve all the time."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import (
    FlapDetector,
    FlapSettings,
    FlapState,
    InstantError,
    SnapshotError,
    event_key,
    observe_alert,
    settle_alert,
)
from ahwire.hub import Event, EventSeverity, EventType

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
OPENED, RESOLVED, REMINDER = "alert.opened", "alert.resolved", "alert.reminder"


def at(minutes):
    return START + timedelta(minutes=minutes)


def event(kind, when, server="web1", **values):
    given = {
        "event_id": "0190b6f2-0000-7000-8000-000000000001",
        "type": EventType(kind),
        "seq": 1,
        "occurred_at": when if isinstance(when, datetime) else at(when),
        "company_id": "c1",
        "server_id": server,
        "rule_id": "cpu",
        "rule_version": 3,
        "series_key": "cpu{}",
        "severity": EventSeverity.WARNING,
        "value": 97.0,
        "reason": "condition",
        "suppressed": False,
        "labels": {"mount": "/"},
    }
    return Event(**(given | values))


def walk(detector, *inputs):
    """`(kind, minute)` in; a line of what went out for each: the event, then what came besides."""
    told = []
    for kind, minute in inputs:
        if kind == "tick":
            drafts, line = detector.tick(at(minute)), []
        else:
            step = detector.observe(event(kind, minute))
            drafts = step.drafts
            line = ["hidden" if step.event.suppressed else "told"]
        line += [f"{each.type.value} {each.labels['alert_state']}" for each in drafts]
        told.append(" ".join(line))
    return told


def test_four_changes_within_half_an_hour_flap_and_half_an_hour_of_quiet_settles():
    told = walk(
        FlapDetector(),
        (OPENED, 0),
        (RESOLVED, 5),
        (OPENED, 10),
        (RESOLVED, 15),
        (OPENED, 20),
        ("tick", 49),
        ("tick", 50),
        ("tick", 51),
        (RESOLVED, 52),
    )
    assert told == [
        "told",
        "told",
        "told",
        "hidden alert.flapping ok",
        "hidden",
        "",
        "alert.settled firing",
        "",
        "told",
    ]


def test_three_changes_do_not_flap_and_four_over_half_an_hour_do_not():
    assert walk(FlapDetector(), (OPENED, 0), (RESOLVED, 1), (OPENED, 2)) == ["told"] * 3
    slow = [(OPENED, 0), (RESOLVED, 11), (OPENED, 22), (RESOLVED, 33), (OPENED, 44)]
    assert walk(FlapDetector(), *slow) == ["told"] * 5


def test_the_edge_of_the_window_is_inside():
    def last(when):
        detector = FlapDetector()
        walk(detector, (OPENED, 0), (RESOLVED, 1), (OPENED, 2))
        return detector.observe(event(RESOLVED, when)).drafts

    assert [draft.type for draft in last(at(30))] == ["alert.flapping"]
    assert last(at(30) + TICK) == ()


def test_the_edge_of_the_quiet_is_settled_and_a_change_there_is_the_first_of_a_steady_alert():
    detector = FlapDetector()
    walk(detector, (OPENED, 0), (RESOLVED, 1), (OPENED, 2), (RESOLVED, 3))
    assert detector.next_look() == at(33)
    assert detector.tick(at(33) - TICK) == ()
    assert walk(detector, (OPENED, 33), (RESOLVED, 34), (OPENED, 35)) == [
        "told alert.settled ok",
        "told",
        "told",
    ]
    assert walk(detector, (RESOLVED, 36)) == ["hidden alert.flapping ok"]


def test_a_change_just_before_the_quiet_is_over_begins_it_anew():
    detector = FlapDetector()
    walk(detector, (OPENED, 0), (RESOLVED, 1), (OPENED, 2), (RESOLVED, 3))
    assert detector.observe(event(OPENED, at(33) - TICK)).event.suppressed
    assert detector.tick(at(62)) == ()
    assert [draft.occurred_at for draft in detector.tick(at(90))] == [at(63) - TICK]


def test_what_is_told_is_the_alert_s_own_with_its_state():
    detector = FlapDetector()
    walk(detector, (OPENED, 0), (RESOLVED, 1), (OPENED, 2))
    last = event(RESOLVED, 3, duration_seconds=60.0, peak_value=99.0)
    step = detector.observe(last)
    assert step.event.suppress_reason == "flapping"
    assert step.event.event_id == last.event_id
    (flapping,) = step.drafts
    assert flapping.labels == {"mount": "/", "alert_state": "ok", "flap_changes": 4}
    assert (flapping.rule_id, flapping.rule_version, flapping.server_id) == ("cpu", 3, "web1")
    assert (flapping.occurred_at, flapping.severity, flapping.value) == (at(3), "warning", 97.0)
    assert (flapping.reason, flapping.duration_seconds, flapping.peak_value) == (None, None, None)
    (settled,) = detector.tick(at(99))
    assert settled.labels == {"mount": "/", "alert_state": "ok"}
    # When it was quiet for long enough, not when somebody looked.
    assert (settled.occurred_at, settled.duration_seconds) == (at(33), 1_800.0)
    assert not settled.suppressed
    assert settled.event(event_id=last.event_id, seq=7).type is EventType.ALERT_SETTLED


def test_reminders_are_hidden_while_it_flaps_and_count_for_nothing():
    told = walk(
        FlapDetector(),
        (OPENED, 0),
        (REMINDER, 1),
        (REMINDER, 2),
        (RESOLVED, 3),
        (OPENED, 4),
        (RESOLVED, 5),
        (REMINDER, 6),
        ("tick", 35),
    )
    assert told == ["told"] * 5 + ["hidden alert.flapping ok", "hidden", "alert.settled ok"]


def test_the_same_event_again_is_no_change_and_goes_out_as_before():
    detector = FlapDetector()
    told = walk(detector, *[(OPENED, minute) for minute in range(6)])
    assert told == ["told"] * 6
    told = walk(detector, (RESOLVED, 6), (OPENED, 7), (RESOLVED, 8), (RESOLVED, 8))
    assert told == ["told", "told", "hidden alert.flapping ok", "hidden"]


def test_an_alert_that_was_open_for_hours_begins_to_flap_with_its_resolving():
    told = walk(
        FlapDetector(), (OPENED, 0), ("tick", 300), (RESOLVED, 301), (OPENED, 302), (RESOLVED, 303)
    )
    assert told == ["told", "", "told", "told", "told"]
    told = walk(
        FlapDetector(), (OPENED, 0), (RESOLVED, 300), (OPENED, 301), (RESOLVED, 302), (OPENED, 303)
    )
    assert told == ["told"] * 4 + ["hidden alert.flapping firing"]


def test_other_events_pass_and_what_is_hidden_already_still_counts():
    detector = FlapDetector()
    down = event("agent.down", 1)
    assert detector.observe(down).event is down
    assert len(detector) == 0
    silenced = {"suppressed": True, "suppress_reason": "silence:s"}
    for minute, kind in enumerate([OPENED, RESOLVED, OPENED]):
        detector.observe(event(kind, minute, **silenced))
    step = detector.observe(event(RESOLVED, 3, **silenced))
    assert step.event.suppress_reason == "silence:s"
    assert [draft.suppressed for draft in step.drafts] == [False]
    assert detector.observe(down).event is down


def test_an_event_from_before_the_newest_change_counts_as_if_it_came_with_that():
    detector = FlapDetector()
    assert walk(detector, (OPENED, 20), (RESOLVED, 25), (OPENED, 3), (RESOLVED, 2)) == [
        "told",
        "told",
        "told",
        "hidden alert.flapping ok",
    ]
    assert detector.next_look() == at(55)
    walk(detector, (OPENED, 1))
    assert detector.next_look() == at(55)


def test_alerts_are_apart():
    detector = FlapDetector()
    for minute, kind in enumerate([OPENED, RESOLVED, OPENED, RESOLVED]):
        step = detector.observe(event(kind, minute))
        for other in (
            event(OPENED, minute, server="db1"),
            event(OPENED, minute, company_id="c2"),
            event(OPENED, minute, rule_id="disk"),
            event(OPENED, minute, series_key="cpu{core=1}"),
        ):
            assert not detector.observe(other).event.suppressed
    assert step.drafts
    assert detector.flapping == {event_key(event(OPENED, 0))}
    assert len(detector) == 5


def test_settings_are_values_and_are_checked():
    quick = FlapSettings(changes=2, window_seconds=60, quiet_seconds=120)
    told = walk(FlapDetector(quick), (OPENED, 0), (RESOLVED, 1), ("tick", 2.9), ("tick", 3))
    assert told == ["told", "hidden alert.flapping ok", "", "alert.settled ok"]
    for wrong in (
        {"changes": 1},
        {"changes": 101},
        {"window_seconds": 0},
        {"quiet_seconds": float("nan")},
        {"quiet_seconds": 366 * 86_400 + 1},
        {"window_seconds": 366 * 86_400 + 1},
        {"quiet_seconds": float("inf")},
    ):
        with pytest.raises(ValueError):
            FlapSettings(**wrong)
    assert FlapSettings(window_seconds=366 * 86_400, changes=100).changes == 100
    with pytest.raises(ValueError, match="at least one"):
        FlapDetector(alerts_max=0)
    with pytest.raises(InstantError):
        FlapDetector().tick(datetime(2026, 6, 15))


def test_memory_is_bounded_and_the_steady_alert_of_longest_ago_is_forgotten_first():
    detector = FlapDetector(alerts_max=2)
    for minute, kind in enumerate([OPENED, RESOLVED, OPENED, RESOLVED]):
        detector.observe(event(kind, minute, server="flaps"))
    for minute, server in enumerate("abcb", 4):
        detector.observe(event(OPENED, minute, server=server))
        assert len(detector) == 2
    assert detector.forgotten_total == 3
    assert {key[1] for key in detector.flapping} == {"flaps"}
    full = FlapDetector(alerts_max=1)
    for minute, kind in enumerate([OPENED, RESOLVED, OPENED, RESOLVED]):
        full.observe(event(kind, minute, server="flaps"))
    for minute, kind in enumerate([OPENED, RESOLVED] * 5, 4):
        step = full.observe(event(kind, minute, server="a"))
        assert (step.event.suppressed, step.drafts) == (False, ())
    assert len(full) == 1
    assert [draft.server_id for draft in full.tick(at(60))] == ["flaps"]


def test_what_is_long_quiet_is_forgotten():
    detector = FlapDetector()
    walk(detector, (OPENED, 0))
    detector.tick(at(30))
    assert len(detector) == 1
    detector.tick(at(30) + TICK)
    assert len(detector) == 0
    assert detector.next_look() is None


def test_what_settled_is_told_in_the_order_in_which_it_did():
    detector = FlapDetector()
    for shift, server in ((5, "late"), (0, "early")):
        for minute, kind in enumerate([OPENED, RESOLVED, OPENED, RESOLVED]):
            detector.observe(event(kind, minute + shift, server=server))
    assert [draft.server_id for draft in detector.tick(at(60))] == ["early", "late"]


def test_a_restart_in_between_loses_and_repeats_nothing():
    script = [(OPENED, 0), (RESOLVED, 1), (OPENED, 2), (RESOLVED, 3), (OPENED, 4), ("tick", 34)]
    whole = walk(FlapDetector(), *script)
    for cut in range(len(script) + 1):
        before, after = FlapDetector(), FlapDetector()
        told = walk(before, *script[:cut])
        for minute, kind in enumerate([OPENED, RESOLVED, OPENED, RESOLVED]):
            after.observe(event(kind, minute, server="of-another-life"))
        after.observe(event(OPENED, 0, server="and-steady"))
        after.restore(json.loads(json.dumps(before.snapshot())))
        assert after.snapshot() == before.snapshot()
        assert told + walk(after, *script[cut:]) == whole


GOOD_KEY = ["c1", "web1", "cpu", "s", "", ""]


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"version": 0, "alerts": []},
        {"version": 1},
        {"version": 1, "alerts": [[]]},
        {"version": 1, "alerts": [[GOOD_KEY[1:], True, ["2026-06-15T12:00:00+00:00"], None, None]]},
        {
            "version": 1,
            "alerts": [[[*GOOD_KEY[1:], 1], True, ["2026-06-15T12:00:00Z"], None, None]],
        },
        {"version": 1, "alerts": [[GOOD_KEY, 1, ["2026-06-15T12:00:00+00:00"], None, None]]},
        {"version": 1, "alerts": [[GOOD_KEY, True, [], None, None]]},
        {"version": 1, "alerts": [[GOOD_KEY, True, ["2026-06-15T12:00:00"], None, None]]},
        {"version": 1, "alerts": [[GOOD_KEY, True, [7], None, None]]},
        {
            "version": 1,
            "alerts": [[GOOD_KEY, True, ["2026-06-15T12:00:00Z"], "2026-06-15T12:00:00Z", None]],
        },
    ],
)
def test_a_snapshot_that_cannot_be_read_is_refused_and_changes_nothing(data):
    detector = FlapDetector()
    walk(detector, (OPENED, 0))
    before = detector.snapshot()
    with pytest.raises(SnapshotError, match="start without it"):
        detector.restore(data)
    assert detector.snapshot() == before


scripts = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 5, 9, 10, 11, 14, 15, 16, 29, 30, 31]),
        st.sampled_from([OPENED, RESOLVED, OPENED, RESOLVED, REMINDER, "tick"]),
    ),
    max_size=40,
)


def slow_model(script, changes, window, quiet):
    """All changes in one list; every question is answered by a look through all of it."""
    past, begin, lines, minute = [], None, [], 0
    for pause, kind in script:
        minute += pause
        line = []
        if begin is not None and minute - past[-1][0] >= quiet:
            line = [f"alert.settled {'firing' if past[-1][1] else 'ok'}"]
            past, begin = [], None
        known = past and (begin is not None or minute - past[-1][0] <= window)
        hidden = begin is not None
        if kind in (OPENED, RESOLVED) and not (known and past[-1][1] == (kind == OPENED)):
            past.append((minute, kind == OPENED))
            if begin is None and sum(minute - when <= window for when, _ in past) >= changes:
                begin, hidden = minute, True
                line.append(f"alert.flapping {'firing' if kind == OPENED else 'ok'}")
        if kind != "tick":
            line = ["hidden" if hidden else "told", *line]
        lines.append(" ".join(line))
    return lines


@given(
    scripts, st.sampled_from([2, 3, 4]), st.sampled_from([10, 30]), st.sampled_from([10, 15, 30])
)
def test_the_detector_says_what_a_look_through_the_whole_past_says(script, changes, window, quiet):
    settings = FlapSettings(changes=changes, window_seconds=window * 60, quiet_seconds=quiet * 60)
    detector, minute, inputs = FlapDetector(settings), 0, []
    for pause, kind in script:
        minute += pause
        inputs.append((kind, minute))
    assert walk(detector, *inputs) == slow_model(script, changes, window, quiet)
    told = [draft.type for draft in detector.tick(at(minute + 100))]
    assert len(told) <= 1
    assert len(detector) == 0


@given(scripts)
def test_flapping_and_settled_come_in_turns_and_nothing_is_told_between(script):
    detector, minute, told = FlapDetector(), 0, []
    for pause, kind in script:
        minute += pause
        if kind == "tick":
            told += [draft.type for draft in detector.tick(at(minute))]
            continue
        step = detector.observe(event(kind, minute))
        told += [draft.type for draft in step.drafts if draft.type == "alert.settled"]
        told += [step.event.type] if not step.event.suppressed else []
        told += [draft.type for draft in step.drafts if draft.type == "alert.flapping"]
    told += [draft.type for draft in detector.tick(at(minute + 100))]
    flaps = False
    for kind in told:
        assert kind == "alert.settled" if flaps else kind != "alert.settled"
        flaps = kind == "alert.flapping"
    assert not flaps


def test_the_steps_of_one_alert_are_pure_functions():
    assert settle_alert(None, START, FlapSettings()).state is None
    step = observe_alert(None, event(OPENED, 0), FlapSettings())
    assert step.state == FlapState(firing=True, changed_at=(START,))
    assert settle_alert(step.state, START, FlapSettings()).state == step.state


def test_a_time_at_the_end_of_the_calendar_spoils_no_later_tick():
    detector = FlapDetector()
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    for kind in (OPENED, RESOLVED, OPENED, RESOLVED):
        detector.observe(event(kind, end))
    assert detector.tick(end) == ()
    assert detector.next_look() == datetime.max.replace(tzinfo=UTC)
    walk(detector, (OPENED, 0))
    assert len(detector.flapping) == 1


def test_an_alert_whose_server_was_taken_away_is_no_change():
    """A deletion says nothing of the value, and the alert of a server that comes back is new."""
    detector = FlapDetector()
    told = []
    for number in range(6):
        step = detector.observe(event(OPENED, 2 * number))
        told += [step.event.suppressed, *step.drafts]
        step = detector.observe(event(RESOLVED, 2 * number + 1, reason="forgotten"))
        told += [step.event.suppressed, *step.drafts]
        assert len(detector) == 0
    assert not any(told)


def test_an_alert_that_flaps_and_is_taken_away_settles_and_is_told():
    detector = FlapDetector()
    walk(detector, (OPENED, 0), (RESOLVED, 1), (OPENED, 2), (RESOLVED, 3), (OPENED, 4))
    step = detector.observe(event(RESOLVED, 6, reason="forgotten"))
    assert not step.event.suppressed
    (settled,) = step.drafts
    assert (settled.type, settled.labels["alert_state"]) == ("alert.settled", "ok")
    assert (settled.occurred_at, settled.duration_seconds) == (at(6), 180.0)
    assert len(detector) == 0
    assert detector.tick(at(100)) == ()
    assert detector.observe(event(RESOLVED, 101, server="web2", reason="forgotten")).drafts == ()


@given(scripts)
def test_what_is_taken_away_begins_anew_as_if_it_had_never_been(script):
    used, minute = FlapDetector(), 0
    for pause, kind in script:
        minute += pause
        walk(used, (kind, minute))
    used.observe(event(RESOLVED, minute, reason="forgotten"))
    later = [(OPENED, minute + n) if n % 2 else (RESOLVED, minute + n) for n in range(1, 7)]
    assert walk(used, *later) == walk(FlapDetector(), *later)
