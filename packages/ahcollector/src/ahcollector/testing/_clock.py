"""A clock that moves only when a test says so."""

from __future__ import annotations

import heapq
from itertools import count

import anyio
import anyio.lowlevel

__all__ = ["FakeClock"]


class FakeClock:
    """An `AsyncClock` whose `sleep` parks until `advance` passes it.

    Wall and monotonic time move together in `advance`; `step_wall` moves the wall clock alone, as
    an operator or a time server does.

    Args:
        now: Unix seconds at the start.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._wall = now
        self._monotonic = 1000.0
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._order = count()

    def time(self) -> float:
        """Return Unix seconds."""
        return self._wall

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Park until `seconds` have been advanced; not positive: only a checkpoint."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        event = anyio.Event()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), event))
        await event.wait()

    def advance(self, seconds: float) -> None:
        """Move both clocks by `seconds` and wake every sleeper whose time has come."""
        self._wall += seconds
        self._monotonic += seconds
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            heapq.heappop(self._sleepers)[2].set()

    def step_wall(self, seconds: float) -> None:
        """Move the wall clock alone, forwards or backwards; nobody wakes."""
        self._wall += seconds

    async def run_for(self, seconds: float) -> None:
        """Advance from sleeper to sleeper and let all tasks settle after each, for `seconds`."""
        end = self._monotonic + seconds
        await anyio.wait_all_tasks_blocked()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.advance(max(0.0, self._sleepers[0][0] - self._monotonic))
            await anyio.wait_all_tasks_blocked()
        self.advance(end - self._monotonic)
        await anyio.wait_all_tasks_blocked()
