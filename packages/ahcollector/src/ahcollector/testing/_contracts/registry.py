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
        assert (await registry.put(_record(version=10, word="ten"), now=_NOW)).applied
        assert not (await registry.put(_record(version=9, word="nine"), now=_NOW)).applied

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

    async def test_the_same_ids_in_another_place_are_another_place(self) -> None:
        """Ids may hold colons, dots and each other; no two pairs of them share anything."""
        registry = await self.new()
        places = [
            ("a:b", "c"),
            ("a", "b:c"),
            ("a", "b.c"),
            ("a.b", "c"),
            ("a:", "b:c"),
            ("a::b", "c"),
            ("a", "b"),
            ("A", "b"),
        ]
        for number, (company_id, server_id) in enumerate(places):
            record = _record(
                f"x:{number}", word=f"w{number}", company_id=company_id, server_id=server_id
            )
            await registry.put(record, now=_NOW)
        for number, place in enumerate(places):
            listed = await registry.by_server(*place)
            assert [entry.record.agent_id for entry in listed] == [f"x:{number}"]
        assert [one.agent_id for one in await registry.delete_server("a", "b:c")] == ["x:1"]
        assert [one.agent_id for one in await registry.delete_company("a:b")] == ["x:0"]
        assert await registry.delete_server("a", "") == ()
        assert (await registry.count()).active == len(places) - 2

    async def test_what_was_put_comes_back_whole(self) -> None:
        """Every field, with microseconds and versions up to the largest."""
        registry = await self.new()
        record = attrs.evolve(
            _record(version=2**63 - 2),
            expires_at=_MOMENT + timedelta(microseconds=1),
            prev_token_hash=_hash("old"),
            prev_token_expires_at=_MOMENT + timedelta(microseconds=999_999),
        )
        await registry.put(record, now=_NOW)
        entry = await registry.get("a1")
        assert entry is not None
        assert entry.record == record
        assert entry.newest_version == 2**63 - 2
        assert not (await registry.put(attrs.evolve(record, version=2**63 - 3), now=_NOW)).applied
        assert (await registry.put(attrs.evolve(record, version=2**63 - 1), now=_NOW)).applied

    async def test_the_token_shown_at_a_renewal_stays_whatever_the_hub_names(self) -> None:
        """In either order of the two records; the next version has its own word."""
        shown = attrs.evolve(
            _record(version=3, word="new"),
            prev_token_hash=_hash("shown"),
            prev_token_expires_at=_MOMENT + timedelta(hours=24),
        )
        hubs = attrs.evolve(shown, prev_token_hash=_hash("lost"))
        for order in ((shown, hubs), (hubs, shown), (hubs, shown, hubs, hubs)):
            registry = await self.new()
            await registry.delete_company("acme")
            for record in order:
                await registry.put(record, now=_NOW, renewal=record is shown)
            assert await _verdict(registry, "shown") is Verdict.VALID
            assert await _verdict(registry, "lost") is None
            assert await _verdict(registry, "new") is Verdict.VALID
            await registry.put(attrs.evolve(hubs, version=4), now=_NOW)
            assert await _verdict(registry, "shown") is None
            assert await _verdict(registry, "lost") is Verdict.VALID

    async def test_a_put_may_be_repeated(self) -> None:
        """After a lost reply the same call is made again, and everything is as after one."""
        registry = await self.new()
        record = attrs.evolve(_record(version=4), prev_token_hash=_hash("old"))
        first = await registry.put(record, now=_NOW)
        again = await registry.put(record, now=_NOW + 1)
        assert again.applied
        assert again.before == again.after == first.after
        revoked = attrs.evolve(record, version=5, state=AgentState.REVOKED)
        first = await registry.put(revoked, now=_NOW + 2)
        again = await registry.put(revoked, now=_NOW + 3)
        assert again.after == first.after
        assert again.after.revoked_at == _NOW + 2

    async def test_a_hash_leads_to_the_last_agent_that_named_it(self) -> None:
        """What happens to the other one afterwards does not touch it."""
        registry = await self.new()
        await registry.put(_record("a1", word="t"), now=_NOW)
        await registry.put(_record("a2", word="t", company_id="globex"), now=_NOW)
        await registry.revoke("a1", now=_NOW)
        entry = await registry.lookup(_hash("t"))
        assert entry is not None
        assert entry.agent.agent_id == "a2"
        assert entry.verdict(_MOMENT) is Verdict.VALID
        await registry.delete_company("acme")
        assert await _verdict(registry, "t") is Verdict.VALID
        gone = _record("a3", word="t", state=AgentState.REVOKED)
        await registry.put(gone, now=_NOW)
        assert await _verdict(registry, "t") is Verdict.VALID

    async def test_a_walk_meets_everybody(self) -> None:
        """In pages, of all companies or of one, revoked agents too; an empty registry ends it."""
        registry = await self.new()
        assert await _walk(registry) == []
        for number in range(25):
            company_id = "acme" if number % 5 else "globex"
            await registry.put(
                _record(f"a{number:02}", word=f"w{number}", company_id=company_id), now=_NOW
            )
        await registry.revoke("a03", now=_NOW)
        assert set(await _walk(registry)) == {f"a{number:02}" for number in range(25)}
        assert set(await _walk(registry, "globex")) == {"a00", "a05", "a10", "a15", "a20"}
        assert await _walk(registry, "nobody") == []

    async def test_one_agent_is_forgotten_unless_it_is_newer(self) -> None:
        """Whoever looked before somebody wrote forgets nothing."""
        registry = await self.new()
        await registry.put(_record(version=3), now=_NOW)
        assert await registry.delete_agent("a1", newest_version=2) is None
        assert await _verdict(registry, "t1") is Verdict.VALID
        gone = await registry.delete_agent("a1", newest_version=3)
        assert gone is not None
        assert (gone.agent_id, gone.company_id, gone.server_id) == ("a1", "acme", "s1")
        assert await _verdict(registry, "t1") is None
        assert await registry.by_server("acme", "s1") == ()
        assert await registry.company_counts() == {}
        assert await registry.delete_agent("a1", newest_version=3) is None
        assert (await registry.put(_record(version=1), now=_NOW)).applied

    async def test_a_large_company_is_forgotten_whole(self) -> None:
        """However many steps it takes, tombstones too, and its neighbours stay."""
        registry = await self.new()
        for number in range(450):
            await registry.put(
                _record(f"a{number:03}", word=f"w{number}", server_id=f"s{number % 7}"), now=_NOW
            )
        await registry.put(_record("b", word="b", company_id="globex"), now=_NOW)
        for number in range(0, 450, 9):
            await registry.revoke(f"a{number:03}", now=_NOW)
        assert await registry.company_counts() == {"acme": 400, "globex": 1}
        gone = await registry.delete_company("acme")
        assert [agent.agent_id for agent in gone] == [f"a{number:03}" for number in range(450)]
        counts = await registry.count()
        assert (counts.active, counts.pending, counts.revoked) == (1, 0, 0)
        assert await _verdict(registry, "w0") is None
        assert await _verdict(registry, "w1") is None
        assert await registry.by_server("acme", "s1") == ()
        assert await registry.sweep(revoked_before=_NOW + 1) == 0

    async def test_many_tombstones_are_swept_in_one_call(self) -> None:
        """All that are old enough, and none that is not."""
        registry = await self.new()
        for number in range(330):
            await registry.put(_record(f"a{number:03}", word=f"w{number}"), now=_NOW)
            await registry.revoke(f"a{number:03}", now=_NOW + number)
        assert await registry.sweep(revoked_before=_NOW + 325) == 325
        assert (await registry.count()).revoked == 5
        assert await _verdict(registry, "w324") is None
        assert await _verdict(registry, "w325") is Verdict.REVOKED

    async def test_counts_follow_every_change(self) -> None:
        """By state and by company, through changes of state and place."""
        registry = await self.new()
        await registry.put(_record(version=1, state=AgentState.PENDING), now=_NOW)
        assert await registry.company_counts() == {}
        await registry.put(_record(version=2), now=_NOW)
        await registry.put(_record(version=2), now=_NOW)
        counts = await registry.count()
        assert (counts.active, counts.pending, counts.revoked) == (1, 0, 0)
        await registry.put(_record(version=3, company_id="globex"), now=_NOW)
        assert await registry.company_counts() == {"globex": 1}
        await registry.revoke("a1", now=_NOW)
        assert await registry.company_counts() == {}
        counts = await registry.count()
        assert (counts.active, counts.pending, counts.revoked) == (0, 0, 1)

    async def test_one_full_sync_an_interval_begins(self) -> None:
        """Another one only when the first did not end; a clock that was ahead holds nobody up."""
        registry = await self.new()

        async def begins(now: float) -> bool:
            return await registry.begin_full_sync(
                now=now, interval_seconds=1_000.0, claim_seconds=100.0
            )

        assert await begins(_NOW)
        assert not await begins(_NOW + 99.5)
        assert await begins(_NOW + 100)
        await registry.end_full_sync(now=_NOW + 110)
        assert not await begins(_NOW + 1_109.5)
        assert await begins(_NOW + 1_110)
        await registry.end_full_sync(now=_NOW + 9_999_999)
        assert await begins(_NOW + 1_111)


async def _walk(registry: Registry, company_id: str | None = None) -> list[str]:
    found: list[str] = []
    cursor, more = "", True
    while more:
        page = await registry.scan(cursor=cursor, company_id=company_id, limit=10)
        found += [entry.record.agent_id for entry in page.entries]
        cursor = page.cursor
        more = bool(cursor)
    return found
