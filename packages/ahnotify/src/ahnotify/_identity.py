"""Names that stay the same however often work is repeated.

Every id is a UUIDv5 under one namespace. The name is a canonical JSON array: no spaces, UTF-8, the
tenant first, then the kind of thing, then its key. A JSON array cannot be read in two ways, so no
two keys share a name (joined strings could: `a:b` + `c` and `a` + `b:c`).
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any, Final

NAMESPACE: Final = uuid.UUID("6f1d9a86-0c3b-5d58-9a53-1c2a7be0d1f4")


def canonical_json(value: Any) -> bytes:
    """Compact JSON with sorted keys: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def instant_text(value: datetime) -> str:
    """An instant as RFC 3339 with microseconds and `Z`, the same text for the same instant."""
    if value.tzinfo is None:
        raise ValueError("a naive datetime names no instant; give an aware one")
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def name_id(tenant_id: str, kind: str, *key: str | int) -> str:
    """The UUIDv5 of `[tenant, kind, *key]` as text."""
    return str(uuid.uuid5(NAMESPACE, canonical_json([tenant_id, kind, *key]).decode()))


def decision_id(
    tenant_id: str,
    *,
    event_id: str,
    rule_id: str,
    channel: str,
    recipient_type: str,
    recipient_id: str,
) -> str:
    """The notification_uuid of one decision."""
    return name_id(tenant_id, "decision", event_id, rule_id, channel, recipient_type, recipient_id)


def group_id(
    tenant_id: str,
    *,
    rule_id: str,
    recipient_type: str,
    recipient_id: str,
    channel: str,
    schedule_mode: str,
    period_start: datetime,
    period_end: datetime,
) -> str:
    """The id of one digest group."""
    return name_id(
        tenant_id,
        "group",
        rule_id,
        recipient_type,
        recipient_id,
        channel,
        schedule_mode,
        instant_text(period_start),
        instant_text(period_end),
    )


def batch_id(tenant_id: str, group: str, generation: int) -> str:
    """The batch_uuid of one generation of a group."""
    return name_id(tenant_id, "batch", group, generation)


def target_id(tenant_id: str, notification_uuid: str, channel: str, address: str) -> str:
    """The id of one contact that a notification is for."""
    return name_id(tenant_id, "target", notification_uuid, channel, address)
