"""What every `Presence` does: what it tells of contacts, beacons and counts."""

from __future__ import annotations

import anyio

from ahcollector.presence.base import (
    AgentRef,
    Presence,
    PresenceCounts,
    PresenceState,
)

__all__ = ["T0", "A", "B", "C", "PresenceReports"]

T0 = 1_700_000_000.0
A = AgentRef(agent_id="agent-a", company_id="acme", server_id="web-1")
B = AgentRef(agent_id="agent-b", company_id="bolt", server_id="db-1")
C = AgentRef(agent_id="agent-c", company_id="acme", server_id="web-2")


class PresenceReports:
    """A part of the suite; `PresenceContract` is the whole."""

    durable = False

    async def new(self) -> Presence:
        """Return an empty presence: down_min 90 s, usual interval 30 s, beacons good for 15 s."""
        raise NotImplementedError

    async def reopen(self, presence: Presence) -> Presence:
        """Return what a new process finds after `presence` was left behind without a goodbye."""
        raise NotImplementedError

    async def test_beacons_tell_how_long_it_was_dark(self) -> None:
        """A pause longer than a beacon is good for begins a new row."""
        presence = await self.new()
        assert await presence.ingest_sight() is None
        await presence.beacon(T0)
        await presence.beacon(T0 + 5)
        sight = await presence.ingest_sight()
        assert sight is not None
        assert (sight.at, sight.since, sight.dark_seconds) == (T0 + 5, T0, None)
        await presence.beacon(T0 + 65)
        sight = await presence.ingest_sight()
        assert sight is not None
        assert (sight.at, sight.since, sight.dark_seconds) == (T0 + 65, T0 + 65, 60)

    async def test_contacts_are_leased_until_confirmed(self) -> None:
        """A failed report is told again, a taken one is not, newer contacts are never lost."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.touch(B, T0, None)
        lease = await presence.drain_seen(1)
        other = await presence.drain_seen(500)
        assert {seen.agent_id for seen in lease.seen + other.seen} == {"agent-a", "agent-b"}
        assert (await presence.drain_seen(500)).seen == ()
        await presence.touch(A, T0 + 30, None)
        await presence.release_seen(lease)
        await presence.release_seen(other)
        again = await presence.drain_seen(500)
        assert {seen.agent_id: seen.last_seen for seen in again.seen} == {
            "agent-a": T0 + 30,
            "agent-b": T0,
        }
        await presence.touch(B, T0 + 40, None)
        await presence.confirm_seen(again)
        rest = await presence.drain_seen(500)
        assert [(seen.agent_id, seen.last_seen) for seen in rest.seen] == [("agent-b", T0 + 40)]

    async def test_counts_and_lists_keep_companies_apart(self) -> None:
        """What the console and the heartbeat show."""
        presence = await self.new()
        for agent in (C, A, B):
            await presence.touch(agent, T0, None)
        await presence.touch(C, T0 + 60, None)
        await presence.expire(T0 + 100, 500)
        assert await presence.counts() == PresenceCounts(agents=3, down=2)
        assert await presence.company_counts() == {
            "acme": PresenceCounts(agents=2, down=1),
            "bolt": PresenceCounts(agents=1, down=1),
        }
        shown = await presence.agents(company_id="acme")
        assert [(row.agent, row.state) for row in shown] == [
            (A, PresenceState.DOWN),
            (C, PresenceState.UP),
        ]
        assert shown[0].down_since == T0 + 100
        assert shown[1].deadline == T0 + 150
        assert [row.agent for row in await presence.agents(after="agent-a", limit=1)] == [B]

    async def test_contacts_at_once_are_all_noted(self) -> None:
        """However they are carried to the store, each one that returned is there."""
        presence = await self.new()
        refs = [
            AgentRef(agent_id=f"a{number:03}", company_id=f"co{number % 7}", server_id="s")
            for number in range(300)
        ]
        async with anyio.create_task_group() as tasks:
            for ref in refs:
                tasks.start_soon(presence.touch, ref, T0, None)
        assert await presence.counts() == PresenceCounts(agents=300, down=0)
        assert [row.agent for row in await presence.agents()] == refs
        await presence.expire(T0 + 100, 500)
        async with anyio.create_task_group() as tasks:
            for ref in refs:
                tasks.start_soon(presence.touch, ref, T0 + 101, None)
        found = await presence.pending(1_000)
        assert len({transition.event_id for transition in found}) == 600
        assert await presence.counts() == PresenceCounts(agents=300, down=0)

    async def test_an_agent_that_moves_is_counted_where_it_is_now(self) -> None:
        """Up or down; and its transitions tell where it was when they were decided."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        moved = AgentRef(agent_id=A.agent_id, company_id="bolt", server_id="db-9")
        await presence.ensure(moved, T0, None)
        assert await presence.company_counts() == {"bolt": PresenceCounts(agents=1, down=0)}
        assert await presence.agents(company_id="acme") == []
        [down] = await presence.expire(T0 + 100, 500)
        await presence.ensure(A, T0 + 101, None)
        assert await presence.company_counts() == {"acme": PresenceCounts(agents=1, down=1)}
        await presence.touch(moved, T0 + 102, None)
        assert await presence.company_counts() == {"bolt": PresenceCounts(agents=1, down=0)}
        assert [transition.agent for transition in await presence.pending(500)] == [moved, moved]
        assert down.agent == moved

    async def test_ids_are_any_text(self) -> None:
        """They are told as they came, and listed in the order of their code points."""
        presence = await self.new()
        ids = ['"', "\\", "a b", "a\x00b", "a\nb", "a{b}*", "a:b", "é", "我", "💩"]
        for agent_id in ids:
            ref = AgentRef(agent_id=agent_id, company_id=agent_id, server_id=agent_id)
            await presence.touch(ref, T0, None)
        rows = await presence.agents()
        assert [row.agent.agent_id for row in rows] == sorted(ids)
        assert {row.agent.company_id for row in rows} == set(await presence.company_counts())
        pages = [await presence.agents(after=agent_id, limit=1) for agent_id in sorted(ids)]
        assert [page[0].agent.server_id for page in pages[:-1]] == sorted(ids)[1:]
        downs = await presence.expire(T0 + 100, 500)
        assert sorted(transition.agent.server_id for transition in downs) == sorted(ids)
        lease = await presence.drain_seen(500)
        assert sorted(seen.agent_id for seen in lease.seen) == sorted(ids)
        for agent_id in ids:
            await presence.remove(agent_id, T0 + 101, agent_id)
        assert len(await presence.pending(500)) == 2 * len(ids)
        assert await presence.company_counts() == {}

    async def test_contacts_given_back_are_of_known_agents_only(self) -> None:
        """Of one that came back under its id, what is told is of its new life."""
        presence = await self.new()
        for agent in (A, B, C):
            await presence.touch(agent, T0, None)
        lease = await presence.drain_seen(500)
        for agent in (A, B):
            await presence.remove(agent.agent_id, T0 + 1, "removed")
        await presence.ensure(B, T0 + 2, None)
        await presence.release_seen(lease)
        await presence.release_seen(lease)
        again = await presence.drain_seen(500)
        assert [(seen.agent_id, seen.last_seen) for seen in again.seen] == [(C.agent_id, T0)]

    async def test_contacts_leased_by_a_process_that_died_are_told_again(self) -> None:
        """Its report may have been taken: telling it twice changes nothing at the hub."""
        if not self.durable:
            return
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.touch(B, T0, None)
        lease = await presence.drain_seen(1)
        # Decided, so that all of it is saved.
        await presence.expire(T0 + 100, 500)
        again = await self.reopen(presence)
        told = await again.drain_seen(500)
        assert {seen.agent_id for seen in lease.seen} <= {seen.agent_id for seen in told.seen}
        assert len(told.seen) == 2

    async def test_after_a_step_back_of_the_clock_the_row_of_beacons_is_not_in_the_future(
        self,
    ) -> None:
        """C17. The row goes on, and begins no later than now."""
        presence = await self.new()
        await presence.beacon(T0)
        await presence.beacon(T0 - 3_600)
        sight = await presence.ingest_sight()
        assert sight is not None
        assert (sight.at, sight.since, sight.dark_seconds) == (T0 - 3_600, T0 - 3_600, None)

    async def test_intents_handed_out_survive_a_crash(self) -> None:
        """The same event ids and seqs, in order; and what was told of seen agents is no loss."""
        if not self.durable:
            return
        presence = await self.new()
        await presence.touch(A, T0, 45.0)
        await presence.beacon(T0)
        first = await presence.expire(T0 + 200, 500)
        await presence.touch(A, T0 + 230, None)
        both = await presence.pending(500)
        again = await self.reopen(presence)
        assert await again.pending(500) == both
        assert both[0] == first[0]
        assert await again.ingest_sight() == await presence.ingest_sight()
        assert await again.agents() == await presence.agents()
        await again.confirm(both[0])
        await again.confirm(both[1])
        [down] = await again.expire(T0 + 500, 500)
        assert down.seq > both[1].seq

    async def test_a_restart_is_a_darkness_however_short(self) -> None:
        """Agents that were refused in it are in their backoff: the detector must be told."""
        if not self.durable:
            return
        presence = await self.new()
        await presence.touch(A, T0, 45.0)
        await presence.beacon(T0)
        await presence.beacon(T0 + 5)
        await presence.expire(T0 + 200, 500)
        again = await self.reopen(presence)
        await again.beacon(T0 + 7)
        await again.beacon(T0 + 12)
        sight = await again.ingest_sight()
        assert sight is not None
        assert (sight.at, sight.since, sight.dark_seconds) == (T0 + 12, T0 + 7, 2)
