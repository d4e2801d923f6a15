"""The incident store: what happened, for the texts of digests and for audits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ahwire import IncidentEvent

__all__ = ["IncidentStore"]


class IncidentStore(Protocol):
    """Incidents of all tenants, by tenant and event id.

    Order: none. Durability: what `write` returned for survives kill -9. Idempotence: an event
        written
    twice is there once. Errors: DatabaseUnavailableError, and then it is unknown what was written.
    Every read names its tenant and never sees another's.
    """

    async def write(self, events: Sequence[IncidentEvent]) -> None:
        """Store `events`."""
        ...

    async def read(self, tenant_id: str, event_ids: Sequence[str]) -> list[IncidentEvent]:
        """Those of `event_ids` that are there, in the order of their time; at most 1,000 ids."""
        ...
