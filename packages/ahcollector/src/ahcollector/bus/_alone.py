"""Whose turn it is among entries that may have ended a process: one at a time."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

__all__ = ["Alone"]


class Alone:
    """Lets one through at a time; of those that wait, one with the fewest tries.

    So while processes are killed again and again by something else, tries are spread over all that
    wait, and none comes to its last before each of the others had its turn.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[int, int, anyio.Event]] = []
        self._came = 0

    @asynccontextmanager
    async def turn(self, tries: int) -> AsyncIterator[None]:
        """Wait for the turn of an entry that had so many tries, and have it in the block."""
        if self._is_taken:
            self._came += 1
            place = (tries, self._came, anyio.Event())
            heapq.heappush(self._waiting, place)
            try:
                await place[2].wait()
            except BaseException:
                if place in self._waiting:
                    self._waiting.remove(place)
                    heapq.heapify(self._waiting)
                else:
                    # It was its turn already.
                    self._pass_on()
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._is_taken = bool(self._waiting)
        if self._waiting:
            heapq.heappop(self._waiting)[2].set()
