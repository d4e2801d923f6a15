"""Reads all agents of the hub once a day, and finds those that it lists no more.

The minute's sync brings changes; what the hub forgot without a word it never brings. A full sync
reads from the empty cursor to the end, puts every record (by the law of versions, so nothing goes
back), leaves the stored cursor where it is, and then looks for *orphans*: agents that were in the
registry before, that the hub did not list, and that did not change meanwhile.

Orphans are reported. They are removed only when the operator wants that, and never when the answer
is in doubt:

- a reading that failed anywhere, or did not come to its end, removes nobody;
- a hub that lists nobody, or of which more than `orphan_share_max` of all agents would be orphans,
  removes nobody: it was more likely emptied or restored than that everybody left;
- the hub is asked for each orphan's token once more, and only "no such token" removes it.

Afterwards presence ends the watch of agents that are not active in the registry, unless the answer
was in doubt: what a crash left there would be told as silence.

Of several processes one reads (`Registry.begin_full_sync`); one that died is followed by another
after `claim_seconds`. Should two read at once, both do the same.
"""

from __future__ import annotations

import logging

import attrs

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.errors import CollectorError, TemporaryHubError
from ahcollector.hub.base import AgentsHub
from ahcollector.metrics import (
    LAST_FULL_SYNC,
    REGISTRY_ORPHANS,
    REGISTRY_ORPHANS_REMOVED,
    Metrics,
    NullMetrics,
)
from ahcollector.registry.base import AgentEntry, Registry, everybody
from ahcollector.registry.directory import Directory
from ahwire.hub import AgentState

__all__ = ["FullSync", "FullSyncResult"]

_log = logging.getLogger("ahcollector.registry")

_SHOWN_MAX = 20


@attrs.frozen(kw_only=True)
class FullSyncResult:
    """What one reading of all agents found.

    Attributes:
        pages: Pages read.
        records: Records in them.
        orphans: Ids of the agents that the hub lists no more, in order.
        removed: How many of them were removed.
        strays: Watches of presence that were ended because their agents may not send.
        kept_because: Why the hub's list was not believed; None: it was.
    """

    pages: int
    records: int
    orphans: tuple[str, ...]
    removed: int
    strays: int
    kept_because: str | None


