"""Clocks that the agent is given, never ones that it takes."""

import time
from typing import Protocol

import anyio


class AsyncClock(Protocol):
    """Time and waiting. `ahwal.testing.FakeClock` implements it for tests."""

    def time(self) -> float:
        """Return the wall clock in Unix seconds. It may jump in both directions."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. It never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`. Cancellation ends the wait at once."""
        ...


class SystemClock:
    """The machine's clocks; works under asyncio and trio."""

    def time(self) -> float:
        """Return the wall clock in Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` in the running event loop."""
        await anyio.sleep(max(0.0, seconds))
