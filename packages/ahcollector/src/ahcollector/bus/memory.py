"""The bus of one process: a bounded queue a shard."""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial

import anyio
import attrs

from ahcollector import metrics as names
from ahcollector.bus._dead import MemoryBusDeadLetters
from ahcollector.bus._ready import until_ready, writable
from ahcollector.bus._subscriptions import wanted_shards
from ahcollector.bus.base import (
    SHARDS,
    TRIES_MAX,
    AtEnd,
    Handler,
    SampleBatch,
    shard_for,
)
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusClosed, BusFull
from ahcollector.metrics import Metrics, NullMetrics

__all__ = ["InProcessBus"]

_log = logging.getLogger("ahcollector.bus")


@attrs.define(kw_only=True, eq=False)
class _Entry:
    number: int
    batch: SampleBatch
    tries: int = 0

    def __lt__(self, other: _Entry) -> bool:
        return self.number < other.number


class _Shard:
    """One shard: what waits, what is held, and whether somebody reads it.

    Attributes:
        waiting: Entries in the order of their numbers; those handed over before have lower ones.
        again: Entries that were asked for again: a heap.
        held: What was handed over and is not settled, by the number of the hand-over.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: deque[_Entry] = deque()
        self.again: list[_Entry] = []
        self.held: dict[int, _Entry] = {}
        self.taken = False
        self.tenure = 0
        self.changed = anyio.Event()
        self._last_entry = 0
        self._last_hand_over = 0

    def add(self, batch: SampleBatch) -> None:
        self._last_entry += 1
        self.waiting.append(_Entry(number=self._last_entry, batch=batch))
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def depth(self) -> int:
        return len(self.waiting) + len(self.again)

    def next(self) -> _Entry | None:
        if self.again:
            return heapq.heappop(self.again)
        return self.waiting.popleft() if self.waiting else None

    def hold(self, entry: _Entry) -> int:
        """Hold an entry; return the number of this hand-over."""
        self._last_hand_over += 1
        self.held[self._last_hand_over] = entry
        return self._last_hand_over

    def ask_again(self, hand_over: int) -> None:
        entry = self.held.pop(hand_over, None)
        if entry is not None:
            entry.tries = 0
            heapq.heappush(self.again, entry)
            self.wake()

    def give_back(self) -> None:
        """Put what is held or asked for again before what waits, in the old order."""
        self.waiting.extendleft(sorted([*self.held.values(), *self.again], reverse=True))
        self.held.clear()
        self.again.clear()


def _waiting(shard: _Shard) -> float:
    return float(shard.depth())


class _Receipt:
    """Settles one hand-over, which it knows by its number: one that is past has no effect."""

    def __init__(self, shard: _Shard, hand_over: int) -> None:
        self._shard = shard
        self._hand_over = hand_over

    async def ack(self) -> None:
        self._shard.held.pop(self._hand_over, None)

    async def again(self) -> None:
        self._shard.ask_again(self._hand_over)


class _Delivery(_Receipt):
    """One hand-over of an entry."""

    def __init__(self, shard: _Shard, hand_over: int, entry: _Entry) -> None:
        super().__init__(shard, hand_over)
        self._batch = entry.batch
        self._attempt = entry.tries

    @property
    def batch(self) -> SampleBatch:
        return self._batch

    @property
    def shard(self) -> int:
        return self._shard.number

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def receipt(self) -> _Receipt:
        return _Receipt(self._shard, self._hand_over)

    async def clear_tries(self) -> None:
        """Do nothing: what ends the process ends its bus, and what a handler took has no tries."""


class InProcessBus:
    """`Bus` in memory: gone with the process.

    What agents were told was accepted and no worker had written is lost with it; the choice of this
    bus is the choice to accept that.

    Args:
        clock: Spaces the tries of a failing entry, and dates dead letters.
        queue_batches_max: Entries that may wait in one shard (held ones do not count).
        dead_max: Dead letters kept; the oldest go, counted.
        retry_seconds: Pause before an entry is tried again.
        metrics: Where to count.

    Attributes:
        dead: The dead letters.
    """

    def __init__(
        self,
        *,
        clock: AsyncClock,
        queue_batches_max: int = 256,
        dead_max: int = 1_000,
        retry_seconds: float = 0.2,
        metrics: Metrics | None = None,
    ) -> None:
        self._clock = clock
        self._queue_batches_max = queue_batches_max
        self._retry_seconds = retry_seconds
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._shards = [_Shard(number) for number in range(SHARDS)]
        self._closed = False
        self.dead = MemoryBusDeadLetters(publish=self.publish, letters_max=dead_max)
        for shard in self._shards:
            self._metrics.watch(names.BUS_DEPTH, partial(_waiting, shard), shard=str(shard.number))
        self._metrics.watch(names.BUS_HELD, self._held)

    async def publish(self, batch: SampleBatch) -> None:
        """Put a batch on its shard."""
        if self._closed:
            raise BusClosed("the bus is closed: the process is stopping, send again later")
        shard = self._shards[shard_for(batch.server_id)]
        if len(shard.waiting) >= self._queue_batches_max:
            raise BusFull(
                f"shard {shard.number} of the bus holds {len(shard.waiting)} batches, which is its "
                "bound: the workers are behind, send the batch again later"
            )
        shard.add(batch)

    @property
    def is_shared(self) -> bool:
        """No: what is on it ends with the process."""
        return False

    async def subscribe(
        self, shards: Collection[int], handler: Handler, *, at_end: AtEnd | None = None
    ) -> None:
        """Hand over entries until cancelled, or closed and empty."""
        wanted = wanted_shards(shards, lambda shard: self._shards[shard].taken)
        mine = [self._shards[number] for number in wanted]
        for shard in mine:
            shard.taken = True
            shard.tenure += 1
        try:
            async with anyio.create_task_group() as tasks:
                for shard in mine:
                    tasks.start_soon(self._serve, shard, handler)
            if at_end is not None:
                await at_end()
        finally:
            for shard in mine:
                shard.give_back()
                shard.taken = False

    async def _serve(self, shard: _Shard, handler: Handler) -> None:
        while True:
            entry = shard.next()
            if entry is None:
                if self._closed:
                    return
                await shard.changed.wait()
                continue
            await self._hand_over(shard, entry, handler)
            # Or each shard would hold a batch, some of them large, until its next one comes.
            del entry

    async def _hand_over(self, shard: _Shard, entry: _Entry, handler: Handler) -> None:
        """Give one entry to the handler until it takes it, or has failed too often."""
        hand_over = shard.hold(entry)
        while hand_over in shard.held:
            if entry.tries:
                await until_ready(handler, shard.number)
                if hand_over not in shard.held:
                    return
            entry.tries += 1
            try:
                await handler(_Delivery(shard, hand_over, entry))
            except anyio.get_cancelled_exc_class():
                entry.tries = max(0, entry.tries - 1)
                raise
            except Exception as error:  # noqa: BLE001 - the supervisor of the handler, see below
                # Whatever a handler raises is a failed try of this entry
                # and must not stop the entries behind it.
                _log.warning(
                    "a batch could not be handled",
                    exc_info=error,
                    extra={"request_id": entry.batch.request_id, "attempt": entry.tries},
                )
                # Its handler may have settled it before it failed.
                if hand_over not in shard.held:
                    return
                if entry.tries >= TRIES_MAX:
                    self._bury(shard, hand_over, f"{type(error).__name__}: {error}")
                    return
                await self._clock.sleep(self._retry_seconds)
            else:
                entry.tries = 0
                return

    def _bury(self, shard: _Shard, hand_over: int, reason: str) -> None:
        entry = shard.held.pop(hand_over)
        reason = writable(reason)
        _log.error(
            "an entry of the bus is set aside",
            extra={"request_id": entry.batch.request_id, "shard": shard.number, "error": reason},
        )
        self.dead.put(entry.batch, shard.number, reason, self._clock.time())
        self._metrics.inc(names.BUS_DEAD_LETTER, reason="handler_failed")

    def tenures(self) -> Mapping[int, object]:
        """Return the shards that have a subscriber, each with the number of its subscription."""
        return {shard.number: shard.tenure for shard in self._shards if shard.taken}

    def depth(self) -> Mapping[int, int]:
        """Count what waits."""
        return {shard.number: shard.depth() for shard in self._shards}

    def _held(self) -> float:
        return float(sum(len(shard.held) for shard in self._shards))

    async def close(self) -> None:
        """Take nothing more."""
        self._closed = True
        for shard in self._shards:
            shard.wake()
