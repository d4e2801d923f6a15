"""What every `Registry` does."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import attrs

from ahcollector.registry.base import Registry, Verdict
from ahwire import AgentRecord
from ahwire.hub import AgentState

__all__ = ["RegistryContract"]

_NOW = 1_790_000_000.0
_MOMENT = datetime.fromtimestamp(_NOW, UTC)


def _hash(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


def _record(
    agent_id: str = "a1",
    *,
    version: int = 1,
    word: str | None = "t1",
    state: AgentState = AgentState.ACTIVE,
    company_id: str = "acme",
    server_id: str = "s1",
) -> AgentRecord:
    return AgentRecord(
        agent_id=agent_id,
        company_id=company_id,
        server_id=server_id,
        state=state,
        token_hash=None if word is None else _hash(word),
        version=version,
    )


async def _verdict(registry: Registry, word: str, at: datetime = _MOMENT) -> Verdict | None:
    entry = await registry.lookup(_hash(word))
    return None if entry is None else entry.verdict(at)


class RegistryContract:
    """The suite; derive from it and give `new`."""

    async def new(self) -> Registry:
        """Return an empty registry."""
        raise NotImplementedError

    async def test_what_was_put_is_found_by_its_hash_alone(self) -> None:
        """A token leads to its agent, and nothing else does."""
        registry = await self.new()
        put = await registry.put(_record(), now=_NOW)
        assert put.applied
        assert put.before is None
        entry = await registry.lookup(_hash("t1"))
        assert entry is not None
        assert (entry.agent.agent_id, entry.agent.company_id, entry.agent.server_id) == (
            "a1",
            "acme",
            "s1",
        )
        assert entry.verdict(_MOMENT) is Verdict.VALID
        assert await registry.lookup(_hash("t2")) is None
        assert await registry.lookup("") is None

    async def test_an_older_version_changes_nothing(self) -> None:
        """Version 3 never overwrites version 5; the same version may be put again."""
        registry = await self.new()
        await registry.put(_record(version=5, word="new"), now=_NOW)
        put = await registry.put(_record(version=3, word="old"), now=_NOW)
        assert not put.applied
        assert put.after.record.version == 5
        assert await _verdict(registry, "old") is None
        assert await _verdict(registry, "new") is Verdict.VALID
        assert (await registry.put(_record(version=5, word="new"), now=_NOW)).applied

    async def test_version_0_applies_and_the_newest_version_stays_known(self) -> None:
        """An enrolment without a version takes its token in, and old records stay out."""
        registry = await self.new()
        await registry.put(_record(version=5, word="five"), now=_NOW)
        put = await registry.put(_record(version=0, word="zero"), now=_NOW)
        assert put.applied
        assert put.after.newest_version == 5
        assert await _verdict(registry, "zero") is Verdict.VALID
        assert await _verdict(registry, "five") is None
        assert not (await registry.put(_record(version=4, word="four"), now=_NOW)).applied
        assert (await registry.put(_record(version=6, word="six"), now=_NOW)).applied

    async def test_a_revoked_hash_is_a_tombstone_and_only_a_higher_version_revives(self) -> None:
        """Revoked answers revoked, not unknown; version 0 and the same version do not revive."""
        registry = await self.new()
        await registry.put(_record(version=2), now=_NOW)
        entry = await registry.revoke("a1", now=_NOW + 1)
        assert entry is not None
        assert entry.revoked_at == _NOW + 1
        assert await _verdict(registry, "t1") is Verdict.REVOKED
        assert await registry.revoke("a1", now=_NOW + 9) == entry
        for version in (0, 1, 2):
            assert not (await registry.put(_record(version=version), now=_NOW)).applied
            assert await _verdict(registry, "t1") is Verdict.REVOKED
        assert (await registry.put(_record(version=3, word="t3"), now=_NOW)).applied
        assert await _verdict(registry, "t3") is Verdict.VALID
        assert await _verdict(registry, "t1") is None
        assert await registry.revoke("nobody", now=_NOW) is None

    async def test_a_revoked_record_without_hashes_buries_those_that_were_known(self) -> None:
        """The hub need not name the hashes of an agent that it revoked."""
        registry = await self.new()
        await registry.put(_record(version=1), now=_NOW)
        await registry.put(_record(version=2, word=None, state=AgentState.REVOKED), now=_NOW)
        assert await _verdict(registry, "t1") is Verdict.REVOKED

    async def test_the_previous_token_works_until_its_expiry(self) -> None:
        """And not a moment longer; without an expiry it has expired."""
        registry = await self.new()
        end = _MOMENT + timedelta(hours=24)
        record = attrs.evolve(
            _record(version=2, word="new"),
            prev_token_hash=_hash("old"),
            prev_token_expires_at=end,
        )
        await registry.put(record, now=_NOW)
        assert await _verdict(registry, "old") is Verdict.VALID
        assert await _verdict(registry, "old", end - timedelta(microseconds=1)) is Verdict.VALID
        assert await _verdict(registry, "old", end) is Verdict.UNUSABLE
        assert await _verdict(registry, "new", end) is Verdict.VALID
        await registry.put(attrs.evolve(record, prev_token_expires_at=None, version=3), now=_NOW)
        assert await _verdict(registry, "old") is Verdict.UNUSABLE

    async def test_pending_and_expired_tokens_are_unusable(self) -> None:
        """They are known, and no good."""
        registry = await self.new()
        await registry.put(_record("p", word="p", state=AgentState.PENDING), now=_NOW)
        await registry.put(attrs.evolve(_record("e", word="e"), expires_at=_MOMENT), now=_NOW)
        assert await _verdict(registry, "p") is Verdict.UNUSABLE
        assert await _verdict(registry, "e") is Verdict.UNUSABLE
        assert await _verdict(registry, "e", _MOMENT - timedelta(seconds=1)) is Verdict.VALID

    async def test_servers_and_companies_are_kept_apart(self) -> None:
        """The same server id in two companies is two servers; deletes stay inside."""
        registry = await self.new()
        await registry.put(_record("a1", word="t1"), now=_NOW)
        await registry.put(_record("a2", word="t2"), now=_NOW)
        await registry.put(_record("a3", word="t3", server_id="s2"), now=_NOW)
        await registry.put(_record("b1", word="t4", company_id="globex"), now=_NOW)
        listed = await registry.by_server("acme", "s1")
        assert [entry.record.agent_id for entry in listed] == ["a1", "a2"]
        assert await registry.by_server("globex", "s2") == ()
        assert await registry.company_counts() == {"acme": 3, "globex": 1}
        gone = await registry.delete_server("acme", "s1")
        assert [agent.agent_id for agent in gone] == ["a1", "a2"]
        assert await _verdict(registry, "t1") is None
        assert await _verdict(registry, "t3") is Verdict.VALID
        assert [agent.agent_id for agent in await registry.delete_company("acme")] == ["a3"]
        assert await registry.delete_company("acme") == ()
        assert await _verdict(registry, "t4") is Verdict.VALID
        assert (await registry.count()).active == 1

    async def test_an_agent_that_moves_leaves_its_old_place(self) -> None:
        """It is listed at one server, in one company."""
        registry = await self.new()
        await registry.put(_record(version=1), now=_NOW)
        put = await registry.put(_record(version=2, company_id="globex"), now=_NOW)
        assert put.before is not None
        assert put.before.agent.company_id == "acme"
        assert await registry.by_server("acme", "s1") == ()
        assert len(await registry.by_server("globex", "s1")) == 1
        entry = await registry.lookup(_hash("t1"))
        assert entry is not None
        assert entry.agent.company_id == "globex"

    async def test_counts_and_sweep(self) -> None:
        """Agents revoked long ago are forgotten, others stay."""
        registry = await self.new()
        await registry.put(_record("a1", word="t1"), now=_NOW)
        await registry.put(_record("a2", word="t2", state=AgentState.PENDING), now=_NOW)
        await registry.put(_record("a3", word="t3"), now=_NOW)
        await registry.revoke("a3", now=_NOW)
        counts = await registry.count()
        assert (counts.active, counts.pending, counts.revoked) == (1, 1, 1)
        assert await registry.sweep(revoked_before=_NOW) == 0
        assert await _verdict(registry, "t3") is Verdict.REVOKED
        assert await registry.sweep(revoked_before=_NOW + 1) == 1
        assert await _verdict(registry, "t3") is None
        assert await registry.get("a3") is None
        assert await registry.get("a1") is not None

    async def test_the_cursor_is_kept(self) -> None:
        """It begins empty."""
        registry = await self.new()
        assert await registry.cursor() == ""
        await registry.set_cursor("c:17")
        assert await registry.cursor() == "c:17"
