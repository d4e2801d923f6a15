"""Drafts have what events have."""

import uuid
from datetime import UTC, datetime

import attrs
import pytest

from ahrules import EventDraft, event_key
from ahwire.errors import DecodeError
from ahwire.hub import Event, EventSeverity, EventType

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
EVENT_ID = "0190b6f2-0000-7000-8000-000000000001"
FULL = {
    "type": EventType.ALERT_RESOLVED,
    "occurred_at": NOW,
    "company_id": "c1",
    "server_id": "web1",
    "agent_id": "a1",
    "rule_id": "cpu",
    "rule_version": 2,
    "series_key": "cpu{}",
    "severity": EventSeverity.WARNING,
    "value": 1.5,
    "threshold": 2.5,
    "duration_seconds": 3.5,
    "peak_value": 4.5,
    "reason": "condition",
    "suppressed": True,
    "suppress_reason": "flapping",
    "group_key": "g",
    "labels": {"a": [1]},
}


def names(cls):
    return {each.name for each in attrs.fields(cls)}


def test_a_draft_has_the_fields_of_an_event_but_its_id_and_its_place():
    assert names(Event) - names(EventDraft) == {"event_id", "seq"}
    assert names(EventDraft) == set(FULL) < names(Event)


def test_a_draft_becomes_the_event_with_every_field():
    made = EventDraft(**FULL).event(event_id=EVENT_ID, seq=9)
    assert made == Event(event_id=EVENT_ID, seq=9, **FULL)


def test_an_event_told_again_is_unsuppressed_and_keeps_the_rest():
    later = datetime(2026, 6, 16, tzinfo=UTC)
    again = EventDraft.again(
        Event(event_id=EVENT_ID, seq=9, **FULL), occurred_at=later, reason="silence_ended"
    )
    changed = {
        "occurred_at": later,
        "reason": "silence_ended",
        "suppressed": False,
        "suppress_reason": None,
        "group_key": None,
    }
    assert again == EventDraft(**(FULL | changed))


def test_a_draft_that_breaks_the_contract_is_refused_when_it_becomes_an_event():
    with pytest.raises(DecodeError, match="server_id"):
        EventDraft(**(FULL | {"server_id": None})).event(event_id=EVENT_ID, seq=1)
    with pytest.raises(DecodeError, match="event_id"):
        EventDraft(**FULL).event(event_id=str(uuid.UUID(int=0)), seq=1)


def test_a_key_is_what_the_hub_keeps_a_state_by():
    event = Event(event_id=EVENT_ID, seq=9, **FULL)
    assert event_key(event) == ("c1", "web1", "cpu", "cpu{}", "a1", "")
    group = {"type": EventType.GROUP_DOWN, "server_id": None, "rule_id": "group_down"}
    bare = {"agent_id": None, "series_key": None}
    group_event = Event(event_id=EVENT_ID, seq=9, **(FULL | group | bare))
    assert event_key(group_event) == ("c1", "", "group_down", "", "", "g")
