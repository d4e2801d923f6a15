"""The leases of one worker, whatever keeps them: its tenures, and when it looks at them again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

import anyio

from ahcollector.bus._shares import Moves, decide
from ahcollector.bus.base import SHARDS
from ahcollector.clock import AsyncClock

__all__ = ["LeasedShard", "ShardLeases"]

# Parts of a lease's time: between renewals, between moves to an even share, and after an error.
_RENEW_PART: Final = 3
_MOVE_PART: Final = 15
_RETRY_PART: Final = 30


class LeasedShard(Protocol):
    """A tenure, as far as its lease and its end are concerned."""

    shard: int
    lease: str
    held: dict[bytes, int]
    is_leaving: bool
    ends_when_empty: bool
    ended: anyio.Event

    def is_valid(self) -> bool:
        """Return whether the lease is surely held."""
        ...

    def waiting(self) -> int:
        """Return how many entries wait here."""
        ...

    def wake(self) -> None:
        """Look again at what there is to do."""
        ...


TenureT = TypeVar("TenureT", bound=LeasedShard)


class ShardLeases(ABC, Generic[TenureT]):
    """Holds a worker's share of the shards; how a lease is renewed and won is the backend's.

    Args:
        worker: A name that no other subscription of any process has.
        wants: The shards to take.
        give_up: Ends a tenure and releases its shard.
        found: Told by each round what no worker wrote; of most rounds nothing.

    Attributes:
        tenures: Those of now, also one that is ending, by their shards.
        takes_more: Whether free shards are taken.
    """

    def __init__(
        self,
        *,
        worker: str,
        wants: Collection[int],
        clock: AsyncClock,
        lease_seconds: float,
        give_up: Callable[[TenureT], None],
        found: Callable[[Sequence[tuple[str, str]]], None],
    ) -> None:
        self.worker = worker
        self.tenures: dict[int, TenureT] = {}
        self.takes_more = True
        self._wants = frozenset(wants)
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._give_up = give_up
        self._found = found
        self._free: frozenset[int] = frozenset()

    @abstractmethod
    async def round(self) -> float:
        """Renew, then move towards the share; return seconds until the next round.

        Raises:
            BusError: The backend gives no answer. Leases go on until their time is over.
        """

    @abstractmethod
    def _drop(self, tenure: TenureT) -> None:
        """End a tenure whose lease is lost, and forget it."""

    @abstractmethod
    async def leave(self) -> None:
        """Let the others know that this worker is gone. Raises BusError."""

    def drop_ended(self) -> None:
        """Forget tenures whose lease is over by our own clock."""
        for tenure in list(self.tenures.values()):
            if not tenure.is_valid():
                self._drop(tenure)

    def released(self, tenure: TenureT) -> None:
        """Forget a tenure that was given up."""
        if self.tenures.get(tenure.shard) is tenure:
            del self.tenures[tenure.shard]

    @property
    def retry_seconds(self) -> float:
        """Seconds until a round is tried again after an error."""
        return min(0.5, self._lease_seconds / _RETRY_PART)

    def _moves(self, *, wants: Mapping[str, frozenset[int]], owners: Mapping[int, str]) -> Moves:
        return decide(
            me=self.worker,
            wants=wants,
            owners=owners,
            leaving=[shard for shard, tenure in self.tenures.items() if tenure.is_leaving],
            free_before=self._free,
        )

    def _give(self, moves: Moves, owned: Collection[int]) -> None:
        """Give up what is to be given up, and note which shards are free."""
        self._free = frozenset(range(SHARDS)) - set(owned)
        if moves.give is not None and moves.give in self.tenures:
            self._give_up(self.tenures[moves.give])

    def _pause(self, moves: Moves | None) -> float:
        """Return seconds until the next round; without moves it only renews."""
        is_even = moves is None or moves.even
        return self._lease_seconds / (_RENEW_PART if is_even else _MOVE_PART)

    # --- what is told of them

    def queued(self, shard: int) -> int:
        """Return how many entries of a shard were read and wait here."""
        tenure = self.tenures.get(shard)
        return 0 if tenure is None else tenure.waiting()

    def held(self) -> int:
        """Return how many entries were handed over and are not acknowledged."""
        return sum(len(tenure.held) for tenure in self.tenures.values())

    def valid(self) -> Iterator[tuple[int, str]]:
        """Yield the shards whose leases are surely held, each with its lease."""
        for shard, tenure in self.tenures.items():
            if tenure.is_valid():
                yield shard, tenure.lease

    async def drain(self) -> None:
        """Take no more shards, and return when each that is ours was found empty."""
        self.takes_more = False
        for tenure in self.tenures.values():
            tenure.ends_when_empty = True
            tenure.wake()
        for tenure in list(self.tenures.values()):
            await tenure.ended.wait()
