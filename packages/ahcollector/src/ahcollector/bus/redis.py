"""The bus that several processes share, on Redis Streams.

Keys, each behind the client's prefix:

| key | type | holds |
| --- | --- | --- |
| `bus:s:{n}` | stream | entries of shard `n`, of one field `b`; the group `workers` reads them |
| `bus:own:{n}` | string | the lease of a shard: its fence and its worker; Redis ends it |
| `bus:fence` | hash | shard to its last fence |
| `bus:workers` | zset | workers by when they count as gone (ms) |
| `bus:wants` | hash | worker to the shards it would take |
| `bus:dead` | stream | dead letters: `shard`, `reason`, `at`, and the fields of the entry |

**Entries.** `publish` is one XADD, and what several publish meanwhile is one script; both are sent
once. Where the reply is lost it raises `BusError`, the agent sends its batch again, and the same
samples at the same stamps change nothing in a store. No entry is ever trimmed: a shard is full when
`queue_batches_max` entries of it were read by nobody, as of a sample at most `sample_seconds` old,
and then nothing more is taken. An acknowledged entry leaves its stream in the same step, so a
stream holds what waits and what is held.

**Order.** A shard is read by the one worker that has its lease, and its entries are handed over one
after the other. A lease lasts `lease_seconds` by the clock of Redis and is renewed at a third; its
fence only rises. Acknowledgements, claims and tries run in scripts that check the lease, so those
of a stale owner have no effect. A new owner first takes over, in order, all that is pending. What a
stale owner reads after it lost the lease, because it did not know yet, is found after
`claim_idle_seconds`; only such entries may come late.

**Shares.** Workers that want the same shards get about the same number of them: who has more than
its share gives up one at a time. Each shows by a beacon, as long as a lease, that
it lives. So after a worker was killed, others have its shards within a lease and a renewal.

**Tries.** Redis counts a try when an entry is first read, and each further one is written down
before the entry is decoded, so an entry that kills the process is counted too. A handler that is
cancelled had no try, also where a lease was lost under it, and neither had what was read and waited
for its turn. A new owner counts the second try of many entries together: all that a process had
read when it died, the one that killed it among them. That try is kept until the entry is settled or
`clear_tries` is called. Those that have two and more are tried one at a time, and their tries are
taken back when the handler returns; so only the one that kills comes to five.

**Acknowledgements** are gathered and sent at once, those that come meanwhile with the next
command, and again until Redis takes them or the lease is over. A process that is killed in between
leaves entries that are handed over once more.

**Again.** An entry that is asked for again stays pending and leaves the memory of this process: it
is read anew by its id when its turn comes, some at a time, and its tries begin at one.

**Full.** A Redis at its ``maxmemory`` refuses to publish and to replay, and nothing else: leases
are renewed and taken, and what waits is read and acknowledged, which makes room again.

**Strange keys.** Every look of a worker, between a fifteenth and a third of a lease after the last
one, sees what no worker wrote, tells of it in the log and counts it. A stream or group that
somebody deleted is made anew and read from its beginning. A text that is no lease ends with the
time of one, what names no worker or no shards is taken out, and what is no fence counts for
nothing. Keys of a wrong type stay as they are, for they may be somebody's: a shard is not read as
long as its stream or its lease is none, and the others go on.

Durability is that of Redis: with ``appendfsync everysec`` up to two seconds of accepted batches may
be lost at a power cut, with ``always`` none.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

import anyio

from ahcollector import metrics as names
from ahcollector._gather import Gather
from ahcollector.bus._bulk import BULK_CONNECTIONS
from ahcollector.bus._depths import Depths
from ahcollector.bus._entries import encode
from ahcollector.bus._redis_dead import RedisBusDeadLetters
from ahcollector.bus._streams import ShardStreams
from ahcollector.bus._subscription import Subscription, SubscriptionSettings
from ahcollector.bus._subscriptions import Subscriptions
from ahcollector.bus._tenure import TenureSettings
from ahcollector.bus.base import SHARDS, AtEnd, Handler, SampleBatch, shard_for
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import BusClosed
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.redis import RedisClient

__all__ = ["RedisBus"]

# What many publishers put on the bus at once goes there in one round trip of at most so much.
_TOGETHER_ENTRIES_MAX: Final = 100
_TOGETHER_BYTES_MAX: Final = 4 << 20


class RedisBus:
    """`Bus` on Redis Streams, for any number of processes.

    A subscriber gets its share of the shards it asks for, and the others when those who have them
    are gone; it outlives every outage of Redis. `depth` counts for a shard what nobody has read, as
    of the last sample, and what waits in this process. Samples are taken while somebody here
    publishes or subscribes.

    Args:
        client: The Redis; it stays the caller's to close.
        clock: Ages of leases and samples, pauses, and dates of dead letters.
        metrics: Where to count.
        queue_batches_max: Entries of a shard that may wait to be read.
        readers: Connections on which a subscription waits for entries; those are its own, and so
            are four more, on which it reads entries without waiting.
        block_seconds: How long each waits for an entry, at most; so long a cancellation may take.
        lease_seconds: How long a shard stays with a worker that shows no life.
        claim_idle_seconds: What is pending for so long and unknown to the owner is handed over.
        sample_seconds: How old the sampled depths may get.
        retry_seconds: Pause before an entry is tried again, and before Redis is asked again.
        dead_max: Dead letters kept; the oldest go, counted.

    Attributes:
        dead: The dead letters.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        clock: AsyncClock | None = None,
        metrics: Metrics | None = None,
        queue_batches_max: int = 256,
        readers: int = 8,
        block_seconds: float = 0.5,
        lease_seconds: float = 15.0,
        claim_idle_seconds: float = 30.0,
        sample_seconds: float = 0.2,
        retry_seconds: float = 0.2,
        dead_max: int = 1_000,
    ) -> None:
        if not 1 <= readers <= SHARDS:
            raise ValueError(f"readers is {readers}; it must be 1 to {SHARDS}")
        if claim_idle_seconds <= 2 * block_seconds:
            raise ValueError(
                f"claim_idle_seconds is {claim_idle_seconds:g}, and block_seconds "
                f"{block_seconds:g}: entries that are just being read would be claimed; make it "
                "more than twice as long"
            )
        if lease_seconds <= 4 * block_seconds:
            raise ValueError(
                f"lease_seconds is {lease_seconds:g}, and block_seconds {block_seconds:g}: a lease "
                "would end while its owner waits; make it more than four times as long"
            )
        self._client = client
        self._clock = clock if clock is not None else SystemClock()
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._queue_batches_max = queue_batches_max
        self._settings = SubscriptionSettings(
            readers=readers,
            block_seconds=block_seconds,
            lease_seconds=lease_seconds,
            sample_seconds=sample_seconds,
            tenure=TenureSettings(
                retry_seconds=retry_seconds,
                dead_max=dead_max,
                claim_idle_seconds=claim_idle_seconds,
                block_seconds=block_seconds,
            ),
        )
        self._streams = ShardStreams(client=client)
        self._entries: Gather[tuple[int, bytes]] = Gather(
            write=self._streams.add,
            items_max=_TOGETHER_ENTRIES_MAX,
            size_of=_entry_bytes,
            size_max=_TOGETHER_BYTES_MAX,
        )
        self._depths = Depths(
            sample=self._streams.depths, clock=self._clock, sample_seconds=sample_seconds
        )
        self._subscriptions = Subscriptions()
        self._closed = anyio.Event()
        self.dead = RedisBusDeadLetters(
            streams=self._streams, admit=self._admit, added=self._depths.added
        )
        for shard in range(SHARDS):
            self._metrics.watch(names.BUS_DEPTH, partial(self._depth, shard), shard=str(shard))
        self._metrics.watch(names.BUS_HELD, self._subscriptions.held)

    async def publish(self, batch: SampleBatch) -> None:
        """Put a batch on its shard.

        Raises:
            BusFull: The shard has no room now.
            BusClosed: The bus was closed.
            BusError: Redis gave no answer, and the batch may be on the bus or not; or it is none.
        """
        shard = shard_for(batch.server_id)
        await self._admit(shard)
        entry = encode(batch)
        self._depths.added(shard)
        await self._entries.put((shard, entry))

    async def _admit(self, shard: int) -> None:
        """Return when a shard takes an entry; raise otherwise."""
        if self._closed.is_set():
            raise BusClosed("the bus is closed: the process is stopping, send again later")
        await self._depths.admit(shard, queue_batches_max=self._queue_batches_max)

    @property
    def is_shared(self) -> bool:
        """Yes: what is on it is handed over by any process that subscribes."""
        return True

    async def subscribe(
        self, shards: Collection[int], handler: Handler, *, at_end: AtEnd | None = None
    ) -> None:
        """Hand over the entries of its share of `shards`, until cancelled, or closed and empty.

        Raises:
            BusError: A shard is taken by another subscriber of this process, or does not exist.
        """
        wanted = self._subscriptions.wanted(shards)
        reading = self._client.for_blocking(
            block_seconds=self._settings.block_seconds,
            connections_max=self._settings.readers + BULK_CONNECTIONS,
        )
        subscription = Subscription(
            worker=uuid.uuid4().hex,
            shards=wanted,
            handler=handler,
            streams=self._streams,
            reading=reading,
            depths=self._depths,
            clock=self._clock,
            metrics=self._metrics,
            settings=self._settings,
            closed=self._closed,
        )
        try:
            await self._subscriptions.run(subscription, wanted, at_end)
        finally:
            await reading.aclose()

    def tenures(self) -> Mapping[int, object]:
        """Return the shards whose leases are surely held, each with its lease."""
        return self._subscriptions.leases()

    def depth(self) -> Mapping[int, int]:
        """Count what waits, as of the last sample; asks nobody."""
        return {shard: int(self._depth(shard)) for shard in range(SHARDS)}

    async def close(self) -> None:
        """Take nothing more; subscriptions of this process end when their shards are empty."""
        self._closed.set()

    def _depth(self, shard: int) -> float:
        return float(self._depths[shard] + self._subscriptions.queued(shard))


def _entry_bytes(entry: tuple[int, bytes]) -> int:
    return len(entry[1])
