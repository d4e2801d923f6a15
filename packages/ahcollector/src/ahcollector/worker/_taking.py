"""What a worker is to its bus: the handler that takes batches, and tells when it can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ahcollector.bus.base import ALONE_FROM, Delivery
from ahcollector.errors import TemporaryStoreError
from ahcollector.worker._breaker import CircuitBreaker
from ahcollector.worker._buffer import ShardBuffer
from ahcollector.worker._settling import Settling
from ahcollector.worker._trials import Trials

__all__ = ["Taking"]


class Taking:
    """A `ReadyHandler` that puts batches into buffers.

    Args:
        buffers: Where batches of each shard go.
        away: Told why the store takes nothing; it opens the breaker.
    """

    def __init__(
        self,
        *,
        buffers: Mapping[int, ShardBuffer],
        breaker: CircuitBreaker,
        trials: Trials,
        settling: Settling,
        away: Callable[[TemporaryStoreError], Awaitable[None]],
    ) -> None:
        self._buffers = buffers
        self._breaker = breaker
        self._trials = trials
        self._settling = settling
        self._away = away

    async def ready(self, shard: int) -> None:
        """Return when the buffer has room, and the store just gave an answer or is known away.

        A store that hangs is known to be away only when a write has waited for its whole time, and
        a kill in that write counts for a death of its batch. So it is asked before. Away, what is
        tried waits without its tries.
        """
        await self._buffers[shard].room()
        if self._breaker.open:
            return
        try:
            await self._settling.answered()
        except TemporaryStoreError as error:
            await self._away(error)

    async def __call__(self, delivery: Delivery) -> None:
        """Put a batch into its buffer, once it has room; see to what a process died with."""
        buffer = self._buffers[delivery.shard]
        if delivery.attempt > 1 and await self._may_be_tried(buffer):
            await self._try_out(delivery, buffer)
            return
        if delivery.attempt > 1:
            # It waits for the store, however often processes end meanwhile.
            await delivery.clear_tries()
        await buffer.put(delivery)

    async def _may_be_tried(self, buffer: ShardBuffer) -> bool:
        """Wait for room among the trials; return whether the store takes samples, as far as known.

        Then the buffer has room, too.
        """
        while not (self._breaker.open or buffer.is_full):
            if self._trials.has_room:
                return True
            await self._trials.change()
        return False

    async def _try_out(self, delivery: Delivery, buffer: ShardBuffer) -> None:
        """Take a batch that a process died with; from the third try on return when that is over."""
        is_alone = delivery.attempt >= ALONE_FROM
        over = self._trials.begin(delivery)
        await buffer.put(delivery, at_once=True, alone=is_alone)
        if is_alone:
            try:
                await over.wait()
            finally:
                self._trials.drop(delivery)
