"""The leases of one worker on NATS: renewed, lost, taken and given up, one round at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import anyio

from ahcollector.bus._jetstream_api import WRONG_REVISION, JetStreamApi, JetStreamRefusedError
from ahcollector.bus._jetstream_setup import Names
from ahcollector.bus._jetstream_table import Beats, Table, read_table
from ahcollector.bus._jetstream_tenure import JetStreamTenure
from ahcollector.bus._shard_leases import ShardLeases
from ahcollector.bus._shares import Moves
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError

__all__ = ["JetStreamLeases"]

# So many others may change the table between our reading and our writing, one after the other.
_ATTEMPTS: Final = 50


class JetStreamLeases(ShardLeases[JetStreamTenure]):
    """Holds a worker's share of the shards, as the table of `_jetstream_table` says.

    Args:
        worker: A name that no other subscription of any process has.
        wants: The shards to take.
        begin: Makes the tenure of a shard that was won, of its fence and its end, and lets it work.
        give_up: Ends a tenure and releases its shard.
        found: Told by each round what no worker wrote; of most rounds nothing.
    """

    def __init__(
        self,
        *,
        worker: str,
        wants: Collection[int],
        api: JetStreamApi,
        names: Names,
        clock: AsyncClock,
        lease_seconds: float,
        begin: Callable[[int, int, float], JetStreamTenure],
        give_up: Callable[[JetStreamTenure], None],
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
        self._api = api
        self._bucket = names.bucket
        self._key = names.key("leases")
        self._begin = begin
        self._strange: dict[str, str] = {}
        self._fence_seen = 0
        self._beats = Beats(lease_seconds=lease_seconds)
        self._beat = 0
        self._writing = anyio.Lock()
        self._lost: list[tuple[JetStreamTenure, list[int]]] = []

    async def round(self) -> float:
        """Renew, then move towards the share; return seconds until the next round.

        Raises:
            BusError: NATS gives no answer. Leases go on until their time is over.
        """
        self.drop_ended()
        await self._make_good()
        moves: list[Moves] = []

        def change(table: Table) -> Table:
            moves.clear()
            if self._fence_seen > table.fence:
                # Whoever had it would have written it here first. It is none, but a shard whose
                # tries have it would have no owner until then: all others are above it from now on.
                self._strange["tries"] = (
                    f"tries of a shard have the fence {self._fence_seen}, which nobody was given"
                )
            gone = self._beats.gone(table, now=self._clock.monotonic()) - {self.worker}
            table = table.without(gone)
            table = table.renewed(self.worker, beat=self._beat, wants=self._wants)
            # Won by a write whose answer was lost, or lost here by our own clock: won anew.
            take = self._without_tenure(table)
            for shard in take:
                table = table.released(shard, table.owners[shard].fence)
            if not self.takes_more:
                return table
            owners = {shard: owner.worker for shard, owner in table.owners.items()}
            moves.append(self._moves(wants=table.wants, owners=owners))
            # A tenure that is ending keeps its place until it is gone.
            take += [one for one in moves[0].take if one not in self.tenures and one not in take]
            return table.taken(
                self.worker, take, now_ms=round(self._clock.time() * 1000), above=self._fence_seen
            )

        self._beat += 1
        began, table = await self._change(change)
        self._obey(table, until=began + self._lease_seconds)
        for tenure in self.tenures.values():
            if tenure.tries.is_strange:
                tenure.tries.is_strange = False
                self._strange["tries"] = f"tries of shard {tenure.shard} could not be understood"
        strange, self._strange = self._strange, {}
        self._found(tuple(strange.items()))
        if not moves:
            return self._pause(None)
        self._give(moves[0], table.owners)
        return self._pause(moves[0])

    def _without_tenure(self, table: Table) -> list[int]:
        fences = {shard: tenure.fence for shard, tenure in self.tenures.items()}
        return [
            shard
            for shard, owner in table.owners.items()
            if owner.worker == self.worker and fences.get(shard) != owner.fence
        ]

    def _obey(self, table: Table, *, until: float) -> None:
        """Let the tenures be what the table says that we have."""
        ours = {
            shard: owner.fence
            for shard, owner in table.owners.items()
            if owner.worker == self.worker
        }
        for shard, tenure in list(self.tenures.items()):
            if ours.get(shard) == tenure.fence:
                tenure.until = until
            else:
                self._drop(tenure)
        for shard, fence in ours.items():
            if shard not in self.tenures:
                self.tenures[shard] = self._begin(shard, fence, until)

    async def _change(self, change: Callable[[Table], Table]) -> tuple[float, Table]:
        """Change the table; return a time before that, and the table as it is now."""
        async with self._writing:
            for _ in range(_ATTEMPTS):
                began = self._clock.monotonic()
                kept = await self._api.get(self._bucket, last_by_subj=self._key)
                # One that cannot be read is nobody's writing: everything is free.
                read = Table() if kept is None else read_table(kept.data)
                if read is None:
                    self._strange["table"] = f"{self._key} held no table of leases: it is made anew"
                old = read or Table()
                new = change(old)
                revision = 0 if kept is None else kept.seq
                try:
                    await self._api.put(
                        self._key,
                        new.write(),
                        {"Nats-Expected-Last-Subject-Sequence": str(revision)},
                    )
                except JetStreamRefusedError as error:
                    if error.number != WRONG_REVISION:
                        raise
                else:
                    return began, new
        raise BusError(
            f"bus: the leases were changed by others {_ATTEMPTS} times while this worker tried to: "
            "there are too many workers, or NATS is slow"
        )

    def _drop(self, tenure: JetStreamTenure) -> None:
        self._fence_seen = max(self._fence_seen, tenure.tries.newest_fence)
        self._lost.append((tenure, tenure.interrupted()))
        tenure.end(lost=True)
        tenure.close()
        del self.tenures[tenure.shard]

    async def _make_good(self) -> None:
        """Take tries back that ended with a lease: the store may be what is down, not the entry."""
        while self._lost:
            tenure, interrupted = self._lost[0]
            await tenure.make_good(interrupted)
            self._lost.pop(0)

    async def release(self, tenures: Collection[JetStreamTenure]) -> None:
        """Give shards up that were left in good order. Raises BusError."""

        def change(table: Table) -> Table:
            for tenure in tenures:
                table = table.released(tenure.shard, tenure.fence)
            return table

        await self._change(change)
        for tenure in tenures:
            self.released(tenure)

    async def leave(self) -> None:
        """Let the others know that this worker is gone, and has nothing. Raises BusError."""
        await self._make_good()
        await self._change(lambda table: table.without([self.worker]))
