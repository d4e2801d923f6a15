"""The leases of one worker: renewed, lost, taken and given up, one round at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

from ahcollector.bus._shard_leases import ShardLeases
from ahcollector.bus._streams import ShardStreams, Taken
from ahcollector.bus._tenure import Tenure
from ahcollector.clock import AsyncClock

__all__ = ["Leases"]

_FORGIVE_ENTRIES: Final = 1_000


class Leases(ShardLeases[Tenure]):
    """Holds a worker's share of the shards, each by a lease that Redis ends by its own clock.

    A lease counts from before the command that renewed it, so here it ends no later than in Redis.

    Args:
        worker: A name that no other subscription of any process has.
        wants: The shards to take.
        begin: Makes the tenure of a shard that was won, and lets it work.
        give_up: Ends a tenure and releases its shard.
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
        super().__init__(
            worker=worker,
            wants=wants,
            clock=clock,
            lease_seconds=lease_seconds,
            give_up=give_up,
            found=found,
        )
        self._streams = streams
        self._lease_ms = round(lease_seconds * 1000)
        self._begin = begin
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
            return self._pause(None)
        moves = self._moves(wants=look.wants, owners=look.owners)
        self._give(moves, look.owners)
        await self._take(moves.take)
        return self._pause(moves)

    async def _take(self, shards: Collection[int]) -> None:
        # A tenure that is ending keeps its place until it is gone.
        free = [shard for shard in shards if shard not in self.tenures]
        if not free:
            return
        began = self._clock.monotonic()
        for taken in await self._streams.take(self.worker, free, lease_ms=self._lease_ms):
            self.tenures[taken.shard] = self._begin(taken, began + self._lease_seconds)

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

    async def leave(self) -> None:
        """Let the others know that this worker is gone. Raises BusError."""
        await self._streams.leave(self.worker)
