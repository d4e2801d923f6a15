"""The bus that several processes share, on NATS JetStream: a buffer of two hours.

| name | kind | holds |
| --- | --- | --- |
| `{prefix}_bus` | stream, work queue, on disk | entries; `{prefix}.bus.s.{n}` for shard `n` |
| `{prefix}_bus_dead` | stream, on disk | dead letters |
| `KV_{prefix}_bus` | KV bucket | `leases`: workers and shards; `tries.{n}`: of shard `n` |

**Entries.** A batch is one entry, or several where it is larger than `entry_bytes_max`; each of
those is a batch by itself. `publish` sends each once, and without an id by which JetStream would
know it again: for two minutes it would also take a dead batch that is replayed for one it has, and
drop it. Where an answer was lost `BusError` is raised, and the agent sends its batch again: the
same samples at the same stamps, which change nothing in a store.

**Full** is full: JetStream refuses what is over a limit of the stream (bytes, entries, entries of
one shard), nothing expires, and nothing makes room for anything. Held entries count there, since
they are on its disk; `queue_batches_max` bounds, softly, only those that wait. What waited for
longer than the buffer is meant for is counted in ``ahc_bus_overdue_total`` when it is handed over,
and while there is such a thing the log says so once a minute.

**Order.** A shard is read by the one worker that has its lease, through a consumer that belongs to
the lease, and its entries are handed over one after the other. A new owner deletes the consumer of
the old one, whose acknowledgements then have no effect, and is handed all that is not acknowledged,
in order. Leases are one table in the bucket that is changed by compare-and-set: they last
`lease_seconds`, are renewed at a third, and depend on steady clocks alone, not on clocks that
agree. After a worker was killed, others have its shards within a lease and a renewal.

**Tries** are counted as the law of `Bus` says (`TRIES_MAX`), across owners. The first one costs
nothing; a later one is written down before the entry is decoded. A handler that is cancelled, or
whose lease ends under it, had no try. What a dead process had read has one more, until it is
settled or `clear_tries` is called; of more than 10,000 such entries of a shard, until the handler
returns. Those of two and more tries are tried one at a time, and only the one that kills comes to
five. Only where NATS and the worker are killed together may a try be forgotten.

**Acknowledgements** are gathered, sent together, and again until they are confirmed or the lease is
over. A process that is killed in between, or a NATS that is killed, hands entries over once more.

**What is lost.** Nothing by kill -9 of workers, publishers or NATS: what `publish` returned from is
with the operating system. At a power cut NATS may lose what it took in the last seconds, unless it
syncs each write: ``sync_interval: always`` in its `jetstream` section, which NATS has from 2.10 on
(2.9 has no such setting, and syncs every two minutes). No client can see how that is set, so
`check` cannot either.

This module needs asyncio and the extra ``[nats]``. It is tested on NATS 2.9.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import anyio

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.bus._depths import Depths
from ahcollector.bus._jetstream_api import FULL, JetStreamApi, JetStreamRefusedError
from ahcollector.bus._jetstream_consumer import LARGE_TOGETHER
from ahcollector.bus._jetstream_dead import JetStreamBusDeadLetters
from ahcollector.bus._jetstream_setup import BufferSize, JetStreamSetup, Names, buffer_bytes
from ahcollector.bus._jetstream_split import split
from ahcollector.bus._jetstream_subscription import JetStreamSubscription, SubscriptionSettings
from ahcollector.bus._subscriptions import Subscriptions
from ahcollector.bus.base import SHARDS, AtEnd, Handler, SampleBatch, shard_for
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import BusClosed, BusError, BusFull, NatsError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.nats import NatsClient

__all__ = ["BufferSize", "JetStreamBus", "buffer_bytes"]

_log = logging.getLogger("ahcollector.bus")
_ENTRY_BYTES_MIN: Final = 4_096


class JetStreamBus:
    """`Bus` on NATS JetStream, for any number of processes.

    A subscriber gets its share of the shards it asks for, and the others when those who have them
    are gone; it outlives every outage of NATS. `depth` counts for a shard what was delivered to
    nobody, as of the last sample, and what waits in this process. Samples are taken while somebody
    here subscribes, or publishes where `queue_batches_max` is set.

    Args:
        client: The NATS; it stays the caller's to close.
        clock: Ages of leases and samples, pauses, fences, and dates of dead letters.
        metrics: Where to count.
        size: How much the stream takes.
        queue_batches_max: Entries of a shard that may wait to be read, as far as the last sample
            tells; None: as many as the stream takes.
        entry_bytes_max: Larger batches are split. An entry and its headers must fit in a message
            of NATS (`max_payload`, 1 MiB unless set).
        replicas: Servers of a NATS cluster that keep each stream, when it is made.
        lease_seconds: How long a shard stays with a worker that shows no life.
        pull_seconds: How long NATS is asked for entries at a time; so often it is asked in vain.
        sample_seconds: How old the sampled depths may get.
        retry_seconds: Pause before an entry is tried again, and before NATS is asked again.
        dead_max: Dead letters kept; the oldest go, counted.
        dead_bytes_max: Bytes of dead letters kept, likewise.

    Attributes:
        dead: The dead letters.
    """

    def __init__(
        self,
        *,
        client: NatsClient,
        clock: AsyncClock | None = None,
        metrics: Metrics | None = None,
        size: BufferSize | None = None,
        queue_batches_max: int | None = None,
        entry_bytes_max: int = 900_000,
        replicas: int = 1,
        lease_seconds: float = 15.0,
        pull_seconds: float = 30.0,
        sample_seconds: float = 1.0,
        retry_seconds: float = 0.2,
        dead_max: int = 1_000,
        dead_bytes_max: int = 256 << 20,
    ) -> None:
        if entry_bytes_max < _ENTRY_BYTES_MIN:
            raise ValueError(
                f"entry_bytes_max is {entry_bytes_max}; the labels of one series alone may take "
                f"{_ENTRY_BYTES_MIN} bytes: make it that at least"
            )
        if dead_bytes_max < 2 * entry_bytes_max:
            raise ValueError(
                f"dead_bytes_max is {dead_bytes_max}, and an entry has up to {entry_bytes_max} "
                "bytes: make it twice as much at least, or a dead letter fits nowhere"
            )
        self._clock = clock if clock is not None else SystemClock()
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._size = size if size is not None else BufferSize()
        self._queue_batches_max = queue_batches_max
        self._entry_bytes_max = entry_bytes_max
        self._dead_max = dead_max
        self._settings = SubscriptionSettings(
            lease_seconds=lease_seconds,
            retry_seconds=retry_seconds,
            pull_seconds=pull_seconds,
            sample_seconds=sample_seconds,
        )
        self._api = JetStreamApi(client=client)
        self._names = Names(prefix=client.prefix)
        self._setup = JetStreamSetup(
            api=self._api,
            names=self._names,
            size=self._size,
            replicas=replicas,
            entry_bytes_max=entry_bytes_max,
            dead_max=dead_max,
            dead_bytes_max=dead_bytes_max,
        )
        self._is_ready = False
        self._making_ready = anyio.Lock()
        self._depths = Depths(sample=self._sample, clock=self._clock, sample_seconds=sample_seconds)
        self._oldest_age = 0.0
        self._overdue = Trouble(
            _log,
            "the bus holds entries for longer than it is sized for: workers are behind",
            "the bus holds no entry for longer than it is sized for any more",
        )
        self._room = anyio.Semaphore(LARGE_TOGETHER)
        self._subscriptions = Subscriptions()
        self._closed = anyio.Event()
        self.dead = JetStreamBusDeadLetters(
            api=self._api, names=self._names, admit=self._admit, put=self._put
        )
        for shard in range(SHARDS):
            self._metrics.watch(names.BUS_DEPTH, partial(self._depth, shard), shard=str(shard))
        self._metrics.watch(names.BUS_HELD, self._subscriptions.held)
        self._metrics.watch(names.BUS_OLDEST_AGE, lambda: self._oldest_age)

    @property
    def is_shared(self) -> bool:
        """Yes: what is on it is handed over by any process that subscribes."""
        return True

    async def check(self) -> tuple[str, ...]:
        """Make the streams and the bucket, or see that those that are there will do.

        It is done once by itself when the bus is first used; who calls it at start learns early.
        A limit of theirs that is too low is raised, none is ever lowered. Whether NATS syncs each
        write (``sync_interval: always``) it cannot see.

        Returns:
            A sentence for each limit of theirs that is higher than it is set here, with the way to
            lower it, and for other replicas.

        Raises:
            BusError: A stream would lose what it was given (it has a `max_age`, or discards old
                entries, or is in memory …), NATS has not the room or takes no message that large,
                or it gives no answer.
        """
        told = await self._setup.check()
        self._is_ready = True
        return told

    async def _ready(self) -> None:
        if not self._is_ready:
            async with self._making_ready:
                if not self._is_ready:
                    await self.check()

    def _doubt(self) -> None:
        self._is_ready = False

    async def publish(self, batch: SampleBatch) -> None:
        """Put a batch on its shard.

        Raises:
            BusFull: The stream, or the shard, has no room now. Of a batch that is split some part
                may be on the bus; the batch may be published again.
            BusClosed: The bus was closed.
            BusError: NATS gave no answer, and the batch may be on the bus or not; or it is none.
        """
        shard = shard_for(batch.server_id)
        await self._admit(shard)
        for entry in split(batch, entry_bytes_max=self._entry_bytes_max):
            await self._put(shard, entry)

    async def _admit(self, shard: int) -> None:
        """Return when a shard takes an entry, as far as is known here; raise otherwise."""
        if self._closed.is_set():
            raise BusClosed("the bus is closed: the process is stopping, send again later")
        await self._ready()
        if self._queue_batches_max is not None:
            await self._depths.admit(shard, queue_batches_max=self._queue_batches_max)

    async def _put(self, shard: int, entry: bytes, message_id: str | None = None) -> None:
        subject = self._names.shard(shard)
        self._depths.added(shard)
        try:
            headers = {} if message_id is None else {"Nats-Msg-Id": message_id}
            await self._api.put(subject, entry, headers)
        except JetStreamRefusedError as error:
            if error.number == FULL:
                raise BusFull(
                    f"shard {shard} of the bus is full ({error}): the stream takes "
                    f"{self._size.bytes_max} bytes, {self._size.batches_max} entries, and "
                    f"{self._size.shard_batches_max} of one shard: the workers are behind or there "
                    "is none, send the batch again later"
                ) from error
            raise
        except BusError as error:
            if isinstance(error.__cause__, NatsError) and error.__cause__.is_nobody:
                # The stream may be gone: then it is made again when it is used next.
                self._doubt()
            raise

    async def subscribe(
        self, shards: Collection[int], handler: Handler, *, at_end: AtEnd | None = None
    ) -> None:
        """Hand over the entries of its share of `shards`, until cancelled, or closed and empty.

        Raises:
            BusError: A shard is taken by another subscriber of this process, or does not exist.
        """
        wanted = self._subscriptions.wanted(shards)
        subscription = JetStreamSubscription(
            worker=uuid.uuid4().hex,
            shards=wanted,
            handler=handler,
            api=self._api,
            names=self._names,
            letters=self.dead,
            room=self._room,
            came=self._came,
            ready=self._ready,
            doubt=self._doubt,
            sample=self._refresh,
            clock=self._clock,
            metrics=self._metrics,
            dead_max=self._dead_max,
            settings=self._settings,
            closed=self._closed,
        )
        await self._subscriptions.run(subscription, wanted, at_end)

    def tenures(self) -> Mapping[int, object]:
        """Return the shards whose leases are surely held, each with its lease."""
        return self._subscriptions.leases()

    def depth(self) -> Mapping[int, int]:
        """Count what waits, as of the last sample; asks nobody."""
        return {shard: int(self._depth(shard)) for shard in range(SHARDS)}

    async def close(self) -> None:
        """Take nothing more; subscriptions of this process end when their shards are empty."""
        self._closed.set()

    # --- what is known of it

    def _depth(self, shard: int) -> float:
        return float(self._depths[shard] + self._subscriptions.queued(shard))

    def _came(self, shard: int, taken_at: float) -> None:
        self._depths.read(shard, 1)
        if self._clock.time() - taken_at > self._size.seconds:
            self._metrics.inc(names.BUS_OVERDUE)

    async def _refresh(self) -> None:
        # Before it is ready there may be nothing to look at.
        if self._is_ready:
            await self._depths.refresh()

    async def _sample(self) -> list[int]:
        """Return how many entries of each shard were delivered to nobody."""
        consumers = await self._api.consumers(self._names.stream)
        info = await self._api.ask(
            f"STREAM.INFO.{self._names.stream}",
            {"subjects_filter": ">"} if len(consumers) < SHARDS else {},
        )
        state = info.get("state", {})
        self._look_at_age(state)
        subjects = state.get("subjects") or {}
        depths = [int(subjects.get(self._names.shard(shard), 0)) for shard in range(SHARDS)]
        shards = {self._names.shard(shard): shard for shard in range(SHARDS)}
        for one in consumers:
            shard = shards.get(one.get("config", {}).get("filter_subject", ""), -1)
            if shard >= 0:
                depths[shard] = int(one.get("num_pending", 0))
        return depths

    def _look_at_age(self, state: Mapping[str, Any]) -> None:
        self._oldest_age = 0.0
        if int(state.get("messages", 0)):
            self._oldest_age = max(0.0, self._clock.time() - _seconds(str(state["first_ts"])))
        if self._oldest_age > self._size.seconds:
            extra = {"oldest_seconds": round(self._oldest_age), "entries": state.get("messages")}
            self._overdue.goes_on(self._clock.monotonic(), extra)
        else:
            self._overdue.is_over()


def _seconds(text: str) -> float:
    """Return Unix seconds of a time in JetStream's writing, which has nanoseconds."""
    whole, _, _ = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp()
