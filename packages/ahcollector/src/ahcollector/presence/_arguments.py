"""What the scripts of the Redis presence take, checked before it is sent."""

from __future__ import annotations

import math

import attrs

from ahcollector.errors import PresenceError
from ahcollector.presence.base import AgentRef

__all__ = ["Contact", "check", "check_now", "interval_text"]


@attrs.frozen(kw_only=True)
class Contact:
    """One touch; an event id is needed only when the agent turns out to be down."""

    agent: AgentRef
    now: float
    interval: str
    waits_seconds: float = 0.0

    def fields(self, event_id: str) -> list[str]:
        """Return what the script takes."""
        agent = self.agent
        return [
            agent.agent_id,
            agent.company_id,
            agent.server_id,
            repr(self.now),
            self.interval,
            event_id,
            repr(float(self.waits_seconds)) if self.waits_seconds else "",
        ]


def check(agent: AgentRef, now: float) -> None:
    """Refuse what would fail a whole group of contacts. Raises ValueError, PresenceError."""
    check_now(now)
    try:
        (agent.agent_id + agent.company_id + agent.server_id).encode()
    except UnicodeEncodeError as error:
        raise PresenceError(
            f"agent {agent.agent_id!r} of company {agent.company_id!r} cannot be written as UTF-8: "
            "its ids come from the registry and must be text"
        ) from error


def check_now(now: float) -> None:
    """Refuse a time that is none. Raises ValueError."""
    if not math.isfinite(now):
        raise ValueError(f"now is {now}; it must be Unix seconds")


def interval_text(seconds: float | None) -> str:
    """Return an interval that makes sense as text, else nothing."""
    return repr(float(seconds)) if seconds is not None and 0 < seconds < math.inf else ""
