"""The incident store of one machine, in the notification database."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from ahnotify.broker.base import INCIDENTS_TO_STORE, Broker
from ahnotify.clock import AsyncClock, SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.database._insert import insert_into
from ahnotify.database._runtime_tables import security_incidents as incidents
from ahnotify.errors import BrokerUnavailableError, DatabaseUnavailableError, LeaseLostError
from ahnotify.incidents.base import IncidentStore
from ahwire import IncidentEvent, WireError
from ahwire.notification import Severity

__all__ = ["IncidentRecorder", "SqlIncidentStore"]

logger: Final = logging.getLogger("ahnotify.incidents")

IDS_MAX: Final = 1_000
_PAUSE_SECONDS: Final = 5


class SqlIncidentStore:
    """An `IncidentStore` in table `security_incidents`."""

    def __init__(self, *, database: Database, clock: AsyncClock | None = None) -> None:
        self._database = database
        self._clock: AsyncClock = clock or SystemClock()

    async def write(self, events: Sequence[IncidentEvent]) -> None:
        """Insert those that are not there."""
        if not events:
            return
        now = utc_now(self._clock)
        rows = [
            {
                "tenant_id": event.tenant_id,
                "event_id": event.event_id,
                "occurred_at": event.occurred_at,
                "severity": str(event.severity),
                "event_type": event.event_type,
                "ip_address": event.ip_address,
                "host": event.host,
                "payload": dict(event.payload),
                "created_at": now,
            }
            for event in events
        ]
        async with self._database.write() as connection:
            await connection.execute(
                insert_into(connection, incidents).on_conflict_do_nothing(), rows
            )

    async def read(self, tenant_id: str, event_ids: Sequence[str]) -> list[IncidentEvent]:
        """See `IncidentStore.read`."""
        if len(event_ids) > IDS_MAX:
            raise ValueError(f"{len(event_ids)} ids at once; read them in pages of {IDS_MAX}")
        query = (
            sa.select(incidents)
            .where(incidents.c.tenant_id == tenant_id, incidents.c.event_id.in_(event_ids))
            .order_by(incidents.c.occurred_at, incidents.c.event_id)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            IncidentEvent(
                event_id=row["event_id"],
                tenant_id=row["tenant_id"],
                occurred_at=row["occurred_at"],
                severity=Severity(row["severity"]),
                event_type=row["event_type"],
                ip_address=row["ip_address"],
                host=row["host"],
                payload=row["payload"],
            )
            for row in rows
        ]


class IncidentRecorder:
    """Stands for the incident manager: reads its own queue of incidents and stores them."""

    def __init__(
        self,
        *,
        store: IncidentStore,
        broker: Broker,
        clock: AsyncClock | None = None,
        prefetch_items: int = 64,
    ) -> None:
        self._store = store
        self._broker = broker
        self._clock: AsyncClock = clock or SystemClock()
        self._prefetch_items = prefetch_items

    async def run(self) -> None:
        """Record until cancelled; an event is acked after it is stored."""
        async with self._broker.consume(
            INCIDENTS_TO_STORE, prefetch_items=self._prefetch_items
        ) as consumer:
            while True:
                try:
                    delivery = await consumer.receive()
                    try:
                        event = IncidentEvent.from_json(delivery.body)
                    except WireError as error:
                        await delivery.dead_letter(f"cannot be decoded: {error}")
                        continue
                    await self._store.write([event])
                    await delivery.ack()
                except LeaseLostError:
                    continue
                except (DatabaseUnavailableError, BrokerUnavailableError) as error:
                    logger.warning("incidents_paused", extra={"cause": str(error)})
                    await self._clock.sleep(_PAUSE_SECONDS)
