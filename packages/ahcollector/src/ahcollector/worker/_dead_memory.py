"""Dead batches in memory."""

from __future__ import annotations

from collections.abc import Collection

from ahcollector.bus.base import SampleBatch
from ahcollector.metrics import Metrics
from ahcollector.worker._dead_counts import DeadCounts
from ahcollector.worker._dead_shelf import Bounds, Shelf
from ahcollector.worker.deadletter import DeadBatch

__all__ = ["MemoryDeadBatches"]


class MemoryDeadBatches:
    """`DeadBatches` in memory: gone with the process.

    Args:
        letters_max: Bound of their number.
        bytes_max: Bound of their size as JSON, in bytes.
        retention_seconds: Bound of their age; what is older goes at the next put.
        metrics: Where to count.
    """

    def __init__(
        self,
        *,
        letters_max: int = 1_000,
        bytes_max: int = 64 * 1024 * 1024,
        retention_seconds: float = 30 * 86_400.0,
        metrics: Metrics | None = None,
    ) -> None:
        self._counts = DeadCounts(metrics)
        self._shelf = Shelf(
            bounds=Bounds(
                letters_max=letters_max, bytes_max=bytes_max, retention_seconds=retention_seconds
            ),
            counts=self._counts,
        )

    @property
    def total(self) -> int:
        """How many were put."""
        return self._counts.total

    @property
    def dropped(self) -> int:
        """How many the bounds pushed out."""
        return self._counts.dropped

    @property
    def damaged(self) -> int:
        """Always 0."""
        return self._counts.damaged

    async def put(self, batch: SampleBatch, reason: str, now: float) -> None:
        """Keep a batch."""
        change = self._shelf.plan(batch, reason, now)
        if change is not None:
            self._shelf.apply(change)

    async def letters(self, *, after: str = "", limit: int = 100) -> list[DeadBatch]:
        """Return a page."""
        return self._shelf.page(after, limit)

    async def read(self, letter_id: str) -> SampleBatch | None:
        """Return the batch of a letter."""
        return self._shelf.batch(letter_id)

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters."""
        found = self._shelf.ids(letter_ids)
        self._shelf.remove(found)
        return len(found)

    async def count(self) -> int:
        """Return how many there are."""
        return len(self._shelf)
