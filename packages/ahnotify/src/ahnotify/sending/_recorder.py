"""The dead-letter queue drained into a table that people can read."""

from __future__ import annotations

import logging
from typing import Final

from ahnotify._identity import name_id
from ahnotify._stats import Counters
from ahnotify.broker.base import DEAD_LETTERS, Broker, Delivery
from ahnotify.clock import AsyncClock, SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.database._insert import upsert
from ahnotify.errors import BrokerUnavailableError, DatabaseUnavailableError, LeaseLostError
from ahnotify.sending._results import ResultStore
from ahwire import IncidentEvent, NotificationMessage, WireError

logger: Final = logging.getLogger("ahnotify.sending")

_PAUSE_SECONDS: Final = 5


class DeadLetterRecorder:
    """Reads the dead-letter queue, whatever queue its messages came from.

    One row of `dead_letters` a letter, the same row when a letter comes twice; a notification that
    ended here is `failed`, with its targets and its digest's rows. What cannot be decoded has no
    tenant (its publisher's word for it is not trusted) and belongs to the operator.
    """

    def __init__(
        self, *, database: Database, broker: Broker, clock: AsyncClock | None = None
    ) -> None:
        self._database = database
        self._broker = broker
        self._clock: AsyncClock = clock or SystemClock()
        self._results = ResultStore(database=database)
        self.stats = Counters()

    async def run(self) -> None:
        """Record until cancelled."""
        async with self._broker.consume(DEAD_LETTERS, prefetch_items=8) as consumer:
            while True:
                try:
                    await self._record(await consumer.receive())
                except LeaseLostError:
                    continue
                except (DatabaseUnavailableError, BrokerUnavailableError) as error:
                    logger.warning("recorder_paused", extra={"cause": str(error)})
                    await self._clock.sleep(_PAUSE_SECONDS)

    async def _record(self, delivery: Delivery) -> None:
        source = delivery.headers.get("source_queue", "")
        reason = delivery.headers.get("reason", "")
        try:
            message: NotificationMessage | None = NotificationMessage.from_json(delivery.body)
        except WireError:
            message = None
        tenant_id = message.tenant_id if message else _incident_tenant(delivery.body)
        now = utc_now(self._clock)
        attempts = 0
        if message is not None:
            status, attempts = await self._results.recorded(message) or ("", 0)
            if status != "failed":
                await self._results.fail(message, code="dead_letter", reason=reason, now=now)
        row = {
            "tenant_id": tenant_id,
            "letter_id": name_id(tenant_id, "letter", source, delivery.message_id),
            "source_queue": source,
            "message_id": delivery.message_id,
            "reason": reason,
            "message": delivery.body,
            "attempts": attempts,
            "created_at": now,
        }
        async with self._database.write() as connection:
            await upsert(connection, t.dead_letters, row)
        await delivery.ack()
        self.stats.add("recorded")
        logger.warning(
            "dead_letter_recorded",
            extra={"tenant_id": tenant_id, "source_queue": source, "reason": reason},
        )


def _incident_tenant(body: bytes) -> str:
    try:
        return IncidentEvent.from_json(body).tenant_id
    except WireError:
        return ""
