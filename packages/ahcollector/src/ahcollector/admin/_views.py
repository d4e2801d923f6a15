"""How values are shown to operators: JSON objects, times in RFC 3339 UTC, never a whole hash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ahcollector.bus.base import BusDeadLetter, SampleBatch
from ahcollector.outbox.base import DeadLetter, OutboxStats
from ahcollector.presence.base import AgentPresence, PresenceCounts
from ahcollector.registry.base import AgentEntry, RegistryCounts
from ahcollector.worker.deadletter import DeadBatch

__all__ = [
    "agent_view",
    "counts_view",
    "dead_batch_view",
    "dead_entry_view",
    "dead_letter_view",
    "outbox_view",
    "points_view",
    "presence_view",
]

_BODY_CHARS_SHOWN = 2_000
_HASH_CHARS = 8
_BATCH_FIELDS = ("company_id", "server_id", "agent_id", "request_id", "received_at", "samples")


def _when(moment: datetime | float | None) -> str | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def agent_view(entry: AgentEntry) -> dict[str, Any]:
    """Show an agent of the registry."""
    record = entry.record
    return {
        "agent_id": record.agent_id,
        "company_id": record.company_id,
        "server_id": record.server_id,
        "state": record.state.value,
        "token_hash_prefix": record.token_hash[:_HASH_CHARS] if record.token_hash else None,
        "expires_at": _when(record.expires_at),
        "prev_token_expires_at": _when(record.prev_token_expires_at),
        "version": record.version,
        "newest_version": entry.newest_version,
        "revoked_at": _when(entry.revoked_at),
    }


def presence_view(agent: AgentPresence) -> dict[str, Any]:
    """Show when an agent was heard."""
    return {
        "agent_id": agent.agent.agent_id,
        "company_id": agent.agent.company_id,
        "server_id": agent.agent.server_id,
        "state": agent.state.value,
        "last_seen_at": _when(agent.last_seen),
        "interval_seconds": agent.interval_seconds,
        "deadline_at": _when(agent.deadline),
        "down_since": _when(agent.down_since),
    }


def counts_view(
    registry: RegistryCounts, presence: PresenceCounts, companies: Mapping[str, PresenceCounts]
) -> dict[str, Any]:
    """Show how many there are."""
    return {
        "registry": {
            "active": registry.active,
            "pending": registry.pending,
            "revoked": registry.revoked,
        },
        "presence": {"agents": presence.agents, "down": presence.down},
        "companies": {
            company_id: {"agents": counts.agents, "down": counts.down}
            for company_id, counts in sorted(companies.items())
        },
    }


def points_view(
    labels: tuple[tuple[str, str], ...], points: tuple[tuple[int, float], ...]
) -> dict[str, Any]:
    """Show a series; points are pairs of Unix milliseconds and value."""
    return {"labels": dict(labels), "points": [list(point) for point in points]}


def outbox_view(stats: OutboxStats) -> dict[str, Any]:
    """Show the state of the outbox."""
    return {
        "depth": stats.depth,
        "oldest_age_seconds": stats.oldest_age_seconds,
        "dead": stats.dead,
        "dead_bytes": stats.dead_bytes,
        "dead_dropped": stats.dead_dropped,
        "damaged_lines": stats.damaged_lines,
    }


def dead_letter_view(letter: DeadLetter) -> dict[str, Any]:
    """Show an event that was not delivered; of what is no event, the beginning as text."""
    return {
        "letter_id": letter.letter_id,
        "reason": letter.reason,
        "enqueued_at": _when(letter.enqueued_at),
        "dead_at": _when(letter.dead_at),
        "replayable": letter.replayable,
        "event": json.loads(letter.body) if letter.replayable else None,
        "body": None
        if letter.replayable
        else letter.body[: 4 * _BODY_CHARS_SHOWN].decode(errors="replace")[:_BODY_CHARS_SHOWN],
    }


def dead_batch_view(letter: DeadBatch) -> dict[str, Any]:
    """Show what names a refused batch."""
    return {
        "letter_id": letter.letter_id,
        "reason": letter.reason,
        "dead_at": _when(letter.dead_at),
        **_batch_view(letter),
        "size_bytes": letter.size_bytes,
    }


def dead_entry_view(letter: BusDeadLetter) -> dict[str, Any]:
    """Show what names an entry of the bus; one that cannot be read has no more than its reason."""
    batch = letter.batch
    return {
        "letter_id": letter.letter_id,
        "reason": letter.reason,
        "dead_at": _when(letter.dead_at),
        "shard": letter.shard,
        "replayable": batch is not None,
        **(dict.fromkeys(_BATCH_FIELDS) if batch is None else _batch_view(batch)),
    }


def _batch_view(batch: SampleBatch | DeadBatch) -> dict[str, Any]:
    return {
        "company_id": batch.company_id,
        "server_id": batch.server_id,
        "agent_id": batch.agent_id,
        "request_id": batch.request_id,
        "received_at": _when(batch.received_at_ms / 1000),
        "samples": batch.samples,
    }
