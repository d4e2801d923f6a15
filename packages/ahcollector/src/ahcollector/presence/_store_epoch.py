"""Whether Redis is still the one that presence was told to."""

from __future__ import annotations

import logging
import uuid
from typing import Final

from ahcollector import metrics as names
from ahcollector.errors import PresenceError
from ahcollector.metrics import Metrics
from ahcollector.presence._redis_link import RedisLink

__all__ = ["StoreEpoch"]

_KEY: Final = "epoch"
_log = logging.getLogger("ahcollector.presence")


class StoreEpoch:
    """A random id in Redis, and the same one in this process.

    The first process to come writes it. Where it is missing or another one later, all that was
    beside it is gone too: Redis was emptied, began without its data, or is another one. Then there
    is one line in the log, one more in the counter, and one error for the detector, so that it
    gives a grace. A process that begins afterwards knows of nothing, and finds no beacon: that is a
    grace as well.

    Args:
        link: The Redis.
        metrics: Where a loss is counted.
    """

    def __init__(self, *, link: RedisLink, metrics: Metrics) -> None:
        self._link = link
        self._metrics = metrics
        self._known: bytes | None = None
        self._untold = False
        # What was counted last, to say what is lost.
        self._down: int | None = None
        self._intents: int | None = None
        # The zero is there for the alert that watches it.
        metrics.inc(names.PRESENCE_LOST, 0)

    def counted(self, *, down: int | None = None, intents: int | None = None) -> None:
        """Note how much there is to lose."""
        self._down = down if down is not None else self._down
        self._intents = intents if intents is not None else self._intents

    async def check(self) -> None:
        """Compare the two ids. Raises PresenceError when Redis gives no answer."""
        key = self._link.key(_KEY)
        found: bytes | None = await self._link.call("GET", key)
        if found is None:
            # Several find it missing at once: the first one's counts, for all.
            await self._link.call("SET", key, uuid.uuid4().hex, "NX")
            found = await self._link.call("GET", key)
        if found is None or found == self._known:
            return
        known, self._known = self._known, found
        if known is not None:
            self._untold = True
            self._tell()

    def _tell(self) -> None:
        self._metrics.inc(names.PRESENCE_LOST)
        _log.error(
            "Redis forgot presence: agents that were down count as new, so that nothing ends their "
            "alerts when they are heard again, and transitions not told yet are lost; end the "
            "alerts of living agents at the hub, and let Redis keep its data (appendonly yes)",
            extra={"agents_down_before": self._down, "transitions_before": self._intents},
        )
        self._down = self._intents = None

    def raise_once(self) -> None:
        """Raise PresenceError for a loss that was not raised yet."""
        if self._untold:
            self._untold = False
            raise PresenceError(
                "Redis forgot presence: nobody is declared down until a grace is given; the log "
                "says what is lost"
            )
