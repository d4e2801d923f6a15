"""What is kept of one flapping alert, stored with the event that moved it."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import FlapDetector, SnapshotError, event_key
from ahwire.hub import Event, EventType

OPENED, RESOLVED, REMINDER = "alert.opened", "alert.resolved", "alert.reminder"


def at(minutes):
    return datetime(2026, 6, 15, 12, tzinfo=UTC) + timedelta(minutes=minutes)


def event(kind, minute, server="web1"):
    return Event(
        event_id="0190b6f2-0000-7000-8000-000000000001",
        type=EventType(kind),
        seq=1,
        occurred_at=at(minute),
        company_id="c1",
        server_id=server,
        rule_id="cpu",
        series_key="cpu{}",
        suppressed=False,
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from([OPENED, RESOLVED, REMINDER, "settle"]),
            st.sampled_from(["web1", "web2"]),
            st.sampled_from([0, 1, 3, 20, 40]),
        ),
        max_size=60,
    )
)
def test_what_is_kept_alert_by_alert_is_what_the_whole_snapshot_has(steps):
    """The piece of each alert that was looked at, over an older snapshot, is the state of now."""
    whole, pieces = FlapDetector(), FlapDetector()
    minute = 0
    for kind, server, later in steps:
        minute += later
        one = event(OPENED if kind == "settle" else kind, minute, server=server)
        key = event_key(one)
        drafts = whole.settle(key, at(minute))
        assert whole.settle(key, at(minute)) == ()
        if kind != "settle":
            step = whole.observe(one)
            assert not any(draft.type is EventType.ALERT_SETTLED for draft in step.drafts)
        assert len(drafts) <= 1
        pieces.restore_alert(key, json.loads(json.dumps(whole.snapshot_alert(key))))
        assert sorted(pieces.snapshot()["alerts"]) == sorted(whole.snapshot()["alerts"])


def test_a_piece_of_another_alert_or_that_cannot_be_read_changes_nothing():
    detector = FlapDetector()
    opened = event(OPENED, 0)
    detector.observe(opened)
    key, before = event_key(opened), detector.snapshot()
    piece = detector.snapshot_alert(key)
    other = event_key(event(OPENED, 0, server="web2"))
    for at_key, data in [
        (other, piece),
        (key, piece[:-1]),
        (key, 7),
        (key, [piece[0], 1, [], 0, 0]),
    ]:
        with pytest.raises(SnapshotError):
            detector.restore_alert(at_key, data)
        assert detector.snapshot() == before
    assert detector.snapshot_alert(other) is None
    detector.restore_alert(key, None)
    assert len(detector) == 0
