"""Time as a collaborator: what decides takes instants as arguments, what waits takes a clock."""

from __future__ import annotations

import time
from typing import Protocol

import anyio

from ahwire import Clock

__all__ = ["AsyncClock", "SystemClock"]


class AsyncClock(Clock, Protocol):
    """An `ahwire.Clock` that can also wait."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of monotonic time; cancellable, returns at once when not positive."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def time(self) -> float:
        """Return Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep in the running event loop."""
        await anyio.sleep(max(0.0, seconds))
