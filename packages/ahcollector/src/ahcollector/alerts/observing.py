"""What looks at samples once they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ahcollector.bus.base import SampleBatch
from ahcollector.store.base import Restarts, Writer

__all__ = ["ObservingWriter", "SampleObserver"]


class SampleObserver(Protocol):
    """Is shown batches that the store has taken."""

    async def observed(self, batches: Sequence[SampleBatch]) -> None:
        """Look at batches, those of one server in the order in which they came.

        Each is shown at least once before it is acknowledged, and may be shown again, also after
        newer ones.

        Raises:
            TemporaryStoreError: They could not be looked at now; they are to come again.
        """
        ...


class ObservingWriter:
    """A `Writer` that shows an observer what it has written; for a `Worker`, as its store.

    It has the `epoch` of a writer that has one (`Restarts`), and none before one that has none. So
    a worker holds what was written until it is durable, whether or not somebody looks at it.

    Args:
        writer: Where samples go.
        observer: Shown them afterwards.
    """

    def __init__(self, *, writer: Writer, observer: SampleObserver) -> None:
        self._writer = writer
        self._observer = observer
        if isinstance(writer, Restarts):
            # Only then: a worker takes whoever has an `epoch` for a store that can lose something.
            self.epoch = writer.epoch

    async def write(self, batches: Sequence[SampleBatch]) -> None:
        """Store the samples, then show them.

        Raises:
            TemporaryStoreError: The store cannot take them now, or the observer cannot look.
            PermanentStoreError: The store refuses at least one batch for good; none was shown.
        """
        await self._writer.write(batches)
        await self._observer.observed(batches)
