"""Follows the hub: every change of an agent arrives here within a minute."""

from __future__ import annotations

import logging

import attrs

from ahcollector.clock import AsyncClock
from ahcollector.errors import CollectorError, PermanentHubError
from ahcollector.hub.base import AgentsHub
from ahcollector.metrics import LAST_SYNC, REGISTRY_AGENTS, Metrics, NullMetrics
from ahcollector.registry.base import Registry
from ahcollector.registry.directory import Directory
from ahwire.hub import AgentPage

__all__ = ["SyncResult", "Syncer"]

_log = logging.getLogger("ahcollector.registry")


@attrs.frozen(kw_only=True)
class SyncResult:
    """What one round brought.

    Attributes:
        pages: Pages read.
        records: Records in them.
        applied: Records that were not older than what was known.
    """

    pages: int
    records: int
    applied: int


class Syncer:
    """Reads pages of changes from the stored cursor to the end, at once and then each interval.

    A page's cursor is stored after all its records were taken, so a crash reads a page again, which
    changes nothing. A failure deletes nothing; the next round goes on where this one stopped. A
    stored cursor that the hub refuses (it is another hub, or began anew) is given up, and the hub
    followed from the start: else no change would ever arrive again.

    Each of several processes may have one: they read the same changes, and by the law of versions
    it does not matter who puts them, or how often. The cursor they share may go back by the pages
    of one round when one of them is slow; those pages are then read again.

    Args:
        hub: Whose changes are read.
        registry: Keeps the cursor.
        directory: Takes the records.
        clock: Time.
        interval_seconds: From the end of a round to the next.
        page_size: Records a page.
        tombstone_ttl_seconds: Agents revoked longer ago are forgotten.
        metrics: Where the counts go.
    """

    def __init__(
        self,
        *,
        hub: AgentsHub,
        registry: Registry,
        directory: Directory,
        clock: AsyncClock,
        interval_seconds: float = 60.0,
        page_size: int = 500,
        tombstone_ttl_seconds: float = 90 * 86_400.0,
        metrics: Metrics | None = None,
    ) -> None:
        self._hub = hub
        self._registry = registry
        self._directory = directory
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._page_size = page_size
        self._tombstone_ttl_seconds = tombstone_ttl_seconds
        self._metrics = metrics if metrics is not None else NullMetrics()

    async def run(self) -> None:
        """Follow the hub until cancelled."""
        failing = False
        while True:
            try:
                await self.sync_once()
            except CollectorError as error:
                # Said once a failure, not once a minute.
                level = logging.DEBUG if failing else logging.WARNING
                _log.log(level, "hub could not be followed", extra={"error": str(error)})
                failing = True
            else:
                if failing:
                    _log.info("hub is followed again")
                failing = False
            await self._clock.sleep(self._interval_seconds)

    async def sync_once(self) -> SyncResult:
        """Read from the stored cursor to the end.

        Raises:
            HubError, RegistryError, PresenceError, DeparturesError: The round stopped; what was
                taken stays.
        """
        pages = records = applied = 0
        cursor = await self._registry.cursor()
        more = True
        while more:
            cursor, page = await self._page(cursor, first=not pages)
            for record in page.agents:
                put = await self._directory.put(record)
                applied += put.applied
            pages += 1
            records += len(page.agents)
            more = page.more and page.next_since != cursor
            if page.more and not more:
                _log.error(
                    "hub says there is more and gives the same cursor", extra={"pages": pages}
                )
            if page.next_since:
                cursor = page.next_since
                await self._registry.set_cursor(cursor)
        now = self._clock.time()
        await self._registry.sweep(revoked_before=now - self._tombstone_ttl_seconds)
        self._metrics.set(LAST_SYNC, now)
        self._metrics.set(REGISTRY_AGENTS, (await self._registry.count()).active)
        if records:
            _log.info("followed the hub", extra={"records": records, "pages": pages})
        return SyncResult(pages=pages, records=records, applied=applied)

    async def _page(self, cursor: str, *, first: bool) -> tuple[str, AgentPage]:
        """Return a page and the cursor it was read from."""
        try:
            return cursor, await self._hub.agents_since(cursor, self._page_size)
        except PermanentHubError as error:
            if not first or not cursor:
                raise
            page = await self._hub.agents_since("", self._page_size)
            # Only now it is known that it was the cursor.
            _log.error(
                "hub refuses the stored cursor and is followed from the start",
                extra={"cursor": cursor[:40], "error": str(error)},
            )
            return "", page
