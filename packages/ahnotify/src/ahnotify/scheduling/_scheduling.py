"""Scheduling: rows that wait become digests."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

import anyio

from ahnotify._stats import Counters
from ahnotify.broker.base import DELIVERY_DIGEST, Broker, Message
from ahnotify.clock import AsyncClock, SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.errors import BrokerUnavailableError, DatabaseUnavailableError
from ahnotify.scheduling._groups import DueRules, GroupStore

logger: Final = logging.getLogger("ahnotify.scheduling")

_GROUPS_PER_LOOK: Final = 100


class Scheduling:
    """The scheduling zone; any number of them may run, together they make each digest once.

    Guarantees: the rows of a batch are committed before it is published; a crash between the two
        leaves
    a batch without published_at, which the sweep publishes with the same uuid and the same rows.

    Counters (`stats`): closed, supplements, published, republished, paused.
    """

    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        clock: AsyncClock | None = None,
        grace_seconds: float = 60,
        quiet_seconds: float = 60,
        supplement_wait_seconds: float = 600,
        look_seconds: float = 1,
        republish_seconds: float = 30,
    ) -> None:
        """Keep the collaborators; nothing is opened or started yet.

        Args:
            database: Where the rows are.
            broker: Where digests go.
            clock: Time.
            grace_seconds: How long after a period's end its late events may still come.
            quiet_seconds: How long no row may come before a supplement is closed.
            supplement_wait_seconds: How long a supplement waits at most.
            look_seconds: How often due groups are looked for.
            republish_seconds: How old a batch without a confirmed publish is before it is published
                again.
        """
        self._broker = broker
        self._clock: AsyncClock = clock or SystemClock()
        self._look_seconds = look_seconds
        self._republish = timedelta(seconds=republish_seconds)
        self._groups = GroupStore(
            database=database,
            rules=DueRules(
                grace=timedelta(seconds=grace_seconds),
                quiet=timedelta(seconds=quiet_seconds),
                supplement_wait=timedelta(seconds=supplement_wait_seconds),
            ),
        )
        self.stats = Counters()

    async def run(self) -> None:
        """Look and close until cancelled."""
        while True:
            more = False
            try:
                more = await self.run_once()
            except (DatabaseUnavailableError, BrokerUnavailableError) as error:
                self.stats.add("paused")
                logger.warning("scheduling_paused", extra={"cause": str(error)})
            await self._clock.sleep(0 if more else self._look_seconds)

    async def run_once(self) -> bool:
        """Close and publish what is due now.

        Returns:
            Whether there may be more that is due.

        Raises:
            DatabaseUnavailableError: Nothing is lost; do it again.
            BrokerError: The same.
        """
        due = await self._groups.due(utc_now(self._clock), items_max=_GROUPS_PER_LOOK)
        for tenant_id, group_id in due:
            batch_uuid = await self._groups.close(tenant_id, group_id, utc_now(self._clock))
            if batch_uuid is not None:
                self.stats.add("closed")
                await self._publish(tenant_id, batch_uuid)
        before = utc_now(self._clock) - self._republish
        left = await self._groups.unpublished(before, items_max=_GROUPS_PER_LOOK)
        for tenant_id, batch_uuid in left:
            self.stats.add("republished")
            await self._publish(tenant_id, batch_uuid)
        return len(due) == _GROUPS_PER_LOOK or len(left) == _GROUPS_PER_LOOK

    async def _publish(self, tenant_id: str, batch_uuid: str) -> None:
        message = await self._groups.message(tenant_id, batch_uuid)
        assert message.digest is not None
        if message.digest.generation > 0:
            self.stats.add("supplements")
        await self._broker.publish(
            [
                Message(
                    topic=DELIVERY_DIGEST,
                    body=message.to_json(),
                    message_id=f"{batch_uuid}:0",
                    tenant_id=tenant_id,
                )
            ]
        )
        with anyio.CancelScope(shield=True):
            await self._groups.mark_published(tenant_id, batch_uuid, utc_now(self._clock))
        self.stats.add("published")
