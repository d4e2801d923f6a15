"""What a request to a door of another protocol takes from its agent's rate.

The rate is counted in points, but a body takes time whether it has points in it or not, and also
when it is refused. So a request is charged in steps, each before the work that it pays for:

=====================  =============================================================================
step                   what is taken, at most what the rate lets come at once
=====================  =============================================================================
before it is read      1
before it is           1 for every 256 bytes of the plain body: more than points take, for a body
understood             that is refused may be made of nothing but what takes long
when it is understood  what is over its points, or over 1 for every 1024 bytes where that is more,
                       is given back
=====================  =============================================================================

A body that is refused as it is costs what was taken so far. One that is over the rate, or that the
bus has no room for, will be sent again; it costs what inflating it did, 1 for every 16 KiB, which
of an ordinary body is next to nothing. One that does not end, or is found bad while it is inflated,
costs what inflating the largest would. When there is less than that, the rest is owed: else who has
next to nothing left could have any number of bodies inflated.
"""

from __future__ import annotations

import math

from ahcollector._buckets import Buckets
from ahcollector.clock import AsyncClock
from ahcollector.errors import RequestRefusedError
from ahcollector.ingest.limits import IngestLimits
from ahwire.limits import MAX_RETRY_AFTER_SENT_SECONDS
from ahwire.status import Code

__all__ = ["Toll", "refuse_over_rate"]

# How many plain bytes a point pays for: to inflate, to understand, and to store. The series of an
# ordinary sender have 200 to 800.
_INFLATED_BYTES = 16 << 10
_UNDERSTOOD_BYTES = 256
_STORED_BYTES = 1 << 10

_FAULTS = frozenset({Code.BAD_REQUEST, Code.TOO_LARGE})
_OF_READING = _FAULTS | {Code.TIMEOUT}


class Toll:
    """What one request takes.

    Args:
        rate: The agents' buckets, in points.
        agent_id: Whose request it is.
        clock: Time.
        limits: The rate, and how large a body may be.
    """

    def __init__(
        self, *, rate: Buckets[str], agent_id: str, clock: AsyncClock, limits: IngestLimits
    ) -> None:
        self._rate = rate
        self._agent_id = agent_id
        self._clock = clock
        self._limits = limits
        self._taken = 0.0
        self._body_bytes: int | None = None

    def enter(self) -> None:
        """Take what it costs to come in.

        Raises:
            RequestRefusedError: rate_limited.
        """
        self._take_up_to(1.0)

    def read(self, body_bytes: int) -> None:
        """Take what it costs to understand a body.

        Args:
            body_bytes: How long it is when inflated.

        Raises:
            RequestRefusedError: rate_limited.
        """
        self._body_bytes = body_bytes
        self._take_up_to(1.0 + body_bytes // _UNDERSTOOD_BYTES)

    def understood(self, points: int) -> None:
        """Take what so many points cost, and give back what was taken over that.

        Raises:
            RequestRefusedError: rate_limited.
        """
        body_bytes = self._body_bytes or 0
        cost = self._at_most_burst(max(float(points), 1.0 + body_bytes // _STORED_BYTES))
        if cost > self._taken:
            self._take_up_to(cost)
        else:
            self._settle(cost)

    def refused(self, code: Code) -> None:
        """Settle what a request costs that nothing was taken of."""
        if self._body_bytes is not None:
            if code not in _FAULTS:
                self._settle(float(self._body_bytes // _INFLATED_BYTES))
        elif code in _OF_READING:
            # How far it was inflated by then is not known.
            self._settle(self._taken + self._limits.plain_bytes_max // _INFLATED_BYTES)
        else:
            self._settle(0.0)

    @property
    def _per_second(self) -> float:
        return self._limits.points_per_minute / 60.0

    def _at_most_burst(self, amount: float) -> float:
        return min(amount, self._limits.points_burst)

    def _take_up_to(self, amount: float) -> None:
        """Take what is missing of an amount."""
        amount = self._at_most_burst(amount)
        wait = self._rate.take(
            self._agent_id,
            now=self._clock.monotonic(),
            per_second=self._per_second,
            burst=self._limits.points_burst,
            amount=max(0.0, amount - self._taken),
        )
        refuse_over_rate(wait, f"points, over {self._limits.points_per_minute:g} a minute")
        self._taken = max(self._taken, amount)

    def _settle(self, amount: float) -> None:
        """Give back what was taken over an amount, or take what is missing, also as a debt."""
        amount = self._at_most_burst(amount)
        if self._taken > amount:
            self._rate.give_back(self._agent_id, self._taken - amount)
        elif self._taken < amount:
            self._rate.spend(
                self._agent_id,
                now=self._clock.monotonic(),
                per_second=self._per_second,
                burst=self._limits.points_burst,
                amount=amount - self._taken,
            )
        self._taken = amount


def refuse_over_rate(wait_seconds: float, what: str) -> None:
    """Return when there is nothing to wait for.

    Raises:
        RequestRefusedError: rate_limited.
    """
    if wait_seconds > 0:
        raise RequestRefusedError(
            Code.RATE_LIMITED,
            f"too many {what}: wait",
            retry_after_seconds=min(math.ceil(wait_seconds), MAX_RETRY_AFTER_SENT_SECONDS),
        )
