"""Small true-to-life data for tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ahnotify.directory import Directory
from ahnotify.rules import RuleStore
from ahwire import IncidentEvent
from ahwire.notification import Severity

NOW: Final = datetime(2026, 6, 15, 10, 20, 30, tzinfo=UTC)

INSTANT_RULE: Final[Mapping[str, Any]] = {
    "name": "Silent servers",
    "filters": {"event_type": ["agent_*"]},
    "recipients": [{"recipient_type": "user", "recipient_id": "ann"}],
    "channels": ["email"],
}
DIGEST_RULE: Final[Mapping[str, Any]] = {
    **INSTANT_RULE,
    "schedule": {"mode": "digest", "interval": 1, "unit": "hours"},
}


def incident(event_id: str = "e-1", **changes: Any) -> IncidentEvent:
    """Server web-1 of tenant acme fell silent three and a half minutes ago."""
    values: dict[str, Any] = {
        "event_id": event_id,
        "tenant_id": "acme",
        "occurred_at": NOW,
        "severity": Severity.HIGH,
        "event_type": "agent_down",
        "host": "web-1",
        "payload": {"labels": {"last_seen_at": "2026-06-15T10:17:00Z"}},
    }
    return IncidentEvent(**(values | changes))


async def seed(
    directory: Directory,
    rules: RuleStore,
    *,
    tenant_id: str = "acme",
    rule: Mapping[str, Any] = INSTANT_RULE,
) -> None:
    """One tenant, one user `ann` with a verified address, one rule `silent`."""
    await directory.put_tenant(tenant_id)
    await directory.put_recipient(tenant_id, "user", "ann", name="Ann")
    await directory.put_contact(
        tenant_id, "user", "ann", "email", f"ann@{tenant_id}.example", verified=True
    )
    await rules.put(tenant_id, "silent", rule)
