"""The beacon that tells the detector that agents can be heard."""

from __future__ import annotations

import logging

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import PresenceError
from ahcollector.presence.base import Presence

__all__ = ["IngestBeacon"]

_log = logging.getLogger("ahcollector.presence")


class IngestBeacon:
    """Writes the ingest beacon while an ingest process is able to hear agents.

    Run one beside each ingest application, in the same event loop: a loop that hangs hears nobody,
    and writes no beacon either.
    """

    def __init__(
        self, *, presence: Presence, clock: AsyncClock, interval_seconds: float = 5.0
    ) -> None:
        self._presence = presence
        self._clock = clock
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        """Write at once, then each interval, until cancelled; failures are logged and outlived."""
        trouble = Trouble(_log, "ingest beacon not written", "ingest beacon written again")
        while True:
            try:
                await self._presence.beacon(self._clock.time())
            except PresenceError as error:
                trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
            else:
                trouble.is_over()
            await self._clock.sleep(self._interval_seconds)
