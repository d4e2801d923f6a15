"""What the hub is told of a transition."""

from datetime import UTC, datetime

import pytest
from attrs import evolve

from ahcollector.detector._events import event_of
from ahcollector.presence import AgentRef, Transition, TransitionKind
from ahwire import Event, EventType
from ahwire.hub import EventSeverity

DOWN = Transition(
    agent=AgentRef(agent_id="a", company_id="acme", server_id="web-1"),
    event_id="018bcfe5-6800-7000-8000-000000000001",
    seq=1_700_000_100_000,
    kind=TransitionKind.DOWN,
    occurred_at=1_700_000_100.25,
    last_seen=1_700_000_000.5,
    down_since=None,
    reason=None,
)
UP = evolve(DOWN, kind=TransitionKind.UP, occurred_at=1_700_000_160.5, down_since=1_700_000_100.25)


def test_a_down_tells_when_the_agent_was_last_seen():
    event = event_of(DOWN)
    assert (event.event_id, event.seq, event.type) == (
        DOWN.event_id,
        DOWN.seq,
        EventType.AGENT_DOWN,
    )
    assert event.occurred_at == datetime(2023, 11, 14, 22, 15, 0, 250_000, UTC)
    assert (event.rule_id, event.series_key, event.severity) == (
        "agent_down",
        "agent",
        EventSeverity.CRITICAL,
    )
    assert (event.company_id, event.server_id, event.agent_id) == ("acme", "web-1", "a")
    assert dict(event.labels) == {"last_seen_at": "2023-11-14T22:13:20.500Z"}
    assert event.suppressed is False
    assert Event.from_json(event.to_json()) == event


def test_an_up_tells_since_when_it_was_silent_and_how_long_it_was_down():
    event = event_of(UP)
    assert (event.type, event.severity) == (EventType.AGENT_UP, EventSeverity.INFO)
    assert dict(event.labels) == {
        "last_seen_at": "2023-11-14T22:13:20.500Z",
        "down_since": "2023-11-14T22:15:00.250Z",
        "down_duration_s": 60.25,
    }
    assert event.duration_seconds == 60.25


def test_an_agent_that_never_reported_was_never_seen():
    event = event_of(evolve(DOWN, last_seen=None, reason="never_reported"))
    assert dict(event.labels) == {}
    assert event.reason == "never_reported"


def test_an_up_of_an_agent_that_was_never_heard_before_names_no_last_contact():
    assert set(event_of(evolve(UP, last_seen=None)).labels) == {"down_since", "down_duration_s"}


def test_a_clock_that_went_back_gives_no_nonsense():
    event = event_of(evolve(UP, occurred_at=UP.down_since - 3_600))
    assert event.duration_seconds == 0
    event = event_of(evolve(DOWN, last_seen=DOWN.occurred_at + 3_600))
    assert event.labels["last_seen_at"] == "2023-11-14T22:15:00.250Z"
    event = event_of(evolve(UP, last_seen=UP.occurred_at + 3_600))
    assert event.labels["last_seen_at"] == event.labels["down_since"]


@pytest.mark.parametrize("transition", [DOWN, UP])
def test_a_transition_gives_the_same_bytes_each_time(transition):
    assert event_of(transition).to_json() == event_of(transition).to_json()
