"""Batches that processes died with: until each was in a write that ended none, it is on trial."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio

from ahcollector.bus.base import Delivery

__all__ = ["Trials"]

_TOGETHER_MAX: Final = 1_000


class Trials:
    """Deliveries of a second or later try that were not in a write yet.

    There are 1,000 at most: were the process killed, each of them would have to be written by
    itself, by the next one.
    """

    def __init__(self) -> None:
        self._open: dict[Delivery, anyio.Event] = {}
        self._changed = anyio.Event()

    @property
    def has_room(self) -> bool:
        """Whether one more may begin."""
        return len(self._open) < _TOGETHER_MAX

    async def change(self) -> None:
        """Return when some have ended."""
        await self._changed.wait()

    def begin(self, delivery: Delivery) -> anyio.Event:
        """Put a delivery on trial; return what is set when that is over."""
        over = self._open[delivery] = anyio.Event()
        return over

    def drop(self, delivery: Delivery) -> None:
        """Forget a delivery that is not ours any more."""
        self._open.pop(delivery, None)
        self._wake()

    async def survived(self, deliveries: Iterable[Delivery]) -> None:
        """Note that a write of deliveries ended no process, whatever else came of it."""
        for delivery in deliveries:
            over = self._open.pop(delivery, None)
            if over is not None:
                await delivery.clear_tries()
                over.set()
        self._wake()

    async def adjourn(self) -> None:
        """End all: the store takes nothing, and what waits for it is not to blame."""
        await self.survived(list(self._open))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
