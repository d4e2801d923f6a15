"""The bus of one process: a bounded queue a shard."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from functools import partial

import anyio
import attrs

from ahcollector import metrics as names
from ahcollector.bus._dead import MemoryBusDeadLetters
from ahcollector.bus.base import (
    SHARDS,
    TRIES_MAX,
    Handler,
    SampleBatch,
    shard_for,
)
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusClosed, BusError, BusFull
from ahcollector.metrics import Metrics, NullMetrics

__all__ = ["InProcessBus"]

_log = logging.getLogger("ahcollector.bus")


@attrs.define(kw_only=True, eq=False)
class _Entry:
    batch: SampleBatch
    tries: int = 0


class _Shard:
    """One shard: what waits, what is held, and whether somebody reads it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: deque[_Entry] = deque()
        self.held: dict[int, _Entry] = {}
        self.taken = False
        self.changed = anyio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def give_back(self) -> None:
        """Put what is held before what waits, in the old order."""
        self.waiting.extendleft(reversed(self.held.values()))
        self.held.clear()


def _waiting(shard: _Shard) -> float:
    return float(len(shard.waiting))


class _Delivery:
    """One hand-over of an entry."""

    def __init__(self, shard: _Shard, entry: _Entry) -> None:
        self._shard = shard
        self._entry = entry
        self._attempt = entry.tries

    @property
    def batch(self) -> SampleBatch:
        return self._entry.batch

    @property
    def shard(self) -> int:
        return self._shard.number

    @property
    def attempt(self) -> int:
        return self._attempt

    async def ack(self) -> None:
        # After a subscription ended, the entry waits for the next one: an acknowledgement that
        # comes so late has no effect, as with a lease that was lost.
        self._shard.held.pop(id(self._entry), None)


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
        shard.waiting.append(_Entry(batch=batch))
        shard.wake()

    async def subscribe(self, shards: Collection[int], handler: Handler) -> None:
        """Hand over entries until cancelled, or closed and empty."""
        mine = [self._checked(number) for number in sorted(set(shards))]
        for shard in mine:
            shard.taken = True
        try:
            async with anyio.create_task_group() as tasks:
                for shard in mine:
                    tasks.start_soon(self._serve, shard, handler)
        finally:
            for shard in mine:
                shard.give_back()
                shard.taken = False

    def _checked(self, number: int) -> _Shard:
        if not 0 <= number < SHARDS:
            raise BusError(f"there is no shard {number}: shards are 0 to {SHARDS - 1}")
        shard = self._shards[number]
        if shard.taken:
            raise BusError(f"shard {number} has a subscriber: end that subscription first")
        return shard

    async def _serve(self, shard: _Shard, handler: Handler) -> None:
        while True:
            while not shard.waiting:
                if self._closed:
                    return
                await shard.changed.wait()
            entry = shard.waiting.popleft()
            shard.held[id(entry)] = entry
            await self._hand_over(shard, entry, handler)
            # Or each shard would hold a batch, some of them large, until its next one comes.
            del entry

    async def _hand_over(self, shard: _Shard, entry: _Entry, handler: Handler) -> None:
        """Give one entry to the handler until it takes it, or has failed too often."""
        while True:
            entry.tries += 1
            try:
                await handler(_Delivery(shard, entry))
            except Exception as error:  # noqa: BLE001 - the supervisor of the handler, see below
                # Whatever a handler raises is a failed try of this entry
                # and must not stop the entries behind it.
                _log.warning(
                    "a batch could not be handled",
                    exc_info=error,
                    extra={"request_id": entry.batch.request_id, "attempt": entry.tries},
                )
                if entry.tries >= TRIES_MAX:
                    self._bury(shard, entry, f"{type(error).__name__}: {error}")
                    return
                await self._clock.sleep(self._retry_seconds)
            else:
                entry.tries = 0
                return

    def _bury(self, shard: _Shard, entry: _Entry, reason: str) -> None:
        shard.held.pop(id(entry), None)
        self.dead.put(entry.batch, shard.number, reason, self._clock.time())
        self._metrics.inc(names.BUS_DEAD_LETTER, reason="handler_failed")

    def depth(self) -> Mapping[int, int]:
        """Count what waits."""
        return {shard.number: len(shard.waiting) for shard in self._shards}

    async def close(self) -> None:
        """Take nothing more."""
        self._closed = True
        for shard in self._shards:
            shard.wake()
