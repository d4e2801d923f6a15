"""What one shard brought and the store does not have yet."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from ahcollector.bus.base import Delivery
from ahcollector.clock import AsyncClock

__all__ = ["ShardBuffer"]

_PRESSURE_FLUSHES: Final = 4


class ShardBuffer:
    """Deliveries in order; one task puts, one task takes them out.

    A batch without samples counts as one, so that empty batches cannot pile up either.

    Args:
        clock: Paces the flush.
        flush_samples: Enough for a write.
        flush_seconds: How long the first delivery waits for more.
    """

    def __init__(self, *, clock: AsyncClock, flush_samples: int, flush_seconds: float) -> None:
        self._clock = clock
        self._flush_samples = flush_samples
        self._flush_seconds = flush_seconds
        self._changed = anyio.Event()
        self._closed = False
        self._at_once: set[Delivery] = set()
        self._alone: set[Delivery] = set()
        self.entries: deque[Delivery] = deque()
        self.samples = 0
        self._queued_samples = 0

    @property
    def is_full(self) -> bool:
        """Whether `put` would wait."""
        return self._closed or self.samples >= _PRESSURE_FLUSHES * self._flush_samples

    async def room(self) -> None:
        """Return when `put` would not wait."""
        while self.is_full:
            await self._changed.wait()

    async def put(self, delivery: Delivery, *, at_once: bool = False, alone: bool = False) -> None:
        """Add a delivery, after waiting while four flushes of samples are unwritten.

        After `close` it does not return: what was not taken is for others to take.

        Args:
            delivery: What to add.
            at_once: Whether it waits for no others.
            alone: Whether it is written by itself.
        """
        await self.room()
        if at_once:
            self._at_once.add(delivery)
        if alone:
            self._alone.add(delivery)
        self.entries.append(delivery)
        self.samples += _weight(delivery)
        self._queued_samples += _weight(delivery)
        self._wake()

    async def ready(self) -> list[Delivery]:
        """Wait for enough, or for long enough; return what to write now, nothing at the end.

        What is returned counts as unwritten until `written`.
        """
        while not self.entries:
            if self._closed:
                return []
            await self._changed.wait()
        if not self._enough():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pause, tasks.cancel_scope)
                while not self._enough():
                    await self._changed.wait()
                tasks.cancel_scope.cancel()
        chosen: list[Delivery] = []
        samples = 0
        while self.entries and samples < self._flush_samples:
            is_alone = self.entries[0] in self._alone
            if is_alone and chosen:
                break
            delivery = self.entries.popleft()
            chosen.append(delivery)
            samples += _weight(delivery)
            self._at_once.discard(delivery)
            if is_alone:
                self._alone.remove(delivery)
                break
        self._queued_samples -= samples
        return chosen

    async def _pause(self, scope: anyio.CancelScope) -> None:
        await self._clock.sleep(self._flush_seconds)
        scope.cancel()

    def written(self, deliveries: list[Delivery]) -> None:
        """Note that deliveries are settled."""
        self.samples -= sum(map(_weight, deliveries))
        self._wake()

    def close(self) -> None:
        """Take no more; what is there is ready."""
        self._closed = True
        self._wake()

    def _enough(self) -> bool:
        if self._closed or self._at_once:
            return True
        return self._queued_samples >= self._flush_samples

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _weight(delivery: Delivery) -> int:
    return max(1, delivery.batch.samples)
