"""What every `Presence` does."""

from __future__ import annotations

from ahcollector.errors import PresenceError
from ahcollector.presence.base import (
    AgentRef,
    Presence,
    PresenceCounts,
    PresenceState,
    TransitionKind,
)
from ahcollector.testing._contracts._expect import expect

__all__ = ["PresenceContract"]

T0 = 1_700_000_000.0
A = AgentRef(agent_id="agent-a", company_id="acme", server_id="web-1")
B = AgentRef(agent_id="agent-b", company_id="bolt", server_id="db-1")
C = AgentRef(agent_id="agent-c", company_id="acme", server_id="web-2")


class PresenceContract:
    """The suite; derive from it and give `new` (and `reopen` where there is something durable)."""

    durable = False

    async def new(self) -> Presence:
        """Return an empty presence: down_min 90 s, usual interval 30 s, beacons good for 15 s."""
        raise NotImplementedError

    async def reopen(self, presence: Presence) -> Presence:
        """Return what a new process finds after `presence` was left behind without a goodbye."""
        raise NotImplementedError

    async def test_silence_beyond_the_threshold_is_one_down(self) -> None:
        """An agent goes down once, after its deadline, and not at it."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        assert await presence.expire(T0 + 90, 500) == []
        [down] = await presence.expire(T0 + 90.001, 500)
        assert (down.kind, down.agent, down.last_seen) == (TransitionKind.DOWN, A, T0)
        assert (down.occurred_at, down.down_since, down.reason) == (T0 + 90.001, None, None)
        await presence.confirm(down)
        assert await presence.expire(T0 + 1_000, 500) == []

    async def test_an_agents_own_interval_gives_its_deadline(self) -> None:
        """max(3 x interval, down_min), and None keeps the interval."""
        presence = await self.new()
        await presence.touch(A, T0, 60.0)
        await presence.touch(A, T0 + 1, None)
        await presence.touch(B, T0, 10.0)
        assert [t.agent for t in await presence.expire(T0 + 90.5, 500)] == [B]
        assert len(await presence.expire(T0 + 181, 500)) == 1
        assert len(await presence.expire(T0 + 181.5, 500)) == 2

    async def test_a_shorter_interval_brings_the_deadline_nearer(self) -> None:
        """The deadline follows the newest contact."""
        presence = await self.new()
        await presence.touch(A, T0, 300.0)
        await presence.touch(A, T0 + 1, 30.0)
        assert len(await presence.expire(T0 + 92, 500)) == 1

    async def test_a_contact_brings_a_down_agent_up_with_a_higher_seq(self) -> None:
        """Down, then up; in order, and the up knows since when it was down."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.expire(T0 + 100, 500)
        await presence.touch(A, T0 + 130, None)
        down, up = await presence.pending(500)
        assert (down.kind, up.kind) == (TransitionKind.DOWN, TransitionKind.UP)
        assert up.seq > down.seq
        assert up.event_id > down.event_id
        assert (up.down_since, up.last_seen, up.occurred_at) == (T0 + 100, T0, T0 + 130)
        assert await presence.pending_count() == 2

    async def test_seq_rises_although_the_clock_goes_back(self) -> None:
        """max(now, last + 1)."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.expire(T0 + 100, 500)
        await presence.touch(A, T0 - 3_600, None)
        down, up = await presence.pending(500)
        assert down.seq == round((T0 + 100) * 1000)
        assert up.seq == down.seq + 1

    async def test_intents_stay_the_same_until_confirmed_in_order(self) -> None:
        """Handed out again and again, and only the oldest of an agent can be confirmed."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        first = await presence.expire(T0 + 100, 500)
        await presence.touch(A, T0 + 130, None)
        both = await presence.expire(T0 + 140, 500)
        assert both[0] == first[0]
        assert await presence.pending(500) == both
        assert await presence.pending(1) == first
        with expect(PresenceError):
            await presence.confirm(both[1])
        await presence.confirm(both[0])
        await presence.confirm(both[0])
        assert await presence.pending(500) == both[1:]
        await presence.confirm(both[1])
        assert await presence.pending(500) == []

    async def test_pages_are_full_until_the_last(self) -> None:
        """A short page means that there is nothing more."""
        presence = await self.new()
        for number in range(7):
            ref = AgentRef(agent_id=f"a{number}", company_id="acme", server_id="s")
            await presence.touch(ref, T0, None)
        found = []
        sizes = []
        while True:
            page = await presence.expire(T0 + 100, 3)
            for transition in page:
                await presence.confirm(transition)
            found += [transition.agent.agent_id for transition in page]
            sizes.append(len(page))
            if len(page) < 3:
                break
        assert sizes == [3, 3, 1]
        assert sorted(found) == [f"a{number}" for number in range(7)]

    async def test_last_seen_never_goes_back(self) -> None:
        """A late, older contact changes nothing that is told."""
        presence = await self.new()
        await presence.touch(A, T0 + 50, None)
        await presence.touch(A, T0, None)
        [shown] = await presence.agents()
        assert shown.last_seen == T0 + 50
        lease = await presence.drain_seen(500)
        assert [seen.last_seen for seen in lease.seen] == [T0 + 50]

    async def test_an_agent_that_never_reported_goes_down_too(self) -> None:
        """After a grace of two intervals and its threshold; it is not reported as seen."""
        presence = await self.new()
        await presence.ensure(A, T0, None)
        await presence.ensure(A, T0 + 100, None)
        assert (await presence.drain_seen(500)).seen == ()
        assert await presence.expire(T0 + 150, 500) == []
        [down] = await presence.expire(T0 + 150.001, 500)
        assert (down.last_seen, down.reason) == (None, "never_reported")

    async def test_what_an_agent_says_of_its_interval_beats_the_setting(self) -> None:
        """A setting that comes later must not make a slow agent look silent."""
        presence = await self.new()
        await presence.ensure(A, T0, 60.0)
        [shown] = await presence.agents()
        assert shown.interval_seconds == 60
        await presence.touch(A, T0, 300.0)
        await presence.ensure(A, T0 + 1, 30.0)
        await presence.touch(A, T0 + 2, None)
        [shown] = await presence.agents()
        assert (shown.interval_seconds, shown.deadline) == (300, T0 + 902)

    async def test_removing_a_down_agent_brings_it_up_first(self) -> None:
        """With the reason, and its seq goes on when the id comes back."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.touch(B, T0, None)
        await presence.expire(T0 + 95, 1)
        [down] = await presence.pending(500)
        await presence.remove(down.agent.agent_id, T0 + 96, "removed")
        other = B if down.agent == A else A
        await presence.remove(other.agent_id, T0 + 96, "removed")
        _, up = await presence.pending(500)
        assert (up.kind, up.reason, up.agent) == (TransitionKind.UP, "removed", down.agent)
        assert await presence.counts() == PresenceCounts(agents=0, down=0)
        await presence.touch(down.agent, T0 - 10_000, None)
        await presence.expire(T0 - 9_000, 500)
        newest = (await presence.pending(500))[-1]
        assert newest.seq == up.seq + 1

    async def test_a_grace_counts_deadlines_from_the_end_of_blindness(self) -> None:
        """Not heard since: grace + threshold. Heard since: at least the grace."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.touch(B, T0, None)
        end = T0 + 900
        await presence.grace(now=end, ended_at=end, blind_seconds=900, blind_max_seconds=300)
        await presence.touch(B, end + 1, None)
        assert await presence.expire(end + 330, 500) == []
        [first] = await presence.expire(end + 331, 500)
        assert first.agent == B
        assert len(await presence.expire(end + 420, 500)) == 1
        assert len(await presence.expire(end + 420.001, 500)) == 2

    async def test_a_short_blindness_gives_a_short_grace(self) -> None:
        """max(2 x interval, blind + interval)."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.grace(now=T0, ended_at=T0, blind_seconds=20, blind_max_seconds=300)
        assert await presence.expire(T0 + 150, 500) == []
        assert len(await presence.expire(T0 + 150.001, 500)) == 1

    async def test_a_second_short_grace_does_not_end_a_long_one(self) -> None:
        """The longer of the two holds."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.grace(now=T0, ended_at=T0, blind_seconds=900, blind_max_seconds=300)
        later = T0 + 20
        await presence.grace(now=later, ended_at=later, blind_seconds=16, blind_max_seconds=300)
        assert await presence.expire(T0 + 420, 500) == []
        assert len(await presence.expire(T0 + 420.001, 500)) == 1

    async def test_deadlines_of_a_clock_that_was_ahead_are_brought_back(self) -> None:
        """After a step back of an hour a dead agent is found in time all the same."""
        presence = await self.new()
        await presence.touch(A, T0 + 3_600, None)
        await presence.grace(now=T0, ended_at=T0, blind_seconds=10, blind_max_seconds=300)
        assert await presence.expire(T0 + 150, 500) == []
        assert len(await presence.expire(T0 + 151, 500)) == 1

    async def test_agents_added_while_a_grace_runs_share_it(self) -> None:
        """Else a collector without a memory would declare agents that are in their backoff."""
        presence = await self.new()
        await presence.grace(now=T0, ended_at=T0, blind_seconds=900, blind_max_seconds=300)
        await presence.ensure(A, T0 + 5, None)
        assert await presence.expire(T0 + 420, 500) == []
        assert len(await presence.expire(T0 + 421, 500)) == 1

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
