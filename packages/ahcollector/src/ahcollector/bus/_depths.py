"""How many entries wait in each shard: sampled, and reckoned on from the last sample."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ahcollector.bus.base import SHARDS
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusFull

__all__ = ["Depths"]


class Depths:
    """Entries of each shard that nobody has read, as far as this process knows.

    What it publishes and reads itself is counted at once, what others do with the next sample. So a
    bound holds up to what several publishers put between two samples.

    Args:
        sample: Asks how many there are in each shard.
        clock: Tells how old a sample is.
        sample_seconds: How old a sample may get while somebody publishes.
    """

    def __init__(
        self,
        *,
        sample: Callable[[], Awaitable[list[int]]],
        clock: AsyncClock,
        sample_seconds: float,
    ) -> None:
        self._sample = sample
        self._clock = clock
        self._sample_seconds = sample_seconds
        self._unread = [0] * SHARDS
        self._added = [0] * SHARDS
        self._read_meanwhile: set[int] = set()
        self._sampled_at: float | None = None
        self._is_sampling = False

    def __getitem__(self, shard: int) -> int:
        return self._unread[shard]

    def added(self, shard: int) -> None:
        """Count an entry that is on its way to a shard."""
        self._unread[shard] += 1
        self._added[shard] += 1

    def read(self, shard: int, count: int) -> None:
        """Count entries that were read."""
        self._unread[shard] = max(0, self._unread[shard] - count)
        self._read_meanwhile.add(shard)

    async def admit(self, shard: int, *, queue_batches_max: int) -> None:
        """Return when a shard takes an entry, as far as is known here.

        Raises:
            BusFull: It holds so many that nobody has read.
            BusError: It is time to sample, and there is no answer.
        """
        await self.refresh()
        if self[shard] >= queue_batches_max:
            raise BusFull(
                f"shard {shard} of the bus holds {self[shard]} batches that no worker has read, "
                f"its bound is {queue_batches_max}: the workers are behind or there is none, send "
                "the batch again later"
            )

    async def refresh(self) -> None:
        """Sample if it is time to and nobody else is about it. Raises BusError."""
        now = self._clock.monotonic()
        is_due = self._sampled_at is None or now - self._sampled_at >= self._sample_seconds
        if not is_due or self._is_sampling:
            return
        self._is_sampling = True
        try:
            before = list(self._added)
            self._read_meanwhile.clear()
            depths = await self._sample()
            self._sampled_at = now
            for shard, depth in enumerate(depths):
                # Nobody knows whether the sample was before or after what was read meanwhile: the
                # reckoning stands. What was added meanwhile may count twice, until the next one.
                if shard not in self._read_meanwhile:
                    self._unread[shard] = depth + self._added[shard] - before[shard]
        finally:
            self._is_sampling = False
