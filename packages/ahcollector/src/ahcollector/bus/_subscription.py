"""One subscription: its leases, the readers of its shards, and what settles acknowledgements."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Final

import anyio
import attrs
from anyio.abc import TaskGroup

from ahcollector._trouble import Trouble
from ahcollector.bus._alone import Alone
from ahcollector.bus._bulk import Bulk, Turns
from ahcollector.bus._depths import Depths
from ahcollector.bus._leases import Leases
from ahcollector.bus._strange import Strange
from ahcollector.bus._streams import Settlement, ShardStreams, Taken
from ahcollector.bus._tenure import Tenure, TenureSettings
from ahcollector.bus.base import AtEnd, Handler
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError
from ahcollector.metrics import Metrics
from ahcollector.redis import RedisClient

__all__ = ["Subscription", "SubscriptionSettings"]

_SETTLE_ENTRIES_MAX: Final = 2_000
_log = logging.getLogger("ahcollector.bus")


@attrs.frozen(kw_only=True)
class SubscriptionSettings:
    """What all subscriptions of a bus share.

    Attributes:
        readers: Commands that wait for entries at the same time, each for its part of the shards.
        block_seconds: How long each waits.
        sample_seconds: Between two samples of the depths.
    """

    readers: int
    block_seconds: float
    lease_seconds: float
    sample_seconds: float
    tenure: TenureSettings


class Subscription:
    """Hands the entries of its share of some shards to a handler until it is cancelled or drained.

    Args:
        worker: A name that no other subscription of any process has.
        reading: A client of its own for commands that wait, and for those that read entries.
    """

    def __init__(
        self,
        *,
        worker: str,
        shards: Collection[int],
        handler: Handler,
        streams: ShardStreams,
        reading: RedisClient,
        depths: Depths,
        clock: AsyncClock,
        metrics: Metrics,
        settings: SubscriptionSettings,
        closed: anyio.Event,
    ) -> None:
        self._handler = handler
        self._streams = streams
        self._bulk = Bulk(client=reading)
        self._depths = depths
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._closed = closed
        self._tasks: TaskGroup | None = None
        self._changed = anyio.Event()
        self._settling = anyio.Lock()
        self._alone = Alone()
        self._looked = anyio.Event()
        self._trouble = Trouble(_log, "the bus cannot be read", "the bus is read again")
        self._leases = Leases(
            worker=worker,
            wants=shards,
            streams=streams,
            clock=clock,
            lease_seconds=settings.lease_seconds,
            begin=self._begin,
            give_up=self._give_up,
            found=Strange(clock=clock, metrics=metrics).found,
        )

    def queued(self, shard: int) -> int:
        """Return how many entries of a shard were read and wait here."""
        return self._leases.queued(shard)

    def held(self) -> int:
        """Return how many entries were handed over and are not acknowledged."""
        return self._leases.held()

    def leases(self) -> Iterator[tuple[int, str]]:
        """Yield the shards whose leases are surely held, each with its lease."""
        return self._leases.valid()

    async def run(self, at_end: AtEnd | None) -> None:
        """Work until cancelled, or until the bus is closed and what waits is handed over."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._keep)
                tasks.start_soon(self._settle_always)
                tasks.start_soon(self._sample)
                tasks.start_soon(self._sweep)
                for number in range(self._settings.readers):
                    tasks.start_soon(self._read, number)
                await self._drained()
                if at_end is not None:
                    await at_end()
                tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                await self._end()

    # --- leases

    def _begin(self, taken: Taken, until: float) -> Tenure:
        tenure = Tenure(
            shard=taken.shard,
            lease=taken.lease,
            until=until,
            pending=taken.pending,
            streams=self._streams,
            bulk=self._bulk,
            handler=self._handler,
            clock=self._clock,
            metrics=self._metrics,
            settings=self._settings.tenure,
            alone=self._alone,
            came=self._depths.read,
            changed=self._wake,
        )
        tenure.ends_when_empty = self._closed.is_set()
        assert self._tasks is not None, "shards are taken while it runs"
        self._tasks.start_soon(tenure.serve)
        return tenure

    def _give_up(self, tenure: Tenure) -> None:
        tenure.end(lost=False)
        assert self._tasks is not None, "shards are given up while it runs"
        self._tasks.start_soon(self._release, tenure)

    async def _release(self, tenure: Tenure) -> None:
        """Give a shard up when its tenure has come to rest, as long as its lease lasts."""
        await tenure.ended.wait()
        while tenure.is_read and tenure.is_valid():
            # A reader waits for it among others, for a moment.
            await self._clock.sleep(self._settings.block_seconds / 10)
        while tenure.is_valid():
            try:
                await self._settle()
                await self._streams.release(tenure.shard, tenure.lease, tenure.given_back())
            except BusError as error:
                self._tell(error)
                await self._pause()
            else:
                break
        tenure.close()
        self._leases.released(tenure)

    async def _keep(self) -> None:
        while True:
            try:
                pause = await self._leases.round()
            except BusError as error:
                self._tell(error)
                self._leases.drop_ended()
                pause = self._leases.retry_seconds
            else:
                if not any(tenure.is_in_doubt for tenure in self._leases.tenures.values()):
                    self._trouble.is_over()
                self._looked.set()
            self._wake()
            await self._clock.sleep(pause)

    async def _drained(self) -> None:
        """Return when the bus is closed and every shard that is ours was found empty."""
        await self._closed.wait()
        await self._looked.wait()
        await self._leases.drain()

    async def _end(self) -> None:
        """Settle and give everything up, as far as Redis answers; the rest ends with the leases."""
        tenures = list(self._leases.tenures.values())
        try:
            while not await self._settle():
                pass
            for tenure in tenures:
                if tenure.is_valid():
                    await self._streams.release(tenure.shard, tenure.lease, tenure.given_back())
            await self._leases.leave()
        except BusError as error:
            self._tell(error)
        for tenure in tenures:
            tenure.end(lost=False)
            tenure.close()

    # --- reading

    async def _read(self, number: int) -> None:
        """Read the shards of one part, for ever."""
        turns = Turns(self._bulk.ration)
        while True:
            changed = self._changed
            ready = [
                tenure
                for shard, tenure in self._leases.tenures.items()
                if shard % self._settings.readers == number and tenure.wants_more()
            ]
            if ready:
                await self._read_once(ready, turns)
            else:
                await changed.wait()

    async def _read_once(self, ready: list[Tenure], turns: Turns) -> None:
        shards, count, may_wait = turns.next([tenure.shard for tenure in ready])
        ready = [tenure for tenure in ready if tenure.shard in shards]
        for tenure in ready:
            tenure.is_read = True
        try:
            block_ms = max(1, round(self._settings.block_seconds * 1000)) if may_wait else None
            found = await self._bulk.read(shards, count=count, block_ms=block_ms)
            turns.came(shards, is_any=bool(found))
            for tenure in ready:
                entries = found.get(tenure.shard, [])
                tenure.put(entries)
                heir = self._leases.tenures.get(tenure.shard)
                if entries and heir is not None and heir is not tenure:
                    # It ended meanwhile and was won again: the next one must find them first.
                    heir.doubt()
        except BusError as error:
            self._tell(error)
            for tenure in ready:
                tenure.doubt()
            await self._pause()
        finally:
            for tenure in ready:
                tenure.is_read = False
                if tenure.ends_when_empty or tenure.is_in_doubt:
                    tenure.wake()

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(self._settings.tenure.claim_idle_seconds)
            for tenure in list(self._leases.tenures.values()):
                try:
                    found = await tenure.sweep()
                except BusError as error:
                    self._tell(error)
                    break
                if found:
                    _log.warning(
                        "entries were found that a stale owner had read",
                        extra={"shard": tenure.shard, "entries": found},
                    )

    async def _sample(self) -> None:
        while True:
            try:
                await self._depths.refresh()
            except BusError as error:
                self._tell(error)
            await self._clock.sleep(self._settings.sample_seconds)

    # --- settling

    async def _settle_always(self) -> None:
        while True:
            changed = self._changed
            try:
                is_all = await self._settle()
            except BusError as error:
                self._tell(error)
                await self._pause()
                continue
            if is_all:
                await changed.wait()

    async def _settle(self) -> bool:
        """Settle what there is; return whether that was all. Raises BusError: then repeat it."""
        async with self._settling:
            parts: list[tuple[Tenure, Settlement]] = []
            count, is_all = 0, True
            for tenure in self._leases.tenures.values():
                part = tenure.settlement()
                if part is None:
                    continue
                if count >= _SETTLE_ENTRIES_MAX:
                    is_all = False
                    break
                parts.append((tenure, part))
                count += len(part.acked) + len(part.taken)
            if not parts:
                return True
            verdicts = await self._streams.settle([part for _, part in parts])
            for (tenure, part), is_held in zip(parts, verdicts, strict=True):
                tenure.settled(part)
                if not is_held:
                    tenure.end(lost=True)
                elif tenure.settlement() is not None:
                    is_all = False
            return is_all

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _tell(self, error: BusError) -> None:
        self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})

    async def _pause(self) -> None:
        await self._clock.sleep(self._settings.tenure.retry_seconds)
