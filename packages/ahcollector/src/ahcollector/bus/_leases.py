"""The leases of one worker: renewed, lost, taken and given up, one round at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

from ahcollector.bus._shares import decide
from ahcollector.bus._streams import ShardStreams, Taken
from ahcollector.bus._tenure import Tenure
from ahcollector.bus.base import SHARDS
from ahcollector.clock import AsyncClock

__all__ = ["Leases"]

# Parts of a lease's time: between renewals, between moves to an even share, and after an error.
_RENEW_PART: Final = 3
_MOVE_PART: Final = 15
_RETRY_PART: Final = 30
_FORGIVE_ENTRIES: Final = 1_000


class Leases:
    """Holds a worker's share of the shards, each by a lease that Redis ends by its own clock.

    A lease counts from before the command that renewed it, so here it ends no later than in Redis.

    Args:
        worker: A name that no other subscription of any process has.
        wants: The shards to take.
        begin: Makes the tenure of a shard that was won, and lets it work.
        found: Told by each round what no worker wrote; of most rounds nothing.
    """

    def __init__(
        self,
        *,
        worker: str,
        wants: Collection[int],
        streams: ShardStreams,
        clock: AsyncClock,
        lease_seconds: float,
        begin: Callable[[Taken, float], Tenure],
        give_up: Callable[[Tenure], None],
        found: Callable[[Sequence[tuple[str, str]]], None],
    ) -> None:
        self.worker = worker
        self.tenures: dict[int, Tenure] = {}
        self.takes_more = True
        self._wants = frozenset(wants)
        self._streams = streams
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._lease_ms = round(lease_seconds * 1000)
        self._begin = begin
        self._give_up = give_up
        self._found = found
        self._free: frozenset[int] = frozenset()
        self._interrupted: dict[tuple[int, bytes], int] = {}

    async def round(self) -> float:
        """Renew, then move towards the share; return seconds until the next round.

        Raises:
            BusError: Redis gives no answer. Leases go on until their time is over.
        """
        self.drop_ended()
        began = self._clock.monotonic()
        held = {shard: tenure.lease for shard, tenure in self.tenures.items()}
        look = await self._streams.look(
            self.worker, wants=self._wants, lease_ms=self._lease_ms, held=held
        )
        self._found(look.strange)
        for shard, lease in held.items():
            tenure = self.tenures.get(shard)
            if tenure is None or tenure.lease != lease:
                continue
            if shard in look.lost:
                self._drop(tenure)
            else:
                tenure.until = began + self._lease_seconds
        await self._forgive()
        if not self.takes_more:
            return self._lease_seconds / _RENEW_PART
        leaving = [shard for shard, tenure in self.tenures.items() if tenure.is_leaving]
        moves = decide(
            me=self.worker,
            wants=look.wants,
            owners=look.owners,
            leaving=leaving,
            free_before=self._free,
        )
        self._free = frozenset(range(SHARDS)) - set(look.owners)
        if moves.give is not None and moves.give in self.tenures:
            self._give_up(self.tenures[moves.give])
        await self._take(moves.take)
        return self._lease_seconds / (_RENEW_PART if moves.even else _MOVE_PART)

    async def _take(self, shards: Collection[int]) -> None:
        # A tenure that is ending keeps its place until it is gone.
        free = [shard for shard in shards if shard not in self.tenures]
        if not free:
            return
        began = self._clock.monotonic()
        for taken in await self._streams.take(self.worker, free, lease_ms=self._lease_ms):
            self.tenures[taken.shard] = self._begin(taken, began + self._lease_seconds)

    def drop_ended(self) -> None:
        """Forget tenures whose lease is over by our own clock."""
        for tenure in list(self.tenures.values()):
            if not tenure.is_valid():
                self._drop(tenure)

    def _drop(self, tenure: Tenure) -> None:
        self._interrupted.update(tenure.interrupted())
        tenure.end(lost=True)
        del self.tenures[tenure.shard]

    async def _forgive(self) -> None:
        """Take tries back that ended with a lease: the store may be what is down, not the entry."""
        while tries := dict(islice(self._interrupted.items(), _FORGIVE_ENTRIES)):
            await self._streams.forgive(tries)
            for one in tries:
                self._interrupted.pop(one, None)

    def released(self, tenure: Tenure) -> None:
        """Forget a tenure that was given up."""
        if self.tenures.get(tenure.shard) is tenure:
            del self.tenures[tenure.shard]

    @property
    def retry_seconds(self) -> float:
        """Seconds until a round is tried again after an error."""
        return min(0.5, self._lease_seconds / _RETRY_PART)

    async def leave(self) -> None:
        """Let the others know that this worker is gone. Raises BusError."""
        await self._streams.leave(self.worker)
