"""Who is who: the registry's protocol, its values, and the law of versions.

A registry is a copy of what the hub owns. It knows tokens only by their SHA-256 (64 lower hex).

The law of versions, which every implementation keeps (`admits` below):

- A record with an older version never overwrites a newer one.
- Version 0 (an enrolment whose hub gave no version) applies, but the newest version seen stays
  remembered, and it never revives a revoked agent.
- A revoked agent comes back only with a version above the one it was revoked at.

- A version is one state of its agent: a record of the version and token that are known already
  leaves the previous token as it is (`settled` below). Only a renewal changes it, because the
  collector knows which token was shown and the hub does not: when an agent renews with its previous
  token, because the last answer was lost, that token stays good, although the hub's own record
  names the one that nobody ever received.

A hash leads to one agent: the one whose record named it last. A revoked agent takes no hash that
leads to another one, so that nobody's revocation stops somebody else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from enum import Enum
from typing import Protocol

import attrs

from ahcollector.presence.base import AgentRef
from ahwire import AgentRecord
from ahwire.hub import AgentState

__all__ = [
    "AgentEntry",
    "Change",
    "ChangeFeed",
    "Put",
    "Registry",
    "RegistryCounts",
    "ScanPage",
    "TokenEntry",
    "Verdict",
    "admits",
    "settled",
    "token_entries",
]


class Verdict(Enum):
    """What a token is good for at one instant."""

    VALID = "valid"
    UNUSABLE = "unusable"
    """Pending or expired: answered like an unknown token."""
    REVOKED = "revoked"


@attrs.frozen(kw_only=True)
class TokenEntry:
    """What one token hash leads to.

    Attributes:
        agent: Whose token it is.
        state: State of the agent.
        expires_at: When this token ends; None: never.
        version: Version of the record it came from.
    """

    agent: AgentRef
    state: AgentState
    expires_at: datetime | None
    version: int

    def verdict(self, now: datetime) -> Verdict:
        """Judge the token at `now` (aware)."""
        if self.state is AgentState.REVOKED:
            return Verdict.REVOKED
        if self.state is not AgentState.ACTIVE:
            return Verdict.UNUSABLE
        if self.expires_at is not None and now >= self.expires_at:
            return Verdict.UNUSABLE
        return Verdict.VALID


@attrs.frozen(kw_only=True)
class AgentEntry:
    """One agent as the registry knows it.

    Attributes:
        record: The record that applies now.
        newest_version: The newest version ever seen; may be above the record's (see version 0).
        revoked_at: When it was revoked here, Unix seconds; None while it is not.
    """

    record: AgentRecord
    newest_version: int
    revoked_at: float | None = None

    @property
    def agent(self) -> AgentRef:
        """Whose entry this is."""
        return ref_of(self.record)


@attrs.frozen(kw_only=True)
class Put:
    """What a `Registry.put` did.

    Attributes:
        applied: False when the record was older than what is known.
        before: The agent's entry before, None when it was unknown.
        after: The agent's entry now.
    """

    applied: bool
    before: AgentEntry | None
    after: AgentEntry


@attrs.frozen(kw_only=True)
class RegistryCounts:
    """How many agents are in which state.

    Attributes:
        active: Those that may send.
        pending: Those that the hub has not made active yet.
        revoked: Those that may not send any more.
    """

    active: int
    pending: int
    revoked: int


@attrs.frozen(kw_only=True)
class ScanPage:
    """A page of a walk through all agents.

    Attributes:
        entries: Agents, revoked ones too; may be empty although more follows.
        cursor: What to give for the next page; empty: this was the last one.
    """

    entries: tuple[AgentEntry, ...]
    cursor: str


@attrs.frozen(kw_only=True)
class Change:
    """What some process changed in a shared registry.

    Attributes:
        agents: Ids of agents that are not what they were.
        hashes: Token hashes that lead to somebody (else) now.
    """

    agents: frozenset[str]
    hashes: frozenset[str]


def ref_of(record: AgentRecord) -> AgentRef:
    """Return the identity in a record."""
    return AgentRef(
        agent_id=record.agent_id, company_id=record.company_id, server_id=record.server_id
    )


LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:01+00:00")
"""The end of a previous token that has none."""


def token_entries(record: AgentRecord) -> dict[str, TokenEntry]:
    """Return every token hash of a record and what it leads to.

    A previous token without an expiry has expired: keeping it too long would be the worse mistake.
    """
    entries: dict[str, TokenEntry] = {}
    if record.prev_token_hash:
        entries[record.prev_token_hash] = TokenEntry(
            agent=ref_of(record),
            state=record.state,
            expires_at=record.prev_token_expires_at or LONG_AGO,
            version=record.version,
        )
    if record.token_hash:
        entries[record.token_hash] = TokenEntry(
            agent=ref_of(record),
            state=record.state,
            expires_at=record.expires_at,
            version=record.version,
        )
    return entries


def admits(known: AgentEntry | None, record: AgentRecord) -> bool:
    """Return whether `record` may replace `known`, by the law of versions above."""
    if known is None:
        return True
    revoked = known.record.state is AgentState.REVOKED
    if revoked and record.state is not AgentState.REVOKED:
        return record.version > known.newest_version
    return record.version == 0 or record.version >= known.newest_version


def settled(known: AgentEntry | None, record: AgentRecord, *, renewal: bool) -> AgentRecord:
    """Return what is kept of a record that applies, by the law of versions above."""
    if (
        known is None
        or renewal
        or record.version == 0
        or record.version != known.record.version
        or record.token_hash != known.record.token_hash
        or known.record.prev_token_hash is None
    ):
        return record
    return attrs.evolve(
        record,
        prev_token_hash=known.record.prev_token_hash,
        prev_token_expires_at=known.record.prev_token_expires_at,
    )


class Registry(Protocol):
    """Identities by token hash and by agent.

    Every method may raise `RegistryError` when the store behind it gives no answer (the memory
    registry never does); a write that raised may or may not have been taken, and may be repeated:
    all writes are idempotent. A write is visible to every later read in this process.
    """

    async def lookup(self, token_hash: str) -> TokenEntry | None:
        """Return what a token hash leads to, tombstones included; None when it is unknown."""
        ...

    async def put(self, record: AgentRecord, *, now: float, renewal: bool = False) -> Put:
        """Take a record by the law of versions; `now` in Unix seconds dates a revocation.

        `renewal` says that the record names the token that was shown as its previous one.

        Hashes the agent had and the record does not name are forgotten; when the record is
        revoked they stay as tombstones.
        """
        ...

    async def revoke(self, agent_id: str, *, now: float) -> AgentEntry | None:
        """Revoke an agent: its hashes become tombstones. None when it is unknown.

        Repeating it changes nothing and returns the same entry.
        """
        ...

    async def get(self, agent_id: str) -> AgentEntry | None:
        """Return one agent's entry, a revoked one's too."""
        ...

    async def by_server(self, company_id: str, server_id: str) -> tuple[AgentEntry, ...]:
        """Return a server's agents, revoked ones too, ordered by agent id."""
        ...

    async def scan(
        self, *, cursor: str = "", company_id: str | None = None, limit: int = 500
    ) -> ScanPage:
        """Return a page of all agents, or of one company's, in no particular order.

        Who is there from the first page to the last is in one of them, and may be in two; who comes
        or goes meanwhile may be in one or not. A page holds about `limit` entries.
        """
        ...

    async def delete_agent(self, agent_id: str, *, newest_version: int) -> AgentRef | None:
        """Forget one agent, unless a newer version of it came; None: nothing was forgotten."""
        ...

    async def delete_server(self, company_id: str, server_id: str) -> tuple[AgentRef, ...]:
        """Forget a server's agents, tombstones too, and return whom."""
        ...

    async def delete_company(self, company_id: str) -> tuple[AgentRef, ...]:
        """Forget a company's agents, tombstones too, and return whom.

        Many agents may take several steps; a call that raised has forgotten some, and the next one
        goes on.
        """
        ...

    async def count(self) -> RegistryCounts:
        """Count agents by state."""
        ...

    async def company_counts(self) -> dict[str, int]:
        """Count active agents by company; companies without any are absent."""
        ...

    async def sweep(self, *, revoked_before: float) -> int:
        """Forget agents revoked before an instant (Unix seconds); return how many."""
        ...

    async def cursor(self) -> str:
        """Return where following the hub goes on; empty: from the beginning."""
        ...

    async def set_cursor(self, cursor: str) -> None:
        """Remember where following the hub goes on."""
        ...

    async def begin_full_sync(
        self, *, now: float, interval_seconds: float, claim_seconds: float
    ) -> bool:
        """Return whether the caller is to read all agents of the hub now.

        True when the last such reading ended `interval_seconds` ago or longer, and nobody else
        began one within `claim_seconds`; of several processes that ask, one gets it. Instants in
        the future, left by a clock that was wrong, hold nobody back.
        """
        ...

    async def end_full_sync(self, *, now: float) -> None:
        """Remember that all agents of the hub were read at `now` (Unix seconds)."""
        ...


async def everybody(registry: Registry, company_id: str | None = None) -> AsyncIterator[AgentEntry]:
    """Walk through all agents of a registry, or through one company's; see `Registry.scan`."""
    cursor, more = "", True
    while more:
        page = await registry.scan(cursor=cursor, company_id=company_id)
        for entry in page.entries:
            yield entry
        cursor = page.cursor
        more = bool(cursor)


class ChangeFeed(Protocol):
    """Tells of what other processes change in a shared registry."""

    async def changes(
        self, *, changed: Callable[[Change], None], doubt: Callable[[], None]
    ) -> None:
        """Call `changed` with each change, this process's own too, until cancelled.

        `doubt` is called whenever changes may have been missed: at the beginning, and each time the
        connection is back. It is called after new changes are heard again, so that what is read
        afterwards is covered by them.
        """
        ...
