"""What a silence holds back of one alert, stored with the event that moved it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from silence_events import at, event, silence

from ahrules import SnapshotError, SuppressionTracker, compile_silences, event_key


def tracker(*silences, **values):
    return SuppressionTracker(compile_silences(silences), **values)


def stamp(draft, number):
    return draft.event(event_id=f"0190b6f2-0000-7000-8000-{number:012x}", seq=number)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["alert.opened", "alert.resolved", "alert.reminder", "due"]),
            st.sampled_from(["web1", "web2", "web3"]),
        ),
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_what_is_kept_alert_by_alert_is_what_the_whole_snapshot_has(steps, held_max):
    """The piece of each key that was marked, over an older snapshot, gives the state of now."""
    silences = (silence(0, 10), silence(15, 30))
    whole, pieces = tracker(*silences, held_max=held_max), tracker(*silences, held_max=held_max)
    for minute, (kind, server) in enumerate(steps):
        if kind == "due":
            made = [stamp(draft, minute * 10 + n) for n, draft in enumerate(whole.due(at(minute)))]
        else:
            made = [event(kind, minute, server=server, number=minute + 1)]
        for one in made:
            whole.mark(one, at(minute))
            kept = json.loads(json.dumps(whole.snapshot_alert(event_key(one))))
            pieces.restore_alert(event_key(one), kept)
        assert sorted(pieces.snapshot()["held"], key=str) == sorted(
            whole.snapshot()["held"], key=str
        )
        assert sorted(pieces.snapshot()["told"]) == sorted(whole.snapshot()["told"])
        assert pieces.snapshot()["tells_ends"] == whole.snapshot()["tells_ends"]


def test_a_piece_that_cannot_be_read_or_is_anothers_is_refused_and_changes_nothing():
    silences = tracker(silence(0, 10))
    opened = event(server="web1")
    silences.mark(opened, at(5))
    key, before = event_key(opened), silences.snapshot()
    piece = silences.snapshot_alert(key)
    other = event_key(event(server="web2"))
    for at_key, data in [
        (other, piece),
        (key, piece | {"told": True}),
        (key, piece | {"held": [1]}),
        (key, {"told": False, "tells_ends": False}),
        (key, 7),
    ]:
        with pytest.raises(SnapshotError):
            silences.restore_alert(at_key, data)
        assert silences.snapshot() == before
    assert silences.snapshot_alert(other) is None
    silences.restore_alert(key, None)
    assert len(silences) == 0


def test_what_was_told_although_silenced_is_told_to_its_end_by_who_takes_it_over():
    silences = compile_silences([silence(0, 60), silence(0, 60, "web2", "s2")])
    full = SuppressionTracker(silences, held_max=1)
    assert full.mark(event(), at(1)).suppressed
    told = event(server="web2", number=2)
    assert full.mark(told, at(1)) is told
    other = SuppressionTracker(silences, held_max=1)
    other.restore_alert(event_key(told), full.snapshot_alert(event_key(told)))
    ended = event("alert.resolved", server="web2", number=3, duration_seconds=60.0)
    assert other.mark(ended, at(2)) is ended
