"""The registry of one process."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict

import attrs

from ahcollector.presence.base import AgentRef
from ahcollector.registry.base import (
    AgentEntry,
    Put,
    RegistryCounts,
    ScanPage,
    TokenEntry,
    admits,
    settled,
    token_entries,
)
from ahwire import AgentRecord
from ahwire.hub import AgentState

__all__ = ["MemoryRegistry", "RegistryImage"]


@attrs.frozen(kw_only=True)
class RegistryImage:
    """Everything a memory registry knows, to be kept over a restart.

    Attributes:
        agents: Each agent's entry.
        tombstones: Hashes of revoked agents that their records do not name: hash to agent id.
        cursor: Where following the hub goes on.
        full_sync_at: When all agents of the hub were last read, Unix seconds; None: never.
    """

    agents: tuple[AgentEntry, ...]
    tombstones: tuple[tuple[str, str], ...]
    cursor: str
    full_sync_at: float | None = None


def _within(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and since <= now < since + seconds


class MemoryRegistry:
    """`Registry` in dictionaries. It lives in one event loop and never waits.

    It is as large as what the hub lists; what strangers send never enters it. `changes` rises with
    each change, so that a snapshot knows when to be written.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._agents: dict[str, AgentEntry] = {}
        self._tokens: dict[str, TokenEntry] = {}
        self._hashes: defaultdict[str, set[str]] = defaultdict(set)
        self._servers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._companies: defaultdict[str, set[str]] = defaultdict(set)
        self._cursor = ""
        self._full_sync_at: float | None = None
        self._full_sync_began: float | None = None
        self._walk: list[str] = []

    async def lookup(self, token_hash: str) -> TokenEntry | None:
        """Return what a token hash leads to."""
        return self._tokens.get(token_hash)

    async def put(self, record: AgentRecord, *, now: float, renewal: bool = False) -> Put:
        """Take a record by the law of versions."""
        known = self._agents.get(record.agent_id)
        if not admits(known, record):
            assert known is not None
            return Put(applied=False, before=known, after=known)
        record = settled(known, record, renewal=renewal)
        revoked = record.state is AgentState.REVOKED
        since = known.revoked_at if known is not None else None
        entry = AgentEntry(
            record=record,
            newest_version=max(record.version, known.newest_version if known else 0),
            revoked_at=(now if since is None else since) if revoked else None,
        )
        self._set(entry, keep_hashes=revoked)
        return Put(applied=True, before=known, after=entry)

    async def revoke(self, agent_id: str, *, now: float) -> AgentEntry | None:
        """Revoke an agent; its hashes become tombstones."""
        known = self._agents.get(agent_id)
        if known is None or known.record.state is AgentState.REVOKED:
            return known
        entry = attrs.evolve(
            known, record=attrs.evolve(known.record, state=AgentState.REVOKED), revoked_at=now
        )
        self._set(entry, keep_hashes=True)
        return entry

    async def get(self, agent_id: str) -> AgentEntry | None:
        """Return one agent's entry."""
        return self._agents.get(agent_id)

    async def by_server(self, company_id: str, server_id: str) -> tuple[AgentEntry, ...]:
        """Return a server's agents."""
        ids = self._servers.get((company_id, server_id), set())
        return tuple(self._agents[agent_id] for agent_id in sorted(ids))

    async def scan(
        self, *, cursor: str = "", company_id: str | None = None, limit: int = 500
    ) -> ScanPage:
        """Return a page of all agents, or of one company's, by agent id."""
        if company_id is not None:
            ids = sorted(self._companies.get(company_id, ()))
        else:
            # Sorted once a walk; who comes during it may be missing, as the protocol says.
            if not cursor:
                self._walk = sorted(self._agents)
            ids = self._walk
        start = bisect_right(ids, cursor)
        page = ids[start : start + limit]
        return ScanPage(
            entries=tuple(self._agents[one] for one in page if one in self._agents),
            cursor=page[-1] if start + limit < len(ids) else "",
        )

    async def delete_agent(self, agent_id: str, *, newest_version: int) -> AgentRef | None:
        """Forget one agent, unless a newer version of it came."""
        known = self._agents.get(agent_id)
        if known is None or known.newest_version > newest_version:
            return None
        return self._forget({agent_id})[0]

    async def delete_server(self, company_id: str, server_id: str) -> tuple[AgentRef, ...]:
        """Forget a server's agents."""
        return self._forget(self._servers.get((company_id, server_id), set()))

    async def delete_company(self, company_id: str) -> tuple[AgentRef, ...]:
        """Forget a company's agents."""
        return self._forget(self._companies.get(company_id, set()))

    async def count(self) -> RegistryCounts:
        """Count agents by state."""
        states = Counter(entry.record.state for entry in self._agents.values())
        return RegistryCounts(
            active=states[AgentState.ACTIVE],
            pending=states[AgentState.PENDING],
            revoked=states[AgentState.REVOKED],
        )

    async def company_counts(self) -> dict[str, int]:
        """Count active agents by company."""
        return dict(
            Counter(
                entry.record.company_id
                for entry in self._agents.values()
                if entry.record.state is AgentState.ACTIVE
            )
        )

    async def sweep(self, *, revoked_before: float) -> int:
        """Forget agents revoked long ago."""
        old = {
            agent_id
            for agent_id, entry in self._agents.items()
            if entry.revoked_at is not None and entry.revoked_at < revoked_before
        }
        return len(self._forget(old))

    async def cursor(self) -> str:
        """Return where following the hub goes on."""
        return self._cursor

    async def set_cursor(self, cursor: str) -> None:
        """Remember where following the hub goes on."""
        if cursor != self._cursor:
            self._cursor = cursor
            self.changes += 1

    async def begin_full_sync(
        self, *, now: float, interval_seconds: float, claim_seconds: float
    ) -> bool:
        """Return whether the caller is to read all agents of the hub now."""
        if _within(self._full_sync_at, now, interval_seconds):
            return False
        if _within(self._full_sync_began, now, claim_seconds):
            return False
        self._full_sync_began = now
        return True

    async def end_full_sync(self, *, now: float) -> None:
        """Remember when all agents of the hub were read."""
        self._full_sync_at, self._full_sync_began = now, None
        self.changes += 1

    def active_agents(self) -> tuple[AgentRef, ...]:
        """Return all agents that may send."""
        return tuple(
            entry.agent
            for entry in self._agents.values()
            if entry.record.state is AgentState.ACTIVE
        )

    def image(self) -> RegistryImage:
        """Return all there is, as one value."""
        return RegistryImage(
            agents=tuple(self._agents.values()),
            tombstones=tuple(
                (token_hash, entry.agent.agent_id)
                for token_hash, entry in self._tokens.items()
                if token_hash not in token_entries(self._agents[entry.agent.agent_id].record)
            ),
            cursor=self._cursor,
            full_sync_at=self._full_sync_at,
        )

    def restore(self, image: RegistryImage) -> None:
        """Replace all there is by an image."""
        self._forget(set(self._agents))
        for entry in image.agents:
            self._set(entry, keep_hashes=False)
        for token_hash, agent_id in image.tombstones:
            if agent_id in self._agents and token_hash not in self._tokens:
                self._point(token_hash, agent_id)
        self._cursor = image.cursor
        self._full_sync_at = image.full_sync_at

    def _set(self, entry: AgentEntry, *, keep_hashes: bool) -> None:
        agent = entry.agent
        # Taken out and put in again, so that an image has the agents in the order of their changes:
        # should two of them claim one hash, restoring gives it to the same one.
        known = self._agents.pop(agent.agent_id, None)
        if known is not None:
            self._unindex(known.agent)
        self._agents[agent.agent_id] = entry
        self._servers[agent.company_id, agent.server_id].add(agent.agent_id)
        self._companies[agent.company_id].add(agent.agent_id)
        fresh = token_entries(entry.record)
        for token_hash in self._hashes[agent.agent_id] - fresh.keys():
            if keep_hashes:
                self._point(token_hash, agent.agent_id)
            else:
                self._unpoint(token_hash)
        for token_hash, token in fresh.items():
            if entry.revoked_at is not None and self._is_of_another(token_hash, agent.agent_id):
                continue
            self._unpoint(token_hash)
            self._tokens[token_hash] = token
            self._hashes[agent.agent_id].add(token_hash)
        self.changes += 1

    def _is_of_another(self, token_hash: str, agent_id: str) -> bool:
        token = self._tokens.get(token_hash)
        return token is not None and token.agent.agent_id != agent_id

    def _point(self, token_hash: str, agent_id: str) -> None:
        """Make a hash that no record names any more lead to its revoked agent."""
        entry = self._agents[agent_id]
        self._tokens[token_hash] = TokenEntry(
            agent=entry.agent,
            state=AgentState.REVOKED,
            expires_at=None,
            version=entry.newest_version,
        )
        self._hashes[agent_id].add(token_hash)

    def _unpoint(self, token_hash: str) -> None:
        token = self._tokens.pop(token_hash, None)
        if token is not None:
            self._hashes[token.agent.agent_id].discard(token_hash)

    def _unindex(self, agent: AgentRef) -> None:
        server = agent.company_id, agent.server_id
        self._servers[server].discard(agent.agent_id)
        if not self._servers[server]:
            del self._servers[server]
        self._companies[agent.company_id].discard(agent.agent_id)
        if not self._companies[agent.company_id]:
            del self._companies[agent.company_id]

    def _forget(self, agent_ids: set[str]) -> tuple[AgentRef, ...]:
        gone = []
        for agent_id in sorted(agent_ids):
            entry = self._agents.pop(agent_id)
            self._unindex(entry.agent)
            for token_hash in tuple(self._hashes.pop(agent_id, ())):
                del self._tokens[token_hash]
            gone.append(entry.agent)
            self.changes += 1
        return tuple(gone)
