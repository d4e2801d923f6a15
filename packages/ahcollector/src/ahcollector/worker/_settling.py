"""When a batch that the store took is acknowledged: at once, or when the store surely keeps it.

A store may lose what it took in its last seconds when it is killed, and then nobody else has it but
the bus. So entries stay there, held by receipts that keep no batch, for as long as that may happen.

**What is sure.** A write begins while an epoch of the store is known, and it ends. Some time after
that the store is asked again. When that question is put no sooner than `after_seconds` behind the
end, and its answer is the same epoch, then the process that took the samples lived for so long
after it took them, and what it took is on its disk.

**What is not.** When the epoch has changed, or cannot be told, the store may have been killed at
any time since it was asked before: everything that is held is asked for again, and whatever is
being written just then will be, when its write ends. Each such break begins a new *spell*; a write
is held only when it ended in the spell in which it began. Nothing is written before a new epoch is
known, so that every write has one to begin with.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import attrs

from ahcollector import metrics as names
from ahcollector.bus.base import Delivery, Receipt
from ahcollector.clock import AsyncClock
from ahcollector.errors import TemporaryStoreError
from ahcollector.metrics import Metrics
from ahcollector.store.base import Restarts

__all__ = ["AtOnce", "Settling", "WhenDurable"]

_ASKS: Final = 3
_FRESH_SECONDS: Final = 1.0
_log = logging.getLogger("ahcollector.worker")


class Settling(Protocol):
    """Acknowledges what was written.

    Attributes:
        held: Batches written and not acknowledged yet.
        rewritten: Batches that were asked for again.
    """

    held: int
    rewritten: int

    async def room(self, count: int) -> None:
        """Wait until so many more batches may be held; each is then `written` or `set_aside`."""
        ...

    async def begin(self) -> int:
        """Return the spell in which a write begins.

        Raises:
            TemporaryStoreError: Nothing may be written now, because nobody would know what becomes
                of it.
        """
        ...

    async def answered(self) -> None:
        """Return when the store gave an answer within the last second, where it can be asked.

        Raises:
            TemporaryStoreError: It gave none.
        """
        ...

    async def written(self, deliveries: Sequence[Delivery], spell: int) -> None:
        """See to what the store took."""
        ...

    def set_aside(self) -> None:
        """Give the room of a batch back that the store did not take."""
        ...

    async def run(self) -> None:
        """Acknowledge what has become durable, until cancelled."""
        ...


class AtOnce:
    """For stores whose writes are as durable as they get when they return."""

    held = 0
    rewritten = 0

    async def room(self, count: int) -> None:
        """Return: nothing is held."""

    async def begin(self) -> int:
        """Return any number."""
        return 0

    async def answered(self) -> None:
        """Return: such a store is asked nothing."""

    async def written(self, deliveries: Sequence[Delivery], spell: int) -> None:  # noqa: ARG002 - a protocol
        """Acknowledge."""
        for delivery in deliveries:
            await delivery.ack()

    def set_aside(self) -> None:
        """Do nothing: no room was taken."""

    async def run(self) -> None:
        """Return: there is nothing to wait for."""


@attrs.frozen(kw_only=True)
class _Written:
    receipts: tuple[Receipt, ...]
    at: float


class WhenDurable:
    """Holds receipts until the store surely keeps what they stand for.

    The store is asked three times in `after_seconds`, so a batch is held for up to four thirds of
    that.

    Args:
        restarts: The store, as far as it tells whether it may have lost something.
        clock: Ages what is held.
        metrics: Where to count.
        after_seconds: How long after a write a kill may still cost it.
        held_max: Batches held at one time, those being written among them. One write may go over
            it when nothing else is held.
    """

    def __init__(
        self,
        *,
        restarts: Restarts,
        clock: AsyncClock,
        metrics: Metrics,
        after_seconds: float,
        held_max: int,
    ) -> None:
        self._restarts = restarts
        self._clock = clock
        self._metrics = metrics
        self._after_seconds = after_seconds
        self._held_max = held_max
        self._written: deque[_Written] = deque()
        self._epoch: str | None = None
        self._spell = 0
        self._asking = anyio.Lock()
        self._answered_at = -math.inf
        self._failures = 0
        self._why = ""
        self._taken = 0
        self._freed = anyio.Event()
        self.held = 0
        self.rewritten = 0
        metrics.watch(names.WORKER_HELD_BATCHES, lambda: float(self.held))

    async def room(self, count: int) -> None:
        """Wait until so many more batches may be held."""
        while self._taken and self._taken + count > self._held_max:
            await self._freed.wait()
        self._taken += count

    def set_aside(self) -> None:
        """Give the room of a batch back."""
        self._free(1)

    def _free(self, count: int) -> None:
        self._taken -= count
        self._freed.set()
        self._freed = anyio.Event()

    async def begin(self) -> int:
        """Return the spell in which a write begins; while there is none, ask for one."""
        if self._epoch is None:
            failures = self._failures
            async with self._asking:
                # Others may have asked meanwhile: their answer is as good, and so is none.
                if self._epoch is None:
                    if self._failures != failures:
                        raise TemporaryStoreError(self._why)
                    self._epoch = await self._ask()
        return self._spell

    async def answered(self) -> None:
        """Return when the store told its epoch within the last second; if need be, ask for it."""
        failures = self._failures
        async with self._asking:
            if self._clock.monotonic() - self._answered_at < _FRESH_SECONDS:
                return
            if self._failures != failures:
                raise TemporaryStoreError(self._why)
            epoch = await self._ask()
            if self._epoch is None:
                self._epoch = epoch
            # One that differs is seen by the next look, as every other start of the store is.

    async def _ask(self) -> str:
        """Ask for the epoch; raises TemporaryStoreError, whatever went wrong."""
        asked_at = self._clock.monotonic()
        try:
            epoch = await self._restarts.epoch()
        except TemporaryStoreError as error:
            self._failures += 1
            self._why = str(error)
            raise
        except Exception as error:
            # A fault of what asks says nothing about the batch whose write it keeps from beginning.
            _log.exception("the store's start cannot be told, for an unexpected reason")
            self._failures += 1
            self._why = f"the store's start cannot be told: {type(error).__name__}: {error}"
            raise TemporaryStoreError(self._why) from error
        self._answered_at = asked_at
        return epoch

    async def written(self, deliveries: Sequence[Delivery], spell: int) -> None:
        """Hold what was written in one spell; ask for everything else again."""
        one = _Written(
            receipts=tuple(delivery.receipt for delivery in deliveries),
            at=self._clock.monotonic(),
        )
        self.held += len(one.receipts)
        if spell == self._spell:
            self._written.append(one)
        else:
            await self._ask_again([one], "it gave no answer, or was started, during the write")

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(self._after_seconds / _ASKS)
            await self._look()

    async def _look(self) -> None:
        async with self._asking:
            if self._epoch is None:
                # Nothing is held, and the next write asks.
                return
            asked_at = self._clock.monotonic()
            try:
                epoch = await self._ask()
            except TemporaryStoreError as error:
                await self._break(None, str(error))
                return
            if epoch != self._epoch:
                await self._break(epoch, "it was started again")
                return
        while self._written and self._written[0].at <= asked_at - self._after_seconds:
            one = self._written.popleft()
            for receipt in one.receipts:
                await receipt.ack()
            self._let_go(one)
            # There may be many, and a bus need not wait for anything to take them.
            await anyio.lowlevel.checkpoint()

    async def _break(self, epoch: str | None, why: str) -> None:
        """Begin a new spell: whatever is not acknowledged may be lost."""
        self._spell += 1
        self._epoch = epoch
        lost = list(self._written)
        self._written.clear()
        if lost:
            await self._ask_again(lost, why)

    async def _ask_again(self, lost: Sequence[_Written], why: str) -> None:
        count = sum(len(one.receipts) for one in lost)
        _log.warning(
            "batches are written again, because the store may have lost them",
            extra={"batches": count, "error": why},
        )
        self.rewritten += count
        self._metrics.inc(names.TSDB_REWRITTEN, count)
        for one in lost:
            for receipt in one.receipts:
                await receipt.again()
            self._let_go(one)
            await anyio.lowlevel.checkpoint()

    def _let_go(self, one: _Written) -> None:
        self.held -= len(one.receipts)
        self._free(len(one.receipts))