class FullSync:
    """Reads all agents of the hub each interval; see the module for orphans.

    It holds an id and a number of every agent in memory while it reads.

    Args:
        hub: Whose agents are read.
        registry: What is compared.
        directory: Takes records, and lets presence follow a removal.
        clock: Time.
        interval_seconds: From the end of one reading to the next, over restarts too.
        claim_seconds: After a reading that did not end, how long nobody begins another one.
        check_seconds: How often it is looked whether one is due.
        page_size: Records a page.
        pages_max: A hub with more pages than that does not end; the reading fails.
        remove_orphans: Whether orphans are removed; else they are only reported.
        orphan_share_max: Of all agents known, above 0 and at most 1; with more orphans than that,
            none is removed.
        metrics: Where the counts go.
    """

    def __init__(
        self,
        *,
        hub: AgentsHub,
        registry: Registry,
        directory: Directory,
        clock: AsyncClock,
        interval_seconds: float = 86_400.0,
        claim_seconds: float = 900.0,
        check_seconds: float = 60.0,
        page_size: int = 500,
        pages_max: int = 20_000,
        remove_orphans: bool = False,
        orphan_share_max: float = 0.5,
        metrics: Metrics | None = None,
    ) -> None:
        self._hub = hub
        self._registry = registry
        self._directory = directory
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._claim_seconds = claim_seconds
        self._check_seconds = check_seconds
        self._page_size = page_size
        self._pages_max = pages_max
        self._remove_orphans = remove_orphans
        self._orphan_share_max = orphan_share_max
        self._metrics = metrics if metrics is not None else NullMetrics()

    async def run(self) -> None:
        """Read whenever it is due, until cancelled."""
        trouble = Trouble(_log, "full sync failed, nobody was removed", "full sync works again")
        while True:
            try:
                if await self.sync_if_due() is not None:
                    trouble.is_over()
            except CollectorError as error:
                trouble.goes_on(self._clock.monotonic(), {"error": str(error)})
            await self._clock.sleep(self._check_seconds)

    async def sync_if_due(self) -> FullSyncResult | None:
        """Read when the last reading is long enough ago and nobody else does; None: not now.

        Raises:
            HubError, RegistryError, PresenceError, DeparturesError: As `sync`.
        """
        due = await self._registry.begin_full_sync(
            now=self._clock.time(),
            interval_seconds=self._interval_seconds,
            claim_seconds=self._claim_seconds,
        )
        if not due:
            return None
        result = await self.sync()
        await self._registry.end_full_sync(now=self._clock.time())
        self._metrics.set(LAST_FULL_SYNC, self._clock.time())
        return result

    async def sync(self) -> FullSyncResult:
        """Read all agents of the hub now, and deal with orphans.

        Raises:
            HubError, RegistryError, PresenceError, DeparturesError: It stopped; records that were
                taken stay. The orphans found by then may have been removed, each by the hub's own
                word.
        """
        before = await self._known()
        listed, pages, records = await self._read()
        orphans = [
            agent_id
            for agent_id, entry_hash in sorted(before.items())
            if agent_id not in listed and await self._entry(agent_id, entry_hash) is not None
        ]
        kept_because = self._doubt(orphans=len(orphans), known=len(before), listed=len(listed))
        removed = 0
        if self._remove_orphans and kept_because is None:
            for agent_id in orphans:
                removed += await self._remove(agent_id, before[agent_id])
        strays = 0
        if kept_because is None:
            strays = await self._directory.end_stray_watches(before.keys())
        result = FullSyncResult(
            pages=pages,
            records=records,
            orphans=tuple(orphans),
            removed=removed,
            strays=strays,
            kept_because=kept_because,
        )
        self._report(result)
        return result

    async def _known(self) -> dict[str, int]:
        """Return what is known of every agent that is not revoked, as a hash by its id.

        Revoked agents are no orphans: their tombstones end in their own time.
        """
        return {
            entry.agent.agent_id: hash(entry)
            async for entry in everybody(self._registry)
            if entry.record.state is not AgentState.REVOKED
        }

    async def _read(self) -> tuple[set[str], int, int]:
        """Take all of the hub's records; return the ids, how many pages and how many records."""
        listed: set[str] = set()
        pages = records = 0
        cursor, more = "", True
        while more:
            if pages >= self._pages_max:
                raise TemporaryHubError(
                    f"the hub's list of agents does not end after {pages} pages of "
                    f"{self._page_size}: look at its cursors, or raise pages_max"
                )
            page = await self._hub.agents_since(cursor, self._page_size)
            for record in page.agents:
                await self._directory.put(record)
                listed.add(record.agent_id)
            pages += 1
            records += len(page.agents)
            more = page.more
            if more and page.next_since in ("", cursor):
                raise TemporaryHubError(
                    f"the hub says there is more after page {pages} and gives the cursor "
                    f"{page.next_since!r} again: its list cannot be read to the end"
                )
            cursor = page.next_since
        return listed, pages, records

    async def _entry(self, agent_id: str, entry_hash: int) -> AgentEntry | None:
        """Return an agent's entry when it is what it was before the reading."""
        entry = await self._registry.get(agent_id)
        return entry if entry is not None and hash(entry) == entry_hash else None

    def _doubt(self, *, orphans: int, known: int, listed: int) -> str | None:
        if not listed and known:
            return "the hub lists no agent at all"
        if orphans > self._orphan_share_max * known:
            return (
                f"{orphans} of {known} agents would be removed, more than the share of "
                f"{self._orphan_share_max:g}"
            )
        return None

    async def _remove(self, agent_id: str, entry_hash: int) -> bool:
        entry = await self._entry(agent_id, entry_hash)
        if entry is None:
            return False
        token_hash = entry.record.token_hash or entry.record.prev_token_hash
        if token_hash is not None:
            record = await self._hub.agent_by_token_hash(token_hash)
            if record is not None:
                _log.error(
                    "hub did not list an agent whose token it knows",
                    extra={"agent_id": agent_id},
                )
                await self._directory.put(record)
                return False
        removed = await self._directory.delete_orphan(entry)
        if removed:
            self._metrics.inc(REGISTRY_ORPHANS_REMOVED)
        return removed

    def _report(self, result: FullSyncResult) -> None:
        self._metrics.set(REGISTRY_ORPHANS, len(result.orphans))
        extra = {
            "records": result.records,
            "pages": result.pages,
            "orphans": len(result.orphans),
            "removed": result.removed,
            "strays": result.strays,
        }
        if not result.orphans:
            _log.info("read all agents of the hub", extra=extra)
            return
        extra_ids = {"agent_ids": list(result.orphans[:_SHOWN_MAX])}
        if result.kept_because is not None:
            _log.error(
                "hub's list of agents is in doubt, nobody is removed",
                extra={**extra, **extra_ids, "reason": result.kept_because},
            )
        else:
            _log.warning("the hub lists some agents no more", extra={**extra, **extra_ids})
