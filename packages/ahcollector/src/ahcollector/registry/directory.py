"""The one way in which identities change: the registry first, then everything that follows it.

**Who left.** Everything that takes a server or a company away comes by here: the admin door, the
minute's sync, the full sync. So this is where a departure is noted (`ahcollector.departures`). It
keeps batches that were accepted before from being stored or judged, and ends alerts.

- A server or company that is *deleted* left with its series.
- A server of which no agent is left that may send now or later left without its series: its last
  agent was revoked, moved to another server, or was removed as an orphan. To revoke one of several
  agents ends nothing, and nor does one that is pending: it will send. A revoked agent counts as
  gone although the registry remembers it, as it does for presence: it never sends again under that
  record, silence of a host resolves no alert, and so nothing else would ever end those of its
  server.

A deletion is noted before the registry's change, so that a crash in between leaves nothing that
nobody knows of, and once more behind it, with the instant after which nobody can have been let in.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from ahcollector.clock import AsyncClock
from ahcollector.departures.base import Departure, Departures, ServerKey
from ahcollector.departures.memory import MemoryDepartures
from ahcollector.errors import DeparturesError, PresenceError, RegistryError
from ahcollector.presence.base import AgentRef, Presence, WatchRule
from ahcollector.registry.base import AgentEntry, Put, Registry, everybody, token_entries
from ahwire import AgentRecord
from ahwire.hub import AgentState

__all__ = ["NOT_FOLLOWED", "Directory", "NegativeCache"]

_log = logging.getLogger("ahcollector.registry")

REASON_REMOVED = "removed"

NOT_FOLLOWED: Final = (RegistryError, PresenceError, DeparturesError)
"""What `Directory.put` raises; who must answer an agent now or never goes on without it."""


class NegativeCache:
    """Token hashes that the hub does not know, for a while.

    Bounded: the oldest entry goes when a new one needs its place, so a flood of made-up tokens only
    costs look-ups, which are limited elsewhere.

    Args:
        ttl_seconds: How long an entry holds.
        entries_max: How many there are at most.
    """

    def __init__(self, *, ttl_seconds: float = 60.0, entries_max: int = 100_000) -> None:
        self._ttl_seconds = ttl_seconds
        self._entries_max = entries_max
        self._until: OrderedDict[str, float] = OrderedDict()

    def add(self, token_hash: str, *, now: float) -> None:
        """Remember a hash from `now` (monotonic seconds) on."""
        self._until.pop(token_hash, None)
        self._until[token_hash] = now + self._ttl_seconds
        if len(self._until) > self._entries_max:
            self._until.popitem(last=False)

    def holds(self, token_hash: str, *, now: float) -> bool:
        """Return whether the hash was found unknown within the last `ttl_seconds`."""
        until = self._until.get(token_hash)
        if until is None:
            return False
        if now >= until:
            del self._until[token_hash]
            return False
        return True

    def forget(self, token_hash: str) -> None:
        """Let the next look-up of the hash go to the hub."""
        self._until.pop(token_hash, None)

    def clear(self) -> None:
        """Let the next look-up of every hash go to the hub."""
        self._until.clear()


class Follower(Protocol):
    """Something else that must know when agents go away; see `Directory`."""

    def agent_gone(self, agent_id: str) -> None:
        """An agent was revoked or deleted. Quick, never fails."""
        ...


def _log_change(entry: AgentEntry) -> None:
    _log.info(
        "agent is %s now",
        entry.record.state.value,
        extra={"agent_id": entry.record.agent_id, "company_id": entry.record.company_id},
    )


class Directory:
    """Writes identities, and lets presence and the negative cache follow.

    Presence follows after the registry has taken the change. When presence gives no answer, its
    error reaches the caller, who may repeat the whole call.

    Args:
        registry: Where identities are kept.
        presence: Who is watched for silence.
        negative: Token hashes found unknown; a hash that becomes known leaves it.
        clock: Dates changes.
        interval_seconds: How often an agent sends that has not yet told its own interval; None:
            the presence's own default.
        rules: Returns what is set for a company's agents (`CompanySettingsCache.watch_rule`); None:
            nothing is.
        followers: Told of agents that go away.
        departures: Told of servers and companies that do; in memory by default.
    """

    def __init__(
        self,
        *,
        registry: Registry,
        presence: Presence,
        negative: NegativeCache,
        clock: AsyncClock,
        interval_seconds: float | None = None,
        rules: Callable[[str], WatchRule] | None = None,
        followers: tuple[Follower, ...] = (),
        departures: Departures | None = None,
    ) -> None:
        self._registry = registry
        self._presence = presence
        self._negative = negative
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._rules = rules
        self._followers = followers
        self._departures = departures if departures is not None else MemoryDepartures()
        # Where agents were whose move the registry has, and not yet all that follows it: the record
        # told again shows no move. Of calls that are under way, or failed and are to be repeated.
        self._moved_from: dict[str, dict[ServerKey, None]] = {}

    async def put(self, record: AgentRecord, *, renewal: bool = False) -> Put:
        """Take a record; what is older than the known one changes nothing.

        `renewal` as in `Registry.put`.

        Raises:
            RegistryError, PresenceError, DeparturesError: Not taken, or not followed; may be
                repeated.
        """
        now = self._clock.time()
        put = await self._registry.put(record, now=now, renewal=renewal)
        for token_hash in token_entries(record):
            self._negative.forget(token_hash)
        if not put.applied:
            return put
        agent = put.after.agent
        if put.before is not None and put.before.agent != agent:
            was = put.before.agent
            self._moved_from.setdefault(agent.agent_id, {})[was.company_id, was.server_id] = None
        moved_from = list(self._moved_from.get(agent.agent_id, ()))
        await self._note_emptied(put, moved_from)
        if put.after.record.state is AgentState.ACTIVE:
            if moved_from:
                # It moved to another company or server: nothing of it may stay in the old one.
                await self._presence.remove(agent.agent_id, now, REASON_REMOVED)
            await self._ensure(agent, now)
        else:
            await self._gone(agent, now)
        self._moved_from.pop(agent.agent_id, None)
        if put.before is None or put.before.record.state is not put.after.record.state:
            _log_change(put.after)
        return put

    async def revoke(self, agent_id: str) -> AgentEntry | None:
        """Revoke an agent; None when it is unknown."""
        now = self._clock.time()
        entry = await self._registry.revoke(agent_id, now=now)
        if entry is not None:
            await self._note_if_empty(
                entry.agent.company_id, entry.agent.server_id, is_told_again=True
            )
            await self._gone(entry.agent, now)
            _log_change(entry)
        return entry

    async def delete_server(self, company_id: str, server_id: str) -> tuple[AgentRef, ...]:
        """Forget a server's agents and return whom; may be repeated, as `delete_company`."""
        await self._note(company_id, server_id, keeps_series=False)
        for entry in await self._registry.by_server(company_id, server_id):
            await self._gone(entry.agent, self._clock.time())
        gone = await self._all_gone(await self._registry.delete_server(company_id, server_id))
        await self._note(company_id, server_id, keeps_series=False)
        return gone

    async def delete_company(self, company_id: str) -> tuple[AgentRef, ...]:
        """Forget a company's agents and return whom.

        Presence ends its watch first: when this call does not end, everybody it has not yet
        forgotten is still in the registry, and repeating it leaves nobody watched for ever.
        """
        await self._note(company_id, None, keeps_series=False)
        async for entry in everybody(self._registry, company_id):
            await self._gone(entry.agent, self._clock.time())
        # And once more: some may have been heard in between.
        gone = await self._all_gone(await self._registry.delete_company(company_id))
        await self._note(company_id, None, keeps_series=False)
        return gone

    async def delete_orphan(self, orphan: AgentEntry) -> bool:
        """Forget an agent that the hub lists no more; False when it changed meanwhile, and stays.

        It is unknown then, not revoked: should the hub have been wrong, its token is looked up
        there when it is used again.
        """
        agent, now = orphan.agent, self._clock.time()
        await self._note_if_empty(agent.company_id, agent.server_id, without=agent.agent_id)
        await self._presence.remove(agent.agent_id, now, REASON_REMOVED)
        gone = await self._registry.delete_agent(
            agent.agent_id, newest_version=orphan.newest_version
        )
        if gone is not None:
            await self._gone(gone, now)
            await self._note_if_empty(gone.company_id, gone.server_id)
            return True
        known = await self._registry.get(agent.agent_id)
        if known is not None and known.record.state is AgentState.ACTIVE:
            await self._ensure(known.agent, now)
        return False

    async def ensure_all(self, agents: Iterable[AgentRef]) -> None:
        """Make sure that presence watches these agents.

        For the start of a process: agents that the registry's snapshot has and presence's has not
        would otherwise be silent unnoticed until they speak.
        """
        now = self._clock.time()
        for agent in agents:
            await self._ensure(agent, now)

    async def ensure_known(self) -> int:
        """Make sure that presence watches every active agent of the registry; return how many.

        For the start of a process whose presence may have lost what the registry has.
        """
        count = 0
        async for entry in everybody(self._registry):
            if entry.record.state is AgentState.ACTIVE:
                await self._ensure(entry.agent, self._clock.time())
                count += 1
        return count

    async def end_stray_watches(self, living: Collection[str]) -> int:
        """End presence's watch of agents that may not send; return how many there were.

        Such a watch is left when a process died between the registry's change and presence's, or
        when a node that had not yet heard of a revocation took one more sign of life. Nobody would
        ever end it, and its silence would be told as an agent that is down. As presence comes last,
        such a watch also tells of a server whose departure may not have been noted.

        Args:
            living: Ids of agents that are known to be rightly watched; about the others the
                registry is asked.
        """
        after, ended = "", 0
        while page := await self._presence.agents(after=after):
            for watched in page:
                after = watched.agent.agent_id
                if after not in living and await self._is_stray(after):
                    await self._note_if_empty(
                        watched.agent.company_id, watched.agent.server_id, is_told_again=True
                    )
                    await self._gone(watched.agent, self._clock.time())
                    ended += 1
        return ended

    async def _ensure(self, agent: AgentRef, now: float) -> None:
        rule = None if self._rules is None else self._rules(agent.company_id)
        await self._presence.ensure(agent, now, self._interval_seconds, rule=rule)

    async def _is_stray(self, agent_id: str) -> bool:
        entry = await self._registry.get(agent_id)
        return entry is None or entry.record.state is not AgentState.ACTIVE

    async def _note_emptied(self, put: Put, moved_from: Iterable[ServerKey]) -> None:
        """Note the servers that a record which was taken may have left without an agent."""
        agent = put.after.agent
        for company_id, server_id in moved_from:
            await self._note_if_empty(company_id, server_id)
        if put.before is not None and put.after.record.state is AgentState.REVOKED:
            await self._note_if_empty(agent.company_id, agent.server_id, is_told_again=True)

    async def _note_if_empty(
        self,
        company_id: str,
        server_id: str,
        *,
        without: str | None = None,
        is_told_again: bool = False,
    ) -> None:
        """Note that a server left when none of its agents may send, `without` one of them.

        What `is_told_again`, as each full sync tells revocations, ends nothing that ended before.
        """
        entries = [
            entry
            for entry in await self._registry.by_server(company_id, server_id)
            if entry.agent.agent_id != without
        ]
        if any(entry.record.state is not AgentState.REVOKED for entry in entries):
            return
        if is_told_again:
            revoked_at = max((entry.revoked_at or 0.0 for entry in entries), default=0.0)
            left = await self._departures.of([(company_id, server_id)])
            known = left.get((company_id, server_id))
            if known is not None and known.at_ms >= int(revoked_at * 1000):
                return
        await self._note(company_id, server_id, keeps_series=True)

    async def _note(self, company_id: str, server_id: str | None, *, keeps_series: bool) -> None:
        await self._departures.note(
            Departure(
                company_id=company_id,
                server_id=server_id,
                at=self._clock.time(),
                keeps_series=keeps_series,
            )
        )

    async def _all_gone(self, agents: tuple[AgentRef, ...]) -> tuple[AgentRef, ...]:
        now = self._clock.time()
        for agent in agents:
            await self._gone(agent, now)
        return agents

    async def _gone(self, agent: AgentRef, now: float) -> None:
        await self._presence.remove(agent.agent_id, now, REASON_REMOVED)
        for follower in self._followers:
            follower.agent_gone(agent.agent_id)
