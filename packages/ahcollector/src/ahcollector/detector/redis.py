"""The detector's turn of several processes, in Redis (extra ``[redis]``): `detector:turn`."""

from __future__ import annotations

import uuid
from typing import Final

from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import AlertStateError, RedisError
from ahcollector.redis import RedisClient, Script

__all__ = ["RedisDetectorTurn"]

_RENEW_PART: Final = 3
_HOLD = Script.load("ahcollector.detector", "hold")
_DROP = Script.load("ahcollector.detector", "drop")


class RedisDetectorTurn:
    """A `DetectorTurn` that is a lease, by the clock of Redis.

    It counts from before the command that renewed it, so here it ends no later than in Redis.
    `hold` asks Redis again once a third of it is over.

    Args:
        client: The Redis; it stays the caller's to close.
        lease_seconds: How long a holder that shows no life keeps the others waiting.
        clock: Ages the lease between two questions.

    Raises:
        ValueError: `lease_seconds` is under 0.1.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        lease_seconds: float = 15.0,
        clock: AsyncClock | None = None,
    ) -> None:
        if lease_seconds < 0.1:
            raise ValueError(f"lease_seconds is {lease_seconds:g}; it must be at least 0.1")
        self._client = client
        self._lease_seconds = lease_seconds
        self._clock = clock if clock is not None else SystemClock()
        # One for each object: a process that was started again is somebody else.
        self._holder = uuid.uuid4().hex
        self._tenure = 0
        self._asked_at: float | None = None

    async def hold(self) -> int | None:
        """Take the turn or keep it.

        Raises:
            AlertStateError: Redis gives no answer. What was held is held until it is over.
        """
        began = self._clock.monotonic()
        if self._is_within(began, self._lease_seconds / _RENEW_PART):
            return self._tenure
        try:
            reply = await self._run(_HOLD, str(round(self._lease_seconds * 1000)))
        except AlertStateError:
            if self._is_within(began, self._lease_seconds):
                return self._tenure
            raise
        if reply == 0:
            self._asked_at = None
            return None
        if reply == 2 or self._asked_at is None:
            self._tenure += 1
        self._asked_at = began
        # This process may have stood still meanwhile, and the lease be over by now.
        is_held = self._is_within(self._clock.monotonic(), self._lease_seconds)
        return self._tenure if is_held else None

    async def drop(self) -> None:
        """Give the turn up; it ends by itself where Redis gives no answer."""
        if self._asked_at is not None:
            self._asked_at = None
            await self._run(_DROP)

    def _is_within(self, now: float, seconds: float) -> bool:
        return self._asked_at is not None and now < self._asked_at + seconds

    async def _run(self, script: Script, *args: str) -> int:
        try:
            reply: int = await self._client.run(
                script, keys=[self._client.key("detector:turn")], args=[self._holder, *args]
            )
        except RedisError as error:
            raise AlertStateError(
                f"whose turn it is to tell of agents cannot be asked of Redis ({error}); their "
                "events wait until it can"
            ) from error
        return reply
