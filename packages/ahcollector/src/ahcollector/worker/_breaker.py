"""One view of the store's health for all shards of a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from ahcollector.clock import AsyncClock
from ahwire import Backoff
from ahwire.clock import Rng

__all__ = ["CircuitBreaker"]


class CircuitBreaker:
    """Closed: everybody writes. Open: one at a time tries, after a wait.

    Args:
        clock: Paces the probes.
        rng: Gives the jitter.
        retry_min_seconds: First step of the wait.
        retry_max_seconds: Largest step.
    """

    def __init__(
        self,
        *,
        clock: AsyncClock,
        rng: Rng,
        retry_min_seconds: float = 0.2,
        retry_max_seconds: float = 30.0,
    ) -> None:
        self._clock = clock
        self._backoff = Backoff(retry_min_seconds, retry_max_seconds, rng)
        self._probe = anyio.Lock()
        self._prober: int | None = None
        self._wait_seconds = 0.0
        self.open = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until one may try. Inside, tell the outcome with `succeeded` or `failed`."""
        if not self.open:
            yield
            return
        async with self._probe:
            if self.open:
                await self._clock.sleep(self._wait_seconds)
            self._prober = anyio.get_current_task().id
            try:
                yield
            finally:
                self._prober = None

    def succeeded(self) -> None:
        """Close: the store answered."""
        self.open = False
        self._backoff.reset()

    def failed(self) -> None:
        """Open, or stay open with a longer wait."""
        # Several writes may fail together when it opens; they are one failure, also where one of
        # them waits for its next turn by the time the others fail.
        if not self.open or self._prober == anyio.get_current_task().id:
            self._wait_seconds = self._backoff.next()
        self.open = True
