"""The sender's lease where one process is alone by other means, so that its sends carry a fence."""

from __future__ import annotations

from ahcollector._fences import may_follow
from ahwire import next_seq
from ahwire.clock import Clock, now_ms

__all__ = ["LocalLease"]


class LocalLease:
    """A `SenderLease` that nobody else can hold: its outbox belongs to this process.

    The fencing token is max(now in ms, last + 1), so it rises over restarts too. After a refusal
    the next token is above the newest that the hub named, unless none can be: that one is not
    followed.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._held = False

    async def hold(self) -> int | None:
        """Return the token; a new one when the lease is not held."""
        if not self._held:
            self._last = next_seq(now_ms(self._clock), self._last)
            self._held = True
        return self._last

    async def drop(self, newest: int | None) -> None:
        """Give the lease up."""
        self._held = False
        if may_follow(newest):
            self._last = max(self._last, newest)
