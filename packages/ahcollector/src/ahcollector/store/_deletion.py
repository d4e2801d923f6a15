"""Deletes a tenant's series from VictoriaMetrics, and from where its long rollups are."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from ahcollector.errors import PermanentStoreError, StoreError
from ahcollector.store import _victoria_answers as answers
from ahcollector.store._queries import between
from ahcollector.store._selectors import selector
from ahcollector.store._victoria_http import VictoriaHttp, understood

__all__ = ["Deletion"]

_log = logging.getLogger("ahcollector.store")


class Deletion:
    """Counts and deletes.

    Args:
        stores: Where to delete; the first has the samples.
        flush: Makes visible what waits there; may fail.
        start_ms: From when series are counted, Unix milliseconds.
        end_ms: Tells until when.
    """

    def __init__(
        self,
        *,
        stores: Sequence[VictoriaHttp],
        flush: Callable[[], Awaitable[None]],
        start_ms: int,
        end_ms: Callable[[], int],
    ) -> None:
        self._stores = stores
        self._flush = flush
        self._start_ms = start_ms
        self._end_ms = end_ms

    async def delete(self, company_id: str, server_id: str | None) -> int:
        """Delete series and rollups of a server or of a company; return how many series.

        Where they cannot be listed they are deleted all the same, and 0 is returned.
        """
        everything = selector(company_id, server_id=server_id)
        whose = {"company_id": company_id, "server_id": server_id}
        try:
            # Only what is visible is deleted, and a series may be a second old.
            await self._flush()
        except StoreError as error:
            _log.warning(
                "series that came in the last 10 s may outlive their deletion, because what waits "
                "could not be made visible first",
                extra={**whose, "error": str(error)},
            )
        count = 0
        try:
            count = await self._count(selector(company_id, server_id=server_id, rollups=False))
        except PermanentStoreError as error:
            _log.warning(
                "series are deleted that could not be counted first: raise -search.maxSeries",
                extra={**whose, "error": str(error)},
            )
        for store in self._stores:
            await store.order("/api/v1/admin/tsdb/delete_series", {"match[]": everything})
        return count

    async def _count(self, chosen: str) -> int:
        body = await self._stores[0].post_form(
            "/api/v1/series",
            {"match[]": chosen, **between(self._start_ms, self._end_ms())},
        )
        return len(understood(body, answers.read_labels))
