"""One subscription on NATS: its leases, and what settles acknowledgements."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Final

import anyio
import attrs
from anyio.abc import TaskGroup

from ahcollector._trouble import Trouble
from ahcollector.bus._alone import Alone
from ahcollector.bus._jetstream_api import JetStreamApi
from ahcollector.bus._jetstream_dead import JetStreamBusDeadLetters
from ahcollector.bus._jetstream_leases import JetStreamLeases
from ahcollector.bus._jetstream_parts import TenureParts
from ahcollector.bus._jetstream_setup import Names
from ahcollector.bus._jetstream_tenure import JetStreamTenure
from ahcollector.bus._strange import Strange
from ahcollector.bus.base import AtEnd, Handler
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError
from ahcollector.metrics import Metrics

__all__ = ["JetStreamSubscription", "SubscriptionSettings"]

_log = logging.getLogger("ahcollector.bus")

_LEAVE_TOGETHER: Final = 16


@attrs.frozen(kw_only=True)
class SubscriptionSettings:
    """What all subscriptions of a bus share.

    Attributes:
        retry_seconds: Pause before an entry is tried again, and before NATS is asked again.
        pull_seconds: How long NATS is asked for entries at a time.
        sample_seconds: Between two samples of the depths.
    """

    lease_seconds: float
    retry_seconds: float
    pull_seconds: float
    sample_seconds: float


class JetStreamSubscription:
    """Hands the entries of its share of some shards to a handler until it is cancelled or drained.

    Args:
        worker: A name of hexadecimal digits that no other subscription of any process has.
        room: Taken by each large entry that is under way.
        came: Told the shard of an entry that came, and when NATS took it.
        ready: Sees that the streams are there, unless that is known. Raises BusError.
        doubt: Told that they may not be.
        sample: Samples the depths, if it is time to. Raises BusError.
    """

    def __init__(
        self,
        *,
        worker: str,
        shards: Collection[int],
        handler: Handler,
        api: JetStreamApi,
        names: Names,
        letters: JetStreamBusDeadLetters,
        room: anyio.Semaphore,
        came: Callable[[int, float], None],
        ready: Callable[[], Awaitable[None]],
        doubt: Callable[[], None],
        sample: Callable[[], Awaitable[None]],
        clock: AsyncClock,
        metrics: Metrics,
        dead_max: int,
        settings: SubscriptionSettings,
        closed: anyio.Event,
    ) -> None:
        self._ready = ready
        self._doubt = doubt
        self._sample_once = sample
        self._clock = clock
        self._settings = settings
        self._closed = closed
        self._tasks: TaskGroup | None = None
        self._changed = anyio.Event()
        self._settling = anyio.Lock()
        self._looked = anyio.Event()
        self._trouble = Trouble(_log, "the bus cannot be read", "the bus is read again")
        self._is_calm = True
        self._parts = TenureParts(
            api=api,
            names=names,
            letters=letters,
            handler=handler,
            clock=clock,
            metrics=metrics,
            dead_max=dead_max,
            tag=worker[:6],
            retry_seconds=settings.retry_seconds,
            pull_seconds=settings.pull_seconds,
            alone=Alone(),
            room=room,
            came=came,
            changed=self._wake,
            tell=self._tell,
        )
        self._leases = JetStreamLeases(
            worker=worker,
            wants=shards,
            api=api,
            names=names,
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
                await self._drained()
                if at_end is not None:
                    await at_end()
                tasks.cancel_scope.cancel()
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                await self._end()

    # --- leases

    def _begin(self, shard: int, fence: int, until: float) -> JetStreamTenure:
        tenure = JetStreamTenure(shard=shard, fence=fence, until=until, parts=self._parts)
        tenure.ends_when_empty = self._closed.is_set()
        assert self._tasks is not None, "shards are taken while it runs"
        self._tasks.start_soon(tenure.serve)
        return tenure

    def _give_up(self, tenure: JetStreamTenure) -> None:
        tenure.end(lost=False)
        assert self._tasks is not None, "shards are given up while it runs"
        self._tasks.start_soon(self._release, tenure)

    async def _release(self, tenure: JetStreamTenure) -> None:
        """Give a shard up when its tenure has come to rest, as long as its lease lasts."""
        await tenure.ended.wait()
        while tenure.is_valid():
            try:
                async with self._settling:
                    await tenure.leave()
                tenure.close()
                await self._leases.release([tenure])
            except BusError as error:
                self._tell(error)
                await self._pause()
            else:
                return
        tenure.close()

    async def _keep(self) -> None:
        while True:
            try:
                await self._ready()
                pause = await self._leases.round()
            except BusError as error:
                self._tell(error)
                self._doubt()
                self._leases.drop_ended()
                pause = self._leases.retry_seconds
            else:
                # A shard may be in trouble that this round did not see.
                if self._is_calm:
                    self._trouble.is_over()
                self._is_calm = True
                self._looked.set()
            for tenure in self._leases.tenures.values():
                tenure.look()
            self._wake()
            await self._clock.sleep(pause)

    async def _drained(self) -> None:
        """Return when the bus is closed and every shard that is ours was found empty."""
        await self._closed.wait()
        await self._looked.wait()
        await self._leases.drain()

    async def _end(self) -> None:
        """Settle and give everything up, as far as NATS answers; the rest ends with the leases."""
        tenures = list(self._leases.tenures.values())
        for tenure in tenures:
            tenure.end(lost=False)
        limit = anyio.CapacityLimiter(_LEAVE_TOGETHER)
        errors: list[BusError] = []

        async def leave(tenure: JetStreamTenure) -> None:
            async with limit:
                # Where one got no answer, the others are not kept waiting for theirs.
                if errors or not tenure.is_valid():
                    return
                try:
                    await tenure.leave()
                except BusError as error:
                    errors.append(error)

        async with anyio.create_task_group() as tasks:
            for tenure in tenures:
                tasks.start_soon(leave, tenure)
        for tenure in tenures:
            tenure.close()
        try:
            if not errors:
                await self._leases.leave()
        except BusError as error:
            errors.append(error)
        if errors:
            self._tell(errors[0])

    # --- the rest of its work

    async def _sample(self) -> None:
        while True:
            try:
                await self._sample_once()
            except BusError as error:
                self._tell(error)
            await self._clock.sleep(self._settings.sample_seconds)

    async def _settle_always(self) -> None:
        while True:
            changed = self._changed
            some = [one for one in self._leases.tenures.values() if one.has_to_settle()]
            if not some:
                await changed.wait()
                continue
            errors: list[BusError] = []
            async with self._settling, anyio.create_task_group() as tasks:
                for tenure in some:
                    tasks.start_soon(self._settle, tenure, errors)
            if errors:
                self._tell(errors[0])
                await self._pause()

    async def _settle(self, tenure: JetStreamTenure, errors: list[BusError]) -> None:
        try:
            await tenure.settle()
        except BusError as error:
            errors.append(error)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _tell(self, error: BusError) -> None:
        self._is_calm = False
        self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})

    async def _pause(self) -> None:
        await self._clock.sleep(self._settings.retry_seconds)
