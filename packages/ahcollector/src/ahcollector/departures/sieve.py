"""Which batches are of somebody who left.

    received          at                at + quiet
    ────────────────►│─────────────────────►│────────────►
       too late      │ too late unless the  │  of who came
                     │ registry knows who   │  back
                     │ sent it              │

Why the middle: a token is believed for a while after its agent was deleted (a node's cache, a body
that was still on its way), and clocks of processes differ by some milliseconds. What was let in so
is dated after the departure, and is not of somebody who came back; who came back is in the
registry. A departure that lies ahead of the clock was dated by one that stepped back since: then
too the registry says who is there, or nothing of them would flow until the clock is there again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs

from ahcollector.bus.base import SampleBatch
from ahcollector.departures.base import Departures, Left, ServerKey
from ahwire import Clock

__all__ = ["Sieve", "Sifted"]

_QUIET_SECONDS: Final = 60.0

IsKnown = Callable[[SampleBatch], Awaitable[bool]]


@attrs.frozen(kw_only=True)
class Sifted:
    """What was asked of some batches.

    Attributes:
        living: Those of servers that are there, in their order.
        gone: Those that come too late, in their order.
        left: When their servers left, of those that ever did.
    """

    living: list[SampleBatch]
    gone: list[SampleBatch]
    left: Mapping[ServerKey, Left]


class Sieve:
    """Tells batches of those who left from batches of those who are there, or came back.

    Args:
        departures: Who left.
        is_known: Returns whether the sender of a batch may send for that server now, by the
            registry itself and no cache; may raise `RegistryError`.
        clock: The time that dates receipts and departures.
        quiet_seconds: For how long after a departure the registry is asked: above the time for
            which any process may still believe an old token, and a request may take.
    """

    def __init__(
        self,
        *,
        departures: Departures,
        is_known: IsKnown,
        clock: Clock,
        quiet_seconds: float = _QUIET_SECONDS,
    ) -> None:
        self._departures = departures
        self._is_known = is_known
        self._clock = clock
        self._quiet_ms = int(quiet_seconds * 1000)

    async def version(self) -> str:
        """Return a text that changes whenever somebody leaves. Raises DeparturesError."""
        return await self._departures.version()

    async def left(self, servers: Sequence[ServerKey]) -> Mapping[ServerKey, Left]:
        """Return when servers left, of those that ever did. Raises DeparturesError."""
        return await self._departures.of(servers)

    async def to_store(self, batches: Sequence[SampleBatch]) -> Sifted:
        """Sift what is to be stored: a departure that kept the series does not count.

        Raises:
            DeparturesError, RegistryError: It cannot be told now.
        """
        return await self._sift(batches, lambda left: left.series_at_ms)

    async def to_judge(self, batches: Sequence[SampleBatch]) -> Sifted:
        """Sift what alerts are to be judged by: every departure counts.

        Raises:
            DeparturesError, RegistryError: It cannot be told now.
        """
        return await self._sift(batches, lambda left: left.at_ms)

    async def _sift(
        self, batches: Sequence[SampleBatch], instant: Callable[[Left], int | None]
    ) -> Sifted:
        servers = dict.fromkeys((batch.company_id, batch.server_id) for batch in batches)
        left = await self._departures.of(list(servers))
        if not left:
            return Sifted(living=list(batches), gone=[], left=left)
        living: list[SampleBatch] = []
        gone: list[SampleBatch] = []
        for batch in batches:
            found = left.get((batch.company_id, batch.server_id))
            at_ms = None if found is None else instant(found)
            (gone if at_ms is not None and await self._is_gone(batch, at_ms) else living).append(
                batch
            )
        return Sifted(living=living, gone=gone, left=left)

    async def _is_gone(self, batch: SampleBatch, at_ms: int) -> bool:
        if batch.received_at_ms > at_ms + self._quiet_ms:
            return False
        if batch.received_at_ms <= at_ms <= int(self._clock.time() * 1000):
            return True
        return not await self._is_known(batch)
