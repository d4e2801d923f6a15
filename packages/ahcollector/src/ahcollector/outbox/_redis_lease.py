"""The sender's lease of several processes, in Redis."""

from __future__ import annotations

import uuid
from typing import Final

from ahcollector import metrics as names
from ahcollector._fences import may_follow
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import OutboxError, RedisError
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.redis import RedisClient, Script

__all__ = ["RedisLease"]

_RENEW_PART: Final = 3
_HOLD = Script.load("ahcollector.outbox", "hold", after=("library",))
_DROP = Script.load("ahcollector.outbox", "drop", after=("library",))


class RedisLease:
    """A `SenderLease` that one process at a time holds, by the clock of Redis.

    The fencing token is max(Redis' time in ms, last + 1). `last` is in Redis, raised in the step
    that gives the lease out, and `RedisOutbox` refuses older ones from then on. A Redis that lost
    everything goes on with the time; where its clock was turned back, too, the hub's refusal names
    the newest token, and the next is above it. A `newest` that no token can be above is not
    followed, and what stands at or over `ahwire.limits.MAX_FENCE` in Redis counts as nothing: a
    counter that somebody raised beyond use goes on with the time.

    The lease counts from before the command that renewed it, so here it ends no later than in
    Redis. `hold` asks Redis again once a third of it is over: whoever calls it before each request
    to the hub has two thirds of the lease for it. So `lease_seconds` should be at least 1.5 times
    the hub's timeout.

    Args:
        client: The Redis; it stays the caller's to close.
        lease_seconds: How long a holder that shows no life keeps the others waiting.
        clock: Ages the lease between two questions.
        metrics: ``ahc_lease_held`` is set at each `hold` and `drop`.

    Raises:
        ValueError: `lease_seconds` is under 0.1.
    """

    def __init__(
        self,
        *,
        client: RedisClient,
        lease_seconds: float = 15.0,
        clock: AsyncClock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        if lease_seconds < 0.1:
            raise ValueError(f"lease_seconds is {lease_seconds:g}; it must be at least 0.1")
        self._client = client
        self._lease_seconds = lease_seconds
        self._clock = clock if clock is not None else SystemClock()
        self._metrics = metrics if metrics is not None else NullMetrics()
        # One for each object: a process that was started again is somebody else.
        self._holder = uuid.uuid4().hex
        self._fence: int | None = None
        self._asked_at = 0.0
        self._above = 0

    async def hold(self) -> int | None:
        """Take or renew the lease; return its fencing token, None when another holds it.

        Raises:
            OutboxError: Redis gives no answer, so nobody knows.
        """
        began = self._clock.monotonic()
        if self._fence is not None and began < self._asked_at + self._lease_seconds / _RENEW_PART:
            return self._fence
        try:
            reply = await self._run(_HOLD, str(round(self._lease_seconds * 1000)), str(self._above))
        except OutboxError:
            if began >= self._asked_at + self._lease_seconds:
                self._lost()
            raise
        if not reply:
            self._lost()
            return None
        self._fence, self._asked_at = int(reply), began
        if self._fence <= self._above:
            self._above = 0  # no token is above it any more
        if self._clock.monotonic() >= began + self._lease_seconds:
            # This process stood still meanwhile, and the lease may be over by now.
            return None
        self._metrics.set(names.LEASE_HELD, 1.0)
        return self._fence

    async def drop(self, newest: int | None) -> None:
        """Give the lease up; the next token is above `newest`, here and for every process.

        Raises:
            OutboxError: Redis gives no answer; it ends there by itself, and here it is given up.
        """
        floor = newest if may_follow(newest) else 0
        self._above = max(self._above, self._fence or 0, floor)
        self._lost()
        await self._run(_DROP, str(floor))

    def _lost(self) -> None:
        self._fence = None
        self._metrics.set(names.LEASE_HELD, 0.0)

    async def _run(self, script: Script, *args: str) -> bytes:
        try:
            reply: bytes = await self._client.run(
                script, args=[self._client.prefix, self._holder, *args]
            )
        except RedisError as error:
            raise OutboxError(
                f"the sender's lease in Redis cannot be asked for or given up ({error}); events "
                "wait until it can"
            ) from error
        return reply
