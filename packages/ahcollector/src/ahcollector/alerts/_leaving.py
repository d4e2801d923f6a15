"""What it means for a unit that servers leave: their alerts end, and nothing late is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import anyio.lowlevel

from ahcollector import metrics as names
from ahcollector.alerts._unit import AlertUnit
from ahcollector.bus.base import SampleBatch
from ahcollector.clock import AsyncClock
from ahcollector.departures.sieve import Sieve
from ahcollector.errors import AlertStateError, DeparturesError, RegistryError
from ahcollector.metrics import Metrics

__all__ = ["Leaving"]


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (DeparturesError, RegistryError) as error:
        raise AlertStateError(
            f"it cannot be told whose alerts are to end because they left: {error}"
        ) from error


class Leaving:
    """Holds the servers of units against the departures.

    Args:
        sieve: Tells who left; None: nobody does.
        clock: Dates what ends.
        metrics: Where to count.
    """

    def __init__(self, *, sieve: Sieve | None, clock: AsyncClock, metrics: Metrics) -> None:
        self._sieve = sieve
        self._clock = clock
        self._metrics = metrics
        self._version: str | None = None

    async def look(self) -> None:
        """See whether somebody left. Raises AlertStateError."""
        if self._sieve is not None:
            with _translated():
                self._version = await self._sieve.version()

    async def living(
        self, unit: AlertUnit, batches: Sequence[SampleBatch]
    ) -> Sequence[SampleBatch]:
        """End what left in a unit, and return the batches of those who are there.

        A unit is held against all departures when it is new to this process, and whenever `look`
        found others; each batch against its server's now.

        Raises:
            AlertStateError: It cannot be told who left.
        """
        if self._sieve is None:
            return batches
        await self._end(unit, self._sieve)
        if not batches:
            return batches
        with _translated():
            sifted = await self._sieve.to_judge(batches)
        if sifted.gone:
            points = sum(batch.samples for batch in sifted.gone)
            self._metrics.inc(names.RULES_POINTS_DROPPED, points, reason="departed")
        for batch in sifted.living if sifted.left else ():
            left = sifted.left.get((batch.company_id, batch.server_id))
            if left is not None:
                unit.returned(batch.server_id, left.at_ms, self._clock.time())
        return sifted.living

    async def _end(self, unit: AlertUnit, sieve: Sieve) -> None:
        if self._version is None:
            await self.look()
        version = self._version
        if unit.departures_seen == version:
            return
        company_id = unit.key.company_id
        servers = [(company_id, server_id) for server_id in unit.servers]
        with _translated():
            left = await sieve.left(servers)
        for (_, server_id), one in left.items():
            unit.departed(server_id, one.at_ms, self._clock.time())
            # A whole company may be many.
            await anyio.lowlevel.checkpoint()
        unit.departures_seen = version
