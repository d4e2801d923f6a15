"""What one node remembers of a shared registry, and how it forgets in time.

The bound is `ttl_seconds`: no look-up is answered from an entry that was read longer ago. Within it
pushed changes drop what they name, so a revocation counts everywhere as soon as its message is
there; only when the message is lost, the bound counts. While changes may be missed nothing new is
trusted longer either, and when they are heard again everything is dropped.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable

import attrs

from ahcollector.clock import AsyncClock
from ahcollector.presence.base import AgentRef
from ahcollector.registry.base import (
    AgentEntry,
    Change,
    ChangeFeed,
    Put,
    Registry,
    RegistryCounts,
    ScanPage,
    TokenEntry,
    token_entries,
)
from ahcollector.registry.directory import NegativeCache
from ahwire import AgentRecord
from ahwire.hub import AgentState

__all__ = ["CachedRegistry"]

_log = logging.getLogger("ahcollector.registry")

_LATELY_MAX = 10_000


@attrs.frozen(kw_only=True)
class _Kept:
    entry: TokenEntry
    until: float


class CachedRegistry:
    """`Registry` that remembers look-ups of another one.

    Writes go through, and what they touched is forgotten here before they return, also when they
    raised: then they may have been done. Other nodes hear of them through `feed`, and this one of
    theirs. A look-up that was under way while something was forgotten is not remembered, because
    it may have read what was before.

    Bounded: the entries used least lately go (use counts from half of the bound on).

    Args:
        registry: Where identities are kept.
        negative: Token hashes the hub did not know; those that changes name leave it.
        clock: Time.
        feed: Tells what other nodes changed, usually the registry itself; None: there are none.
        ttl_seconds: How long an entry is good.
        entries_max: How many there are at most.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        negative: NegativeCache,
        clock: AsyncClock,
        feed: ChangeFeed | None = None,
        ttl_seconds: float = 15.0,
        entries_max: int = 200_000,
    ) -> None:
        self._registry = registry
        self._negative = negative
        self._clock = clock
        self._feed = feed
        self._ttl_seconds = ttl_seconds
        self._entries_max = entries_max
        # Keeping the order of use costs as much as the look-up, and nobody has to go before it is
        # full: below that it is the order of reading.
        self._crowded_above = entries_max // 2
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._hashes: dict[str, tuple[str, ...]] = {}
        self._forgotten = 0
        self._doubted_before = 0
        # What was forgotten lately and at which count, for look-ups that are under way.
        self._lately: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many entries there are, those past their time too."""
        return len(self._kept)

    async def run(self) -> None:
        """Hear what other nodes change, until cancelled."""
        if self._feed is not None:
            await self._feed.changes(changed=self.forget, doubt=self.forget_all)

    def cached(self, token_hash: str, *, now: float) -> TokenEntry | None:
        """Return what is remembered of a hash and still good at `now` (monotonic seconds)."""
        kept = self._kept.get(token_hash)
        if kept is None:
            return None
        if now >= kept.until:
            self._drop(token_hash)
            return None
        if len(self._kept) > self._crowded_above:
            self._kept.move_to_end(token_hash)
        return kept.entry

    def mark(self) -> int:
        """Return the moment in the row of what is forgotten, for `remember`."""
        return self._forgotten

    def is_current(self, token_hash: str, entry: TokenEntry, *, mark: int) -> bool:
        """Return whether nothing that the entry rests on was forgotten since `mark`."""
        return (
            mark >= self._doubted_before
            and self._lately.get("t" + token_hash, 0) <= mark
            and self._lately.get("a" + entry.agent.agent_id, 0) <= mark
        )

    def remember(self, token_hash: str, entry: TokenEntry, *, read_at: float, mark: int) -> None:
        """Remember what a hash leads to.

        Args:
            token_hash: The hash.
            entry: What it leads to.
            read_at: Monotonic seconds before it was read; its time runs from then on.
            mark: What `mark` gave before it was read; when this hash or agent was forgotten since,
                it may be old, and is not remembered.
        """
        if not self.is_current(token_hash, entry, mark=mark):
            return
        self._drop(token_hash)
        self._kept[token_hash] = _Kept(entry=entry, until=read_at + self._ttl_seconds)
        agent_id = entry.agent.agent_id
        self._hashes[agent_id] = (*self._hashes.get(agent_id, ()), token_hash)
        if len(self._kept) > self._entries_max:
            self._drop(next(iter(self._kept)))

    def forget(self, change: Change) -> None:
        """Forget what a change names, unknown tokens too."""
        self._forgotten += 1
        for agent_id in change.agents:
            self._note("a" + agent_id)
            for token_hash in self._hashes.get(agent_id, ()):
                self._drop(token_hash)
        for token_hash in change.hashes:
            self._note("t" + token_hash)
            self._drop(token_hash)
            self._negative.forget(token_hash)

    def forget_all(self) -> None:
        """Forget everything, because changes may have been missed."""
        self._forgotten += 1
        self._doubted_before = self._forgotten
        if self._kept:
            _log.info("registry cache is dropped", extra={"entries": len(self._kept)})
        self._kept.clear()
        self._hashes.clear()
        self._lately.clear()
        self._negative.clear()

    def _note(self, what: str) -> None:
        self._lately[what] = self._forgotten
        self._lately.move_to_end(what)
        if len(self._lately) > _LATELY_MAX:
            # Look-ups older than what is dropped here cannot be judged any more.
            self._doubted_before = max(self._doubted_before, self._lately.popitem(last=False)[1])

    async def lookup(self, token_hash: str) -> TokenEntry | None:
        """Return what a token hash leads to; at most `ttl_seconds` old."""
        mark, read_at = self._forgotten, self._clock.monotonic()
        entry = self.cached(token_hash, now=read_at)
        if entry is not None:
            return entry
        entry = await self._registry.lookup(token_hash)
        if entry is not None:
            self.remember(token_hash, entry, read_at=read_at, mark=mark)
        return entry

    async def put(self, record: AgentRecord, *, now: float, renewal: bool = False) -> Put:
        """Take a record; one that was there already leaves what is remembered."""
        put: Put | None = None
        try:
            put = await self._registry.put(record, now=now, renewal=renewal)
            return put
        finally:
            hashes = token_entries(record).keys()
            if put is None or put.before != put.after or self._leads_elsewhere(record, hashes):
                self._changed((record.agent_id,), hashes)

    async def revoke(self, agent_id: str, *, now: float) -> AgentEntry | None:
        """Revoke an agent."""
        try:
            return await self._registry.revoke(agent_id, now=now)
        finally:
            self._changed((agent_id,))

    async def get(self, agent_id: str) -> AgentEntry | None:
        """Return one agent's entry, from the registry itself."""
        return await self._registry.get(agent_id)

    async def by_server(self, company_id: str, server_id: str) -> tuple[AgentEntry, ...]:
        """Return a server's agents, from the registry itself."""
        return await self._registry.by_server(company_id, server_id)

    async def scan(
        self, *, cursor: str = "", company_id: str | None = None, limit: int = 500
    ) -> ScanPage:
        """Return a page of agents, from the registry itself."""
        return await self._registry.scan(cursor=cursor, company_id=company_id, limit=limit)

    async def delete_agent(self, agent_id: str, *, newest_version: int) -> AgentRef | None:
        """Forget one agent."""
        try:
            return await self._registry.delete_agent(agent_id, newest_version=newest_version)
        finally:
            self._changed((agent_id,))

    async def delete_server(self, company_id: str, server_id: str) -> tuple[AgentRef, ...]:
        """Forget a server's agents."""
        try:
            return await self._registry.delete_server(company_id, server_id)
        finally:
            self._drop_where(company_id, server_id)

    async def delete_company(self, company_id: str) -> tuple[AgentRef, ...]:
        """Forget a company's agents."""
        try:
            return await self._registry.delete_company(company_id)
        finally:
            self._drop_where(company_id, None)

    async def count(self) -> RegistryCounts:
        """Count agents by state."""
        return await self._registry.count()

    async def company_counts(self) -> dict[str, int]:
        """Count active agents by company."""
        return await self._registry.company_counts()

    async def sweep(self, *, revoked_before: float) -> int:
        """Forget agents revoked long ago."""
        try:
            return await self._registry.sweep(revoked_before=revoked_before)
        finally:
            self._changed(
                {
                    kept.entry.agent.agent_id
                    for kept in self._kept.values()
                    if kept.entry.state is AgentState.REVOKED
                }
            )

    async def cursor(self) -> str:
        """Return where following the hub goes on."""
        return await self._registry.cursor()

    async def set_cursor(self, cursor: str) -> None:
        """Remember where following the hub goes on."""
        await self._registry.set_cursor(cursor)

    async def begin_full_sync(
        self, *, now: float, interval_seconds: float, claim_seconds: float
    ) -> bool:
        """Return whether the caller is to read all agents of the hub now."""
        return await self._registry.begin_full_sync(
            now=now, interval_seconds=interval_seconds, claim_seconds=claim_seconds
        )

    async def end_full_sync(self, *, now: float) -> None:
        """Remember when all agents of the hub were read."""
        await self._registry.end_full_sync(now=now)

    def _changed(self, agents: Iterable[str], hashes: Iterable[str] = ()) -> None:
        self.forget(Change(agents=frozenset(agents), hashes=frozenset(hashes)))

    def _leads_elsewhere(self, record: AgentRecord, hashes: Iterable[str]) -> bool:
        """Return whether a hash of the record is remembered as another agent's."""
        kept = (self._kept.get(token_hash) for token_hash in hashes)
        return any(one is not None and one.entry.agent.agent_id != record.agent_id for one in kept)

    def _drop_where(self, company_id: str, server_id: str | None) -> None:
        # Looked for by place and not by whom the registry named: a call that raised named nobody.
        self._changed(
            {
                kept.entry.agent.agent_id
                for kept in self._kept.values()
                if kept.entry.agent.company_id == company_id
                and server_id in (None, kept.entry.agent.server_id)
            }
        )

    def _drop(self, token_hash: str) -> None:
        kept = self._kept.pop(token_hash, None)
        if kept is None:
            return
        agent_id = kept.entry.agent.agent_id
        left = tuple(one for one in self._hashes[agent_id] if one != token_hash)
        if left:
            self._hashes[agent_id] = left
        else:
            del self._hashes[agent_id]
