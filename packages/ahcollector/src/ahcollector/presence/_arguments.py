"""What the scripts of the Redis presence take, checked before it is sent."""

from __future__ import annotations

import math

import attrs

from ahcollector.errors import PresenceError
from ahcollector.presence.base import AgentRef, WatchRule

__all__ = [
    "Contact",
    "check",
    "check_now",
    "down_min_of",
    "interval_of",
    "interval_text",
    "rule_texts",
]


@attrs.frozen(kw_only=True)
class Contact:
    """One touch; an event id is needed only when the agent turns out to be down."""

    agent: AgentRef
    now: float
    interval: str
    waits_seconds: float = 0.0
    rule: WatchRule | None = None

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
            *rule_texts(self.rule),
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


def interval_of(seconds: float | None) -> float | None:
    """Return an interval that makes sense."""
    return float(seconds) if seconds is not None and 0 < seconds < math.inf else None


def down_min_of(rule: WatchRule) -> float | None:
    """Return a down_min that makes sense."""
    seconds = rule.down_min_seconds
    return float(seconds) if seconds is not None and 0 <= seconds < math.inf else None


def interval_text(seconds: float | None) -> str:
    """Return an interval that makes sense as text, else nothing."""
    return _text(interval_of(seconds))


def rule_texts(rule: WatchRule | None) -> tuple[str, str, str]:
    """Return what the scripts take of a rule: how firm it is ("": none), interval, down_min."""
    if rule is None:
        return "", "", ""
    firm = "1" if rule.is_firm else "0"
    return firm, interval_text(rule.interval_seconds), _text(down_min_of(rule))


def _text(seconds: float | None) -> str:
    return "" if seconds is None else repr(seconds)
