"""Time as a collaborator: every loop and state machine is given its clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

import anyio

from ahwire import Clock

__all__ = ["AsyncClock", "SystemClock", "utc_now"]


class AsyncClock(Clock, Protocol):
    """`time()` in Unix seconds, `monotonic()`, and a sleep that can be cancelled."""

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds`; negative means a checkpoint only."""
        ...


class SystemClock:
    """The real clock."""

    def time(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of real time."""
        await anyio.sleep(max(seconds, 0))


def utc_now(clock: Clock) -> datetime:
    """The clock's time as an aware UTC datetime."""
    return datetime.fromtimestamp(clock.time(), tz=UTC)
