"""The departures of one process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping

from ahcollector.departures.base import (
    DEPARTURES_MAX,
    KEEP_SECONDS,
    Departure,
    Left,
    ServerKey,
    check_bounds,
    later,
    tell_over,
)
from ahcollector.metrics import Metrics, NullMetrics

__all__ = ["MemoryDepartures"]


class MemoryDepartures:
    """`Departures` in a dictionary; they end with the process, as a bus in memory does.

    Args:
        keep_seconds: How long a departure is remembered.
        departures_max: How many are.
        metrics: Where those are counted that make room.

    Raises:
        ValueError: Nothing would be remembered under these bounds.
    """

    def __init__(
        self,
        *,
        keep_seconds: float = KEEP_SECONDS,
        departures_max: int = DEPARTURES_MAX,
        metrics: Metrics | None = None,
    ) -> None:
        check_bounds(keep_seconds=keep_seconds, departures_max=departures_max)
        self._keep_ms = int(keep_seconds * 1000)
        self._departures_max = departures_max
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._left: OrderedDict[tuple[str, str | None], Left] = OrderedDict()
        self._noted = 0

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._left)

    async def note(self, departure: Departure) -> None:
        """Remember a departure."""
        self.tell_over(self.take(departure.company_id, departure.server_id, departure.left))

    async def of(self, servers: Collection[ServerKey]) -> Mapping[ServerKey, Left]:
        """Return when servers left."""
        if not self._left:
            return {}
        found = (
            (key, later(self._left.get((key[0], None)), self._left.get(key))) for key in servers
        )
        return {key: left for key, left in found if left is not None}

    async def version(self) -> str:
        """Return how often something was noted."""
        return str(self._noted)

    def is_news(self, departure: Departure) -> bool:
        """Return whether a departure says what is not known."""
        known = self._left.get((departure.company_id, departure.server_id))
        return later(known, departure.left) != known

    def take(self, company_id: str, server_id: str | None, left: Left) -> int:
        """Remember what is known of somebody besides what was; return how many make room for it."""
        key = (company_id, server_id)
        known = self._left.get(key)
        merged = later(known, left)
        assert merged is not None, "there is one of them"
        if merged == known:
            return 0
        self._left[key] = merged
        self._left.move_to_end(key)
        self._noted += 1
        over = 0
        while len(self._left) > 1:
            oldest = next(iter(self._left.values()))
            is_old = oldest.at_ms < merged.at_ms - self._keep_ms
            if not is_old and len(self._left) <= self._departures_max:
                break
            self._left.popitem(last=False)
            over += not is_old
        return over

    def tell_over(self, count: int) -> None:
        """Tell of those that made room, if there are any."""
        if count:
            tell_over(count, self._departures_max, self._metrics)

    def all(self) -> Iterator[tuple[str, str | None, Left]]:
        """Yield what is remembered, in the order in which it was noted."""
        for (company_id, server_id), left in self._left.items():
            yield company_id, server_id, left
