"""What is owed when a silence ends."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silence_events import at, event, silence

from ahrules import (
    SilenceSet,
    SnapshotError,
    SuppressionTracker,
    compile_silences,
    event_key,
    mark_event,
)


def tracker(*silences, **values):
    return SuppressionTracker(compile_silences(silences), **values)


def stamp(draft, number):
    return draft.event(event_id=f"0190b6f2-0000-7000-8000-{number:012x}", seq=number)


def tell(tracker, minute, number=900):
    """What the collector does in a look: (type, reason, suppressed) of each event that goes out."""
    told = []
    for index, draft in enumerate(tracker.due(at(minute))):
        marked = tracker.mark(stamp(draft, number + index), at(minute))
        told.append((marked.type.value, marked.reason, marked.suppressed))
    return told


OWED = [("alert.opened", "silence_ended", False)]


def test_an_event_in_a_silence_is_marked_and_stays_the_same_otherwise():
    opened = event(value=97.0, labels={"mount": "/"})
    marked = tracker(silence(0, 10)).mark(opened, at(5))
    assert marked == attrs.evolve(opened, suppressed=True, suppress_reason="silence:s")
    assert tracker(silence(0, 10)).mark(opened, at(10)) == opened


def test_a5_when_a_silence_ends_and_the_condition_holds_one_event_follows_at_once():
    silences = tracker(silence(0, 10))
    silences.mark(event(value=97.0, labels={"mount": "/"}), at(5))
    assert silences.due(at(9)) == ()
    assert silences.next_look(at(5)) == at(10)
    assert silences.next_look(at(10)) == at(10)
    (draft,) = silences.due(at(10))
    assert (draft.type, draft.reason, draft.occurred_at) == (
        "alert.opened",
        "silence_ended",
        at(10),
    )
    assert (draft.value, draft.labels, draft.suppressed) == (97.0, {"mount": "/"}, False)
    assert draft.suppress_reason is None
    assert silences.due(at(11)), "given until it is marked"
    assert tell(silences, 11) == OWED
    assert tell(silences, 11) == []
    assert silences.next_look(at(11)) is None
    assert len(silences) == 0
    resolved = event("alert.resolved", 12)
    assert silences.mark(resolved, at(12)) == resolved


def test_a5_resolved_in_the_silence_and_true_again_is_one_event():
    silences = tracker(silence(0, 10))
    for minute, kind in enumerate(["alert.opened", "alert.resolved", "alert.opened"], 1):
        assert silences.mark(event(kind, minute, number=minute), at(minute)).suppressed
    assert tell(silences, 10) == OWED
    assert tell(silences, 20) == []


def test_a5_told_before_the_silence_resolved_in_it_and_true_again_is_one_event():
    silences = tracker(silence(2, 10))
    assert not silences.mark(event(minute=1), at(1)).suppressed
    assert silences.mark(event("alert.resolved", 3), at(3)).suppressed
    assert silences.mark(event(minute=4), at(4)).suppressed
    assert tell(silences, 10) == OWED


def test_a5_resolved_in_the_silence_is_owed_nothing():
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    assert silences.mark(event("alert.resolved", 2), at(2)).suppressed
    assert tell(silences, 10) == []


def test_what_was_told_before_the_silence_and_goes_on_through_it_is_owed_nothing():
    silences = tracker(silence(2, 10))
    silences.mark(event(), at(1))
    reminder = silences.mark(event("alert.reminder", 5), at(5))
    assert reminder.suppress_reason == "silence:s"
    assert tell(silences, 10) == []
    assert not silences.mark(event("alert.reminder", 25), at(25)).suppressed


def test_what_ends_before_anyone_looked_is_told_neither_way():
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    marked = silences.mark(event("alert.resolved", 11), at(11))
    assert marked.suppress_reason == "silence:s"
    assert tell(silences, 11) == []


def test_a_reminder_of_what_is_owed_waits_for_the_event_itself():
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    assert silences.mark(event("alert.reminder", 11), at(11)).suppressed
    assert tell(silences, 11) == OWED
    assert not silences.mark(event("alert.reminder", 12), at(12)).suppressed


def test_what_begins_anew_after_the_silence_is_the_event_that_was_owed():
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    assert not silences.mark(event(minute=11), at(11)).suppressed
    assert tell(silences, 11) == []


def test_a5_overlapping_silences_hold_until_the_last_of_them_ends():
    silences = tracker(silence(0, 10), silence(5, 20, silence_id="t"))
    assert silences.mark(event(), at(1)).suppress_reason == "silence:s"
    assert tell(silences, 10) == []
    assert silences.next_look(at(10)) == at(20)
    assert tell(silences, 20) == OWED


def test_a5_a_silence_that_begins_again_before_anyone_looked_holds_on():
    silences = tracker(silence(0, 10), silence(11, 20, silence_id="t"))
    silences.mark(event(), at(1))
    assert tell(silences, 12) == []
    assert tell(silences, 20) == OWED


@pytest.mark.parametrize("changed", [(), (silence(0, 7),), (silence(0, None, "db1"),)])
def test_a5_a_silence_that_is_taken_away_or_edited_ends_at_once(changed):
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    silences.replace(compile_silences(changed))
    assert silences.next_look(at(7)) == at(7)
    assert tell(silences, 7) == OWED


def test_a5_a_restart_in_between_loses_and_repeats_nothing():
    before = tracker(silence(0, 10))
    before.mark(event(), at(1))
    before.mark(
        event("group.down", 1, server=None, group_key="g", labels={"members": ["a"]}), at(1)
    )
    data = json.loads(json.dumps(before.snapshot()))
    after = tracker(silence(0, 10))
    after.restore(data)
    assert after.snapshot() == before.snapshot()
    assert tell(after, 9) == []
    assert tell(after, 30) == OWED
    after.restore(after.snapshot())
    assert tell(after, 30) == []


def test_a_draft_that_was_given_and_not_stored_is_given_again_after_a_restart():
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    data = silences.snapshot()
    assert silences.due(at(10))
    silences.restore(data)
    assert tell(silences, 10) == OWED


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("agent.down", "agent.up"),
        ("alert.opened", "alert.resolved"),
        ("group.down", "group.up"),
        ("alert.flapping", "alert.resolved"),
    ],
)
def test_every_kind_that_begins_is_owed_and_every_end_pays_it(begin, end):
    place = {"server": None, "group_key": "g"} if begin.startswith("group") else {}
    everything = attrs.evolve(silence(0, 10), matchers=(), all=True)
    silences = tracker(everything)
    silences.mark(event(begin, **place), at(1))
    assert [draft.type for draft in silences.due(at(10))] == [begin]
    assert [draft.group_key for draft in silences.due(at(10))] == [place.get("group_key")]
    assert silences.mark(event(end, **place), at(2)).suppressed
    assert silences.due(at(10)) == ()


def test_an_alert_that_settled_begins_or_ends_as_it_settled():
    for state, owed in (("firing", ["alert.settled"]), ("ok", [])):
        silences = tracker(silence(0, 10))
        silences.mark(event("alert.flapping"), at(1))
        silences.mark(event("alert.settled", labels={"alert_state": state}), at(2))
        assert [draft.type for draft in silences.due(at(10))] == owed


def test_what_another_has_suppressed_passes_and_changes_nothing():
    silences = tracker(silence(0, 10))
    hidden = event(suppressed=True, suppress_reason="flapping")
    assert silences.mark(hidden, at(1)) is hidden
    assert silences.due(at(10)) == ()
    silences.mark(event("alert.flapping"), at(2))
    ended = event("alert.resolved", suppressed=True, suppress_reason="flapping")
    assert silences.mark(ended, at(3)) is ended
    assert [draft.type for draft in silences.due(at(10))] == ["alert.flapping"]


def test_keys_are_apart_and_so_are_companies():
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    assert not silences.mark(event(company_id="c2"), at(1)).suppressed
    silences.mark(event("alert.resolved", rule_id="disk"), at(2))
    silences.mark(event("alert.resolved", company_id="c2"), at(2))
    assert tell(silences, 10) == OWED


def test_the_next_look_is_at_the_first_change_of_any_company_that_holds_something_back():
    other = [attrs.evolve(silence(0, end), company_id="c2", silence_id=f"{end}") for end in (8, 9)]
    silences = tracker(silence(0, 10), *other, attrs.evolve(silence(0, 2), company_id="c3"))
    silences.mark(event(), at(1))
    assert silences.next_look(at(1)) == at(10)
    silences.mark(event(company_id="c2"), at(1))
    assert silences.next_look(at(1)) == at(8)
    assert silences.next_look(at(8)) == at(9)


def test_what_does_not_fit_is_told_and_counted():
    silences = tracker(attrs.evolve(silence(0, 10), matchers=(), all=True), held_max=1)
    assert silences.mark(event(server="a"), at(1)).suppressed
    assert not silences.mark(event(server="b"), at(1)).suppressed
    assert silences.mark(event(server="a", minute=2), at(2)).suppressed
    assert (len(silences), silences.overflow_total) == (1, 1)
    with pytest.raises(ValueError, match="at least one"):
        tracker(held_max=0)


EVERYTHING = attrs.evolve(silence(0, 10), matchers=(), all=True)


def restarted(silences, **values):
    after = tracker(EVERYTHING, **values)
    after.restore(json.loads(json.dumps(silences.snapshot())))
    return after


@pytest.mark.parametrize("restarts", [False, True])
def test_what_did_not_fit_and_was_told_is_told_to_its_end(restarts):
    silences = tracker(EVERYTHING, held_max=1)
    silences.mark(event(server="a"), at(1))
    assert not silences.mark(event(server="b"), at(1)).suppressed
    if restarts:
        silences = restarted(silences, held_max=1)
    assert silences.mark(event("alert.resolved", 2, server="a"), at(2)).suppressed
    assert silences.mark(event("alert.reminder", 2, server="b"), at(2)).suppressed
    # There is room now; but what was told is not held back in the middle of it.
    assert not silences.mark(event("alert.flapping", 3, server="b"), at(3)).suppressed
    hidden = event(minute=4, server="b", suppressed=True, suppress_reason="flapping")
    assert silences.mark(hidden, at(4)) is hidden
    assert not silences.mark(event("alert.resolved", 4, server="b"), at(4)).suppressed
    assert silences.mark(event("alert.resolved", 5, server="b"), at(5)).suppressed
    assert silences.mark(event(minute=6, server="b"), at(6)).suppressed
    assert len(silences) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_once_more_was_told_than_is_known_every_end_is_told(restarts):
    silences = tracker(EVERYTHING, held_max=1)
    for server in "abc":
        silences.mark(event(server=server), at(1))
    if restarts:
        silences = restarted(silences, held_max=1)
    # Of the third it is not known any more that it was told: it might be any.
    for server in "abcd":
        assert not silences.mark(event("alert.resolved", 2, server=server), at(2)).suppressed
        assert silences.mark(event("alert.reminder", 3, server=server), at(3)).suppressed
    assert silences.mark(event(minute=4, server="c"), at(4)).suppressed
    assert not silences.mark(event("alert.resolved", 5, server="c"), at(5)).suppressed
    assert len(silences) == 0


def test_what_was_told_for_want_of_room_and_ended_after_the_silence_is_forgotten():
    silences = tracker(EVERYTHING, held_max=1)
    for server in "ab":
        silences.mark(event(server=server), at(1))
    assert not silences.mark(event("alert.resolved", 11, server="b"), at(11)).suppressed
    assert silences.snapshot()["told"] == []


def test_a_snapshot_of_a_release_that_did_not_keep_what_was_told_is_read():
    silences = tracker(EVERYTHING)
    silences.mark(event(), at(1))
    data = silences.snapshot()
    del data["told"], data["tells_ends"]
    silences.restore(data)
    assert tell(silences, 10) == OWED


def test_what_is_held_back_and_told_at_once_is_no_snapshot():
    silences = tracker(EVERYTHING)
    silences.mark(event(), at(1))
    data = silences.snapshot()
    with pytest.raises(SnapshotError, match="both held back and told"):
        silences.restore(data | {"told": [list(event_key(event()))]})


def test_without_silences_everything_passes():
    silences = SuppressionTracker()
    assert silences.mark(event(), at(1)) == event()
    assert silences.next_look(at(1)) is None
    silences.replace(SilenceSet())
    assert len(silences) == 0


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"version": 2, "held": []},
        {"version": 1},
        {"version": 1, "held": 7},
        {"version": 1, "held": [[{}, "s"]]},
        {"version": 1, "held": [[json.loads(event().to_json()), 7]]},
    ],
)
def test_a_snapshot_that_cannot_be_read_is_refused_and_changes_nothing(data):
    silences = tracker(silence(0, 10))
    silences.mark(event(), at(1))
    with pytest.raises(SnapshotError, match="start without it"):
        silences.restore(data)
    assert tell(silences, 10) == OWED


KINDS = ["alert.opened", "alert.resolved", "alert.reminder", "alert.flapping"]
steps = st.tuples(
    st.integers(0, 7),  # minutes that pass
    st.sampled_from(KINDS),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["mark", "mark", "mark", "look", "restart", "replace", "hidden"]),
)
silence_lists = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.sampled_from(["a", "b"])), max_size=4
)


def compiled(spans):
    return compile_silences(
        [
            silence(start, start + length, server, f"s{index}")
            for index, (start, length, server) in enumerate(spans)
        ]
    )


def is_silent(spans, server, minute):
    return any(server == own and start <= minute < start + n for start, n, own in spans)


def owed(history, spans, minute):
    """From all that went out: whose newest beginning was silenced, and is not silenced now."""
    found = []
    for server in ("a", "b"):
        own = [each for each in history if each.server_id == server and not each.group_key]
        ends = [each for each in own if each.type != "alert.reminder"]
        if ends and ends[-1].type != "alert.resolved" and ends[-1].suppressed:
            found += [server] * (not is_silent(spans, server, minute))
    return found


@given(silence_lists, silence_lists, st.lists(steps, max_size=25))
def test_a5_what_is_owed_is_what_the_whole_history_says(first, second, script):
    """The model keeps every event and looks through all of them; the tracker keeps what it owes."""
    spans, minute, history = first, 0, []
    silences = SuppressionTracker(compiled(spans))
    for number, (pause, kind, server, what) in enumerate(script, 1):
        minute += pause
        if what == "replace":
            spans, second = second, spans
            silences.replace(compiled(spans))
        elif what == "restart":
            data = json.loads(json.dumps(silences.snapshot()))
            silences = SuppressionTracker(compiled(spans))
            silences.restore(data)
        elif what in ("mark", "hidden"):
            hidden = {"suppressed": True, "group_key": "x"} if what == "hidden" else {}
            happened = event(kind, minute, server, number, **hidden)
            marked = silences.mark(happened, at(minute))
            history.append(marked)
            if is_silent(spans, server, minute):
                assert marked.suppressed
        assert sorted(draft.server_id for draft in silences.due(at(minute))) == owed(
            history, spans, minute
        )
        look = silences.next_look(at(minute))
        waiting = [later for later in range(minute, minute + 60) if owed(history, spans, later)]
        # It may look once too often, where a silence ends and another goes on; never too late.
        assert look is not None or not waiting
        assert not waiting or look <= at(waiting[0])
        if what == "look":
            for index, draft in enumerate(silences.due(at(minute))):
                told = silences.mark(stamp(draft, number * 100 + index), at(minute))
                assert not told.suppressed
                history.append(told)
            assert silences.due(at(minute)) == ()


def test_the_table_of_one_key_is_a_pure_function():
    held, marked = mark_event(None, event(), silence(0, 10))
    assert held.event == marked
    assert mark_event(held, marked, None) == (held, marked)
    assert mark_event(held, event("alert.resolved"), None)[0] is None
    assert event_key(marked) == ("c1", "web1", "cpu", "cpu{}", "", "")


@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from(["alert.opened", "alert.opened", "alert.resolved", "alert.reminder"]),
            st.sampled_from("abcdef"),
            st.sampled_from([0, 0, 0, 1]),
        ),
        max_size=40,
    ),
)
def test_nothing_that_was_told_for_want_of_room_is_left_without_its_end(held_max, script):
    """Whoever got an opening although it was silenced gets its end, over restarts too."""
    silences, waiting = tracker(EVERYTHING, held_max=held_max), set()
    for number, (kind, server, restarts) in enumerate(script, 1):
        if restarts:
            silences = restarted(silences, held_max=held_max)
        marked = silences.mark(event(kind, 1, server, number), at(1))
        assert len(silences) <= held_max
        assert len(silences.snapshot()["told"]) <= held_max
        if kind == "alert.opened" and not marked.suppressed:
            waiting.add(server)
        elif kind == "alert.resolved" and server in waiting:
            assert not marked.suppressed
            waiting.discard(server)
