"""The sign that agents could be heard at all."""

from __future__ import annotations

import logging

from ahcollector.clock import AsyncClock
from ahcollector.errors import PresenceError
from ahcollector.presence.base import Presence

__all__ = ["IngestBeacon"]

_log = logging.getLogger("ahcollector.ingest")


class IngestBeacon:
    """Tells presence that this process takes requests; run it while it does.

    A detector that sees no beacon knows that agents are silent because nobody listened.

    Args:
        presence: Told.
        clock: Time.
        interval_seconds: How often; the presence counts on 5 s.
    """

    def __init__(
        self, *, presence: Presence, clock: AsyncClock, interval_seconds: float = 5.0
    ) -> None:
        self._presence = presence
        self._clock = clock
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        """Tell at once and then each interval, until cancelled."""
        failing = False
        while True:
            try:
                await self._presence.beacon(self._clock.time())
            except PresenceError as error:
                level = logging.DEBUG if failing else logging.WARNING
                _log.log(level, "beacon cannot be kept", extra={"error": str(error)})
                failing = True
            else:
                failing = False
            await self._clock.sleep(self._interval_seconds)
