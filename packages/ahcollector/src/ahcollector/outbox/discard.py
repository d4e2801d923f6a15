"""The outbox where there is no hub: events have nowhere to go, and are counted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ahcollector import metrics as names
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.outbox.base import DeadLetter, OutboxEntry, OutboxStats
from ahwire import Event

__all__ = ["DiscardOutbox"]


class DiscardOutbox:
    """`Outbox` that keeps nothing, for a collector that tells nobody: it is always empty.

    Args:
        metrics: Each event counts in ``ahc_outbox_discarded_total``, by its type.
    """

    def __init__(self, *, metrics: Metrics | None = None) -> None:
        self._metrics = metrics if metrics is not None else NullMetrics()

    async def append(self, events: Sequence[Event], now: float) -> int:
        """Count events and forget them; what was counted before is not known."""
        del now
        for event in events:
            self._metrics.inc(names.OUTBOX_DISCARDED, type=event.type.value)
        return len(events)

    async def peek(self, limit: int) -> list[OutboxEntry]:
        """Nothing waits."""
        del limit
        return []

    async def ack(self, event_ids: Collection[str], fence: int | None) -> int:
        """Nothing is held."""
        del event_ids, fence
        return 0

    async def dead(
        self, event_ids: Collection[str], reason: str, now: float, fence: int | None
    ) -> int:
        """Nothing is held."""
        del event_ids, reason, now, fence
        return 0

    async def expire(self, cutoff: float, now: float) -> int:
        """Nothing is held."""
        del cutoff, now
        return 0

    async def stats(self, now: float) -> OutboxStats:
        """Empty."""
        del now
        return OutboxStats(
            depth=0,
            oldest_age_seconds=0.0,
            dead=0,
            dead_bytes=0,
            dead_dropped=0,
            damaged_lines=0,
        )

    async def dead_letters(self, *, after: str = "", limit: int = 500) -> list[DeadLetter]:
        """There are none."""
        del after, limit
        return []

    async def replay(self, letter_ids: Collection[str] | None, now: float) -> int:
        """There are none."""
        del letter_ids, now
        return 0

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """There are none."""
        del letter_ids
        return 0

    async def ping(self) -> None:
        """It is always there."""
