"""Time that a test moves."""

from __future__ import annotations

import heapq
from itertools import count

import anyio


class FakeClock:
    """Stands still until `advance`; whoever sleeps is woken when its time is passed."""

    def __init__(self, now: float = 1_767_225_600.0) -> None:
        """Begin at `now`.

        Args:
            now: Unix seconds to begin at.
        """
        self._now = now
        self._monotonic = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []

    def time(self) -> float:
        """Unix seconds."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` passed `seconds`; no time at all is a checkpoint."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        woken = anyio.Event()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking sleepers in the order of their times."""
        end = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            self._now += at - self._monotonic
            self._monotonic = at
            woken.set()
            await anyio.lowlevel.checkpoint()
        self._now += end - self._monotonic
        self._monotonic = end
        await anyio.lowlevel.checkpoint()
