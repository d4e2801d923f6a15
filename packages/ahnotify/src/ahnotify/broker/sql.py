"""The embedded broker: durable queues in the notification database.

One row of `broker_jobs` is one message in one queue. `visible_at` is all its state in time:

    visible_at <= now                    ready
    visible_at >  now, receipt is null   delayed: published or given back with a delay
    visible_at >  now, receipt is set    held by a consumer until then (its lease)

Claiming sets a fresh receipt and a lease; the holder renews it at a third of its length. A holder
that dies is simply not renewing: the message becomes ready when the lease ends. Every end (ack,
nack, dead letter) names the receipt, so a holder whose lease passed on changes nothing. Ready
messages are taken by id, which is the order of publishing.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

import anyio
import attrs
import sqlalchemy as sa

from ahnotify._signal import Signal
from ahnotify.broker.base import TOPOLOGY, Depth, Message, Topology
from ahnotify.clock import AsyncClock, SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.database._runtime_tables import broker_jobs as jobs
from ahnotify.errors import DatabaseUnavailableError, LeaseLostError, UnroutableError

__all__ = ["SqlBroker"]

_RENEWALS_PER_LEASE: Final = 3
_REASON_CHARS_MAX: Final = 500


@attrs.define(kw_only=True, eq=False)
class _SqlDelivery:
    queue: str
    body: bytes = attrs.field(repr=False)
    message_id: str
    tenant_id: str
    headers: Mapping[str, str]
    delivery_count: int
    published_at: datetime
    _row_id: int
    _receipt: str
    _consumer: _SqlConsumer = attrs.field(repr=False)

    @property
    def row_id(self) -> int:
        return self._row_id

    @property
    def receipt(self) -> str:
        return self._receipt

    def held(self) -> sa.ColumnElement[bool]:
        """True of the row while this delivery owns it."""
        return sa.and_(
            jobs.c.tenant_id == self.tenant_id,
            jobs.c.id == self._row_id,
            jobs.c.receipt == self._receipt,
        )

    async def ack(self) -> None:
        await self._consumer.end(self, sa.delete(jobs).where(self.held()))

    async def nack(self, *, delay_seconds: float = 0) -> None:
        await self._consumer.give_back(self, delay_seconds)

    async def dead_letter(self, reason: str) -> None:
        await self._consumer.bury(self, reason)


class _SqlConsumer:
    """One reader of one queue; holds at most `prefetch_items` messages."""

    def __init__(self, broker: SqlBroker, queue: str, prefetch_items: int) -> None:
        self._broker = broker
        self._queue = queue
        self._prefetch_items = prefetch_items
        self._held: dict[int, _SqlDelivery] = {}
        self._buffer: deque[_SqlDelivery] = deque()
        self._room = Signal()
        self._claiming = anyio.Lock()

    async def receive(self) -> _SqlDelivery:
        async with self._claiming:
            while not self._buffer:
                room = self._room.listen()
                if len(self._held) >= self._prefetch_items:
                    await room.wait()
                    continue
                arrived = self._broker.signal(self._queue).listen()
                # Shielded inside: what was claimed is in the buffer even if this task is cancelled.
                await self._broker.claim(self, self._queue, self._prefetch_items - len(self._held))
                if not self._buffer:
                    await self._broker.wait(arrived)
            await anyio.lowlevel.checkpoint_if_cancelled()
            return self._buffer.popleft()

    def take(self, deliveries: Sequence[_SqlDelivery]) -> None:
        for delivery in deliveries:
            self._held[delivery.row_id] = delivery
            self._buffer.append(delivery)

    async def end(self, delivery: _SqlDelivery, statement: sa.sql.dml.UpdateBase) -> None:
        async with self._broker.database.write() as connection:
            result = await connection.execute(statement)
        self._forget(delivery)
        if result.rowcount == 0:
            raise LeaseLostError(
                f"message {delivery.message_id} of {delivery.queue} was given back meanwhile; "
                "another consumer may hold it"
            )

    async def give_back(self, delivery: _SqlDelivery, delay_seconds: float) -> None:
        visible_at = self._broker.now() + timedelta(seconds=max(delay_seconds, 0))
        statement = (
            sa.update(jobs).where(delivery.held()).values(visible_at=visible_at, receipt=None)
        )
        await self.end(delivery, statement)
        self._broker.signal(delivery.queue).fire()

    async def bury(self, delivery: _SqlDelivery, reason: str) -> None:
        statement = (
            sa.update(jobs).where(delivery.held()).values(**self._broker.buried(delivery, reason))
        )
        await self.end(delivery, statement)
        self._broker.signal(self._broker.topology.dead_letters).fire()

    def _forget(self, delivery: _SqlDelivery) -> None:
        self._held.pop(delivery.row_id, None)
        self._room.fire()

    async def renew(self) -> None:
        """Keep the leases of what is held; a database away for a moment costs nothing."""
        while True:
            await self._broker.clock.sleep(self._broker.lease_seconds / _RENEWALS_PER_LEASE)
            if not self._held:
                continue
            with contextlib.suppress(DatabaseUnavailableError):
                await self._broker.extend([d.receipt for d in self._held.values()])

    async def close(self) -> None:
        """Give back everything; what never left the buffer does not count as delivered."""
        untouched = {delivery.receipt for delivery in self._buffer}
        held, self._held = list(self._held.values()), {}
        self._buffer.clear()
        if not held:
            return
        with anyio.CancelScope(shield=True), contextlib.suppress(DatabaseUnavailableError):
            async with self._broker.database.write() as connection:
                for delivery in held:
                    await connection.execute(
                        sa.update(jobs)
                        .where(delivery.held())
                        .values(
                            receipt=None,
                            visible_at=self._broker.now(),
                            delivery_count=jobs.c.delivery_count
                            - (1 if delivery.receipt in untouched else 0),
                        )
                    )
            self._broker.signal(self._queue).fire()


class SqlBroker:
    """A `Broker` in the notification database; processes that share the file share its queues.

    Durability is the database's: with SQLite as we open it, what was published survives a power
    loss.
    """

    def __init__(
        self,
        *,
        database: Database,
        clock: AsyncClock | None = None,
        topology: Topology = TOPOLOGY,
        lease_seconds: float = 30,
        poll_seconds: float = 1,
        deliveries_max: int = 20,
    ) -> None:
        """Keep the collaborators; nothing is opened or started yet.

        Args:
            database: Where the queues are.
            clock: Time; the system's by default.
            topology: Topics and queues.
            lease_seconds: How long a dead consumer's messages stay away.
            poll_seconds: How late a message of another process may be noticed.
            deliveries_max: Deliveries without an ack before a message is called poison.
        """
        self.database = database
        self.clock: AsyncClock = clock or SystemClock()
        self.topology = topology
        self.lease_seconds = lease_seconds
        self._poll_seconds = poll_seconds
        self._deliveries_max = deliveries_max
        self._signals: dict[str, Signal] = {queue: Signal() for queue in topology.queues}

    async def publish(self, messages: Sequence[Message], *, delay_seconds: float = 0) -> None:
        """Insert every message in one transaction: all are queued or none."""
        rows = [row for message in messages for row in self._rows(message, delay_seconds)]
        if not rows:
            return
        async with self.database.write() as connection:
            await connection.execute(sa.insert(jobs), rows)
        for queue in {row["queue"] for row in rows}:
            self.signal(queue).fire()

    def _rows(self, message: Message, delay_seconds: float) -> list[dict[str, Any]]:
        queues = self.topology.routes.get(message.topic)
        if queues is None:
            raise UnroutableError(
                f"no queue takes topic {message.topic!r}; "
                f"the topology has {', '.join(sorted(self.topology.routes))}"
            )
        now = self.now()
        return [
            {
                "tenant_id": message.tenant_id,
                "queue": queue,
                "message_id": message.message_id,
                "body": message.body,
                "headers": dict(message.headers),
                "visible_at": now + timedelta(seconds=max(delay_seconds, 0)),
                "receipt": None,
                "delivery_count": 0,
                "published_at": now,
            }
            for queue in queues
        ]

    @asynccontextmanager
    async def consume(self, queue: str, *, prefetch_items: int) -> AsyncIterator[_SqlConsumer]:
        """See `Broker.consume`."""
        if queue not in self.topology.queues:
            raise UnroutableError(f"the topology has no queue {queue!r}")
        consumer = _SqlConsumer(self, queue, prefetch_items)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.renew)
                try:
                    yield consumer
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            await consumer.close()

    async def depth(self, queue: str) -> Depth:
        """Count the rows of `queue`."""
        now = self.now()
        waiting = jobs.c.visible_at > now
        held = sa.and_(waiting, jobs.c.receipt.is_not(None))
        delayed = sa.and_(waiting, jobs.c.receipt.is_(None))
        query = sa.select(
            sa.func.count().filter(sa.not_(waiting)),
            sa.func.count().filter(held),
            sa.func.count().filter(delayed),
            sa.func.min(jobs.c.published_at).filter(sa.not_(delayed)),
        ).where(jobs.c.queue == queue)
        async with self.database.read() as connection:
            ready, unacked, later, oldest = (await connection.execute(query)).one()
        age = (now - oldest).total_seconds() if oldest else 0.0
        return Depth(ready=ready, unacked=unacked, delayed=later, oldest_age_seconds=max(age, 0.0))

    def now(self) -> datetime:
        """The clock's time."""
        return utc_now(self.clock)

    def signal(self, queue: str) -> Signal:
        """Fired when this process put something into `queue`."""
        return self._signals[queue]

    async def wait(self, arrived: anyio.Event) -> None:
        """Until a message of this process arrived, or it is time to look for others'."""
        async with anyio.create_task_group() as tasks:

            async def poll() -> None:
                await self.clock.sleep(self._poll_seconds)
                tasks.cancel_scope.cancel()

            tasks.start_soon(poll)
            await arrived.wait()
            tasks.cancel_scope.cancel()

    async def claim(self, consumer: _SqlConsumer, queue: str, items_max: int) -> None:
        """Lease up to `items_max` ready messages into `consumer`; bury poison on the way."""
        now = self.now()
        # A queue holds every tenant's messages, so this is the one place that asks across tenants.
        ready = (
            sa.select(jobs.c.id)
            .where(jobs.c.queue == queue, jobs.c.visible_at <= now)
            .order_by(jobs.c.id)
        )
        async with self.database.read() as connection:
            # Looking first without the writers' lock: an idle queue must not hold up the others.
            if (await connection.execute(ready.limit(1))).first() is None:
                return
        fresh: list[_SqlDelivery] = []
        async with self.database.write() as connection:
            chosen = ready.limit(items_max).with_for_update(skip_locked=True)
            ids = (await connection.execute(chosen)).scalars().all()
            for row_id in ids:
                delivery = await self._lease(connection, consumer, row_id, now)
                if delivery is not None:
                    fresh.append(delivery)
            # Still inside the shielded transaction's task step: nothing can be cancelled between
            # the commit and the buffer but a failing commit, which then leaves leases to expire.
        consumer.take(fresh)

    async def _lease(
        self, connection: Any, consumer: _SqlConsumer, row_id: int, now: datetime
    ) -> _SqlDelivery | None:
        receipt = uuid.uuid4().hex
        row = (
            (
                await connection.execute(
                    sa.update(jobs)
                    .where(jobs.c.id == row_id)
                    .values(
                        receipt=receipt,
                        visible_at=now + timedelta(seconds=self.lease_seconds),
                        delivery_count=jobs.c.delivery_count + 1,
                    )
                    .returning(jobs)
                )
            )
            .mappings()
            .one()
        )
        delivery = _SqlDelivery(
            queue=row["queue"],
            body=row["body"],
            message_id=row["message_id"],
            tenant_id=row["tenant_id"],
            headers=row["headers"],
            delivery_count=row["delivery_count"],
            published_at=row["published_at"],
            row_id=row_id,
            receipt=receipt,
            consumer=consumer,
        )
        # The dead-letter queue itself has no further grave: there a message waits until it is read.
        if (
            delivery.delivery_count > self._deliveries_max
            and delivery.queue != self.topology.dead_letters
        ):
            await connection.execute(
                sa.update(jobs)
                .where(delivery.held())
                .values(**self.buried(delivery, "delivery_limit"))
            )
            self.signal(self.topology.dead_letters).fire()
            return None
        return delivery

    def buried(self, delivery: _SqlDelivery, reason: str) -> dict[str, Any]:
        """The columns of a message that moves to the dead-letter queue."""
        return {
            "queue": self.topology.dead_letters,
            "headers": {
                **delivery.headers,
                "source_queue": delivery.queue,
                "reason": reason[:_REASON_CHARS_MAX],
                "deliveries": str(delivery.delivery_count),
            },
            "visible_at": self.now(),
            "receipt": None,
            "delivery_count": 0,
        }

    async def extend(self, receipts: Sequence[str]) -> None:
        """Renew the leases that are still ours."""
        until = self.now() + timedelta(seconds=self.lease_seconds)
        async with self.database.write() as connection:
            await connection.execute(
                sa.update(jobs).where(jobs.c.receipt.in_(receipts)).values(visible_at=until)
            )
