"""One time for all processes that share a Redis, whatever their machines' clocks say.

Deadlines that one process writes are read by others. With clocks a minute apart, whoever is ahead
would find living agents silent, for ever. So processes that share presence take their wall time
from the one place they share: Redis. Between two readings it goes on by the steady clock, so a step
of the machine's own clock moves nothing. A step of Redis' clock is a step of this one against the
steady clock, which the detector knows as a blindness.

    asked at s0 ──▶ Redis says t ──▶ heard at s1      time = t + (steady - (s0 + s1) / 2)

A reading is as exact as half its round trip, a few milliseconds; one that contradicts what is known
by no more than that changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import RedisError

__all__ = ["SharedClock"]

_log = logging.getLogger("ahcollector.redis")

_LEAST_STEP_SECONDS: Final = 0.005
_TOLD_SECONDS: Final = 5.0


class SharedClock:
    """An `AsyncClock` whose wall time is that of a server several processes share.

    Args:
        read: Asks the server for its time, Unix seconds (`RedisClient.time`); may raise RedisError.
        clock: This machine's; its wall time counts until the first reading, its steady time always.
        interval_seconds: From one reading to the next.
    """

    def __init__(
        self,
        *,
        read: Callable[[], Awaitable[float]],
        clock: AsyncClock,
        interval_seconds: float = 5.0,
    ) -> None:
        self._read = read
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._ahead = clock.time() - clock.monotonic()
        self._trouble = Trouble(
            _log, "the shared time cannot be read", "the shared time is read again"
        )

    def time(self) -> float:
        """Return Unix seconds, of the server as far as it was ever asked."""
        return self._clock.monotonic() + self._ahead

    def monotonic(self) -> float:
        """Return this machine's steady seconds."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep as this machine's clock does."""
        await self._clock.sleep(seconds)

    async def run(self) -> None:
        """Read the server's time each interval until cancelled; an outage is outlived."""
        while True:
            try:
                await self.set()
            except RedisError as error:
                self._trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
            else:
                self._trouble.is_over()
            await self._clock.sleep(self._interval_seconds)

    async def set(self) -> None:
        """Read the server's time now. Raises RedisError."""
        asked = self._clock.monotonic()
        instant = await self._read()
        heard = self._clock.monotonic()
        unsure = max((heard - asked) / 2, _LEAST_STEP_SECONDS)
        off = instant - (asked + heard) / 2 - self._ahead
        if abs(off) <= unsure:
            return
        if abs(off) > _TOLD_SECONDS:
            _log.warning(
                "this machine's clock and that of Redis differ: Redis' one counts",
                extra={"seconds": round(off, 3)},
            )
        self._ahead += off
