"""The subscriptions that one process has on a bus: each shard is in one of them at most."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from ahcollector.bus.base import SHARDS, AtEnd
from ahcollector.errors import BusError

__all__ = ["Running", "Subscriptions", "wanted_shards"]


def wanted_shards(shards: Collection[int], is_taken: Callable[[int], bool]) -> list[int]:
    """Return the shards that a subscription asks for, each once, in order.

    Raises:
        BusError: One is taken by another subscriber of this process, or does not exist.
    """
    wanted = sorted(set(shards))
    for shard in wanted:
        if not 0 <= shard < SHARDS:
            raise BusError(f"there is no shard {shard}: shards are 0 to {SHARDS - 1}")
        if is_taken(shard):
            raise BusError(f"shard {shard} has a subscriber: end that subscription first")
    return wanted


class Running(Protocol):
    """A subscription, as far as its bus needs it."""

    def queued(self, shard: int) -> int:
        """Return how many entries of a shard were read and wait here."""
        ...

    def held(self) -> int:
        """Return how many entries were handed over and are not acknowledged."""
        ...

    def leases(self) -> Iterator[tuple[int, str]]:
        """Yield the shards whose leases are surely held, each with its lease."""
        ...

    async def run(self, at_end: AtEnd | None) -> None:
        """Work until cancelled, or until the bus is closed and what waits is handed over."""
        ...


class Subscriptions:
    """Those of one bus that several processes share.

    Attributes:
        running: Those that run now.
    """

    def __init__(self) -> None:
        self.running: list[Running] = []
        self._taken: set[int] = set()

    def wanted(self, shards: Collection[int]) -> list[int]:
        """Return the shards that one more may ask for; see `wanted_shards`."""
        return wanted_shards(shards, self._taken.__contains__)

    async def run(
        self, subscription: Running, shards: Collection[int], at_end: AtEnd | None
    ) -> None:
        """Run one more, which has these shards until it ends."""
        self._taken.update(shards)
        self.running.append(subscription)
        try:
            await subscription.run(at_end)
        finally:
            self.running.remove(subscription)
            self._taken.difference_update(shards)

    def queued(self, shard: int) -> int:
        """Return how many entries of a shard were read and wait here."""
        return sum(one.queued(shard) for one in self.running)

    def held(self) -> float:
        """Return how many entries were handed over and are not acknowledged."""
        return float(sum(one.held() for one in self.running))

    def leases(self) -> dict[int, object]:
        """Return the shards whose leases are surely held, each with its lease."""
        return {shard: lease for one in self.running for shard, lease in one.leases()}
