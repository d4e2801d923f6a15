"""What the scripts of the Redis presence return, as values."""

from __future__ import annotations

import json
from itertools import islice

from ahcollector.presence.base import (
    AgentPresence,
    AgentRef,
    PresenceState,
    SeenAgent,
    Transition,
    TransitionKind,
)

__all__ = ["seen_agents", "shown", "transitions"]


def transitions(rows: list[bytes], limit: int) -> list[Transition]:
    """Return at most `limit` intents of ``agent, intents as JSON, agent, …``."""
    return list(
        islice(
            (
                _transition(agent_id.decode(), fields)
                for agent_id, intents in zip(rows[::2], rows[1::2], strict=True)
                for fields in json.loads(intents)
            ),
            limit,
        )
    )


def seen_agents(rows: list[bytes]) -> tuple[SeenAgent, ...]:
    """Return the contacts of ``agent, last seen, agent, …``."""
    return tuple(
        SeenAgent(agent_id=agent_id.decode(), last_seen=float(last_seen))
        for agent_id, last_seen in zip(rows[::2], rows[1::2], strict=True)
    )


def _transition(agent_id: str, fields: list[str]) -> Transition:
    event_id, seq, kind, now, last_seen, down_since, reason, company_id, server_id = fields
    return Transition(
        agent=AgentRef(agent_id=agent_id, company_id=company_id, server_id=server_id),
        event_id=event_id,
        seq=int(seq),
        kind=TransitionKind(kind),
        occurred_at=float(now),
        last_seen=float(last_seen) if last_seen else None,
        down_since=float(down_since) if down_since else None,
        reason=reason or None,
    )


def shown(row: list[bytes]) -> AgentPresence:
    """Return what a console shows of an agent."""
    agent_id, company_id, server_id, interval, seen, due, down = (part.decode() for part in row)
    return AgentPresence(
        agent=AgentRef(agent_id=agent_id, company_id=company_id, server_id=server_id),
        state=PresenceState.DOWN if down else PresenceState.UP,
        last_seen=float(seen) if seen else None,
        interval_seconds=float(interval),
        deadline=None if down else int(due) / 1000,
        down_since=float(down) if down else None,
    )
