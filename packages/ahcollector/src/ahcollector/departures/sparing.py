"""Keeps batches of those who left out of a store."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ahcollector import metrics as names
from ahcollector.bus.base import SampleBatch
from ahcollector.departures.base import ServerKey
from ahcollector.departures.sieve import Sieve, Sifted
from ahcollector.errors import (
    DeparturesError,
    PermanentStoreError,
    RegistryError,
    TemporaryStoreError,
)
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.store.base import Deleter, Restarts, Writer

__all__ = ["SparingWriter"]

_log = logging.getLogger("ahcollector.departures")


class SparingWriter:
    """A `Writer` that drops what is of a deleted server or company; for a `Worker`, as its store.

    What it drops it counts (`ahc_tsdb_batches_dropped_total{reason="deleted"}`), and to the worker
    it is written: the bus may forget it. While nobody can tell who left, nothing is written.

    A deletion may come while a write is under way, and the write may end behind it. So it is asked
    again afterwards, and the series of whoever left meanwhile are deleted once more, before the
    shard's next write; also where that write failed and may have been done. Only a process that
    dies in just such a write leaves its series behind: to delete again removes them.

    It has the `epoch` of a writer that has one (`Restarts`), so that a worker holds what was
    written until it is durable.

    Args:
        writer: Where the others go.
        deleter: The same store.
        sieve: Tells who left.
        metrics: Where to count.
    """

    def __init__(
        self,
        *,
        writer: Writer,
        deleter: Deleter,
        sieve: Sieve,
        metrics: Metrics | None = None,
    ) -> None:
        self._writer = writer
        self._deleter = deleter
        self._sieve = sieve
        self._metrics = metrics if metrics is not None else NullMetrics()
        # Servers in writes that are under way, or failed: what they have of it nobody knows.
        self._unsure: set[ServerKey] = set()
        if isinstance(writer, Restarts):
            # Only then: a worker takes whoever has an `epoch` for a store that can lose something.
            self.epoch = writer.epoch

    async def write(self, batches: Sequence[SampleBatch]) -> None:
        """Store the samples of those who are there.

        Raises:
            TemporaryStoreError: The store cannot take them now, or it cannot be told who left.
            PermanentStoreError: The store refuses at least one batch for good.
        """
        sifted = await self._sift(batches)
        await self._delete_again(sifted)
        if sifted.gone:
            self._tell(sifted.gone)
        living = sifted.living
        if not living:
            return
        servers = {_key(batch) for batch in living}
        self._unsure |= servers
        try:
            await self._writer.write(living)
        except PermanentStoreError:
            if len(living) == 1:
                self._unsure -= servers  # of a batch that was refused nothing is stored
            raise
        after = await self._sift(living)
        await self._delete_again(after)
        self._unsure -= servers
        if after.gone:
            self._tell(after.gone)

    async def _sift(self, batches: Sequence[SampleBatch]) -> Sifted:
        try:
            return await self._sieve.to_store(batches)
        except (DeparturesError, RegistryError) as error:
            raise TemporaryStoreError(
                f"it cannot be told whether their servers were deleted: {error}"
            ) from error

    async def _delete_again(self, sifted: Sifted) -> None:
        for company_id, server_id in dict.fromkeys(map(_key, sifted.gone)):
            if (company_id, server_id) not in self._unsure:
                continue
            try:
                await self._deleter.delete_server(company_id, server_id)
            except PermanentStoreError as error:
                raise TemporaryStoreError(
                    f"series of the deleted server {server_id} of company {company_id}, which a "
                    f"write has brought back, cannot be deleted: {error}"
                ) from error
            self._unsure.discard((company_id, server_id))

    def _tell(self, gone: Sequence[SampleBatch]) -> None:
        self._metrics.inc(names.TSDB_BATCHES_DROPPED, len(gone), reason="deleted")
        for batch in gone:
            _log.info(
                "a batch of a deleted server is dropped",
                extra={
                    "request_id": batch.request_id,
                    "company_id": batch.company_id,
                    "server_id": batch.server_id,
                },
            )


def _key(batch: SampleBatch) -> ServerKey:
    return batch.company_id, batch.server_id
