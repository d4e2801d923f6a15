"""A transition of presence as the event that the hub is told. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ahcollector.presence.base import Transition, TransitionKind
from ahwire import Event, EventType
from ahwire.hub import EventSeverity

__all__ = ["RULE_AGENT_DOWN", "SERIES_KEY_AGENT", "event_of", "instant_text", "moment"]

RULE_AGENT_DOWN: Final = "agent_down"
SERIES_KEY_AGENT: Final = "agent"


def moment(unix_seconds: float) -> datetime:
    """Return the aware UTC instant of Unix seconds, to the millisecond."""
    return datetime.fromtimestamp(round(unix_seconds, 3), UTC)


def event_of(transition: Transition) -> Event:
    """Return the event of a transition: always the same one.

    Both carry the label ``last_seen_at``, when the silence began; it is absent for an agent that
    was never heard before. An up carries ``down_since`` too, when the silence was noticed, and
    ``down_duration_s``, counted from there, which is 0 when the clock went back meanwhile.
    """
    labels: dict[str, str | float] = {}
    duration_seconds: float | None = None
    down = transition.kind is TransitionKind.DOWN
    since = transition.occurred_at if transition.down_since is None else transition.down_since
    if transition.last_seen is not None:
        # A contact can lie ahead when the clock stepped back since; no event says so.
        labels["last_seen_at"] = instant_text(
            min(transition.last_seen, since, transition.occurred_at)
        )
    if not down:
        duration_seconds = round(max(0.0, transition.occurred_at - since), 3)
        labels |= {"down_since": instant_text(since), "down_duration_s": duration_seconds}
    return Event(
        event_id=transition.event_id,
        type=EventType.AGENT_DOWN if down else EventType.AGENT_UP,
        seq=transition.seq,
        occurred_at=moment(transition.occurred_at),
        company_id=transition.agent.company_id,
        server_id=transition.agent.server_id,
        agent_id=transition.agent.agent_id,
        rule_id=RULE_AGENT_DOWN,
        series_key=SERIES_KEY_AGENT,
        severity=EventSeverity.CRITICAL if down else EventSeverity.INFO,
        duration_seconds=duration_seconds,
        reason=transition.reason,
        suppressed=False,
        labels=labels,
    )


def instant_text(unix_seconds: float) -> str:
    """Return the instant of Unix seconds as RFC 3339, to the millisecond."""
    return moment(unix_seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
