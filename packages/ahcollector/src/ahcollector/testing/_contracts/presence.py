"""What every `Presence` does."""

from __future__ import annotations

from ahcollector.errors import PresenceError
from ahcollector.presence.base import (
    AgentRef,
    PresenceCounts,
    PresenceState,
    TransitionKind,
)
from ahcollector.testing._contracts._expect import expect
from ahcollector.testing._contracts.presence_removals import PresenceRemovals
from ahcollector.testing._contracts.presence_reports import T0, A, B, C
from ahcollector.testing._contracts.presence_rules import PresenceRules

__all__ = ["PresenceContract"]


class PresenceContract(PresenceRules, PresenceRemovals):
    """The suite; derive from it and give `new` (and `reopen` where there is something durable)."""

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

    async def test_who_was_told_to_come_later_may_be_silent_for_longer_once(self) -> None:
        """The next contact sets the deadline anew; silence beyond the longer one is down."""
        presence = await self.new()
        await presence.touch(A, T0, None, waits_seconds=300.0)
        await presence.touch(B, T0, None, waits_seconds=300.0)
        assert await presence.expire(T0 + 390, 500) == []
        await presence.touch(B, T0 + 390, None)
        downs = await presence.expire(T0 + 390.001, 500)
        assert [one.agent for one in downs] == [A]
        downs = await presence.expire(T0 + 480.001, 500)
        assert [one.agent for one in downs] == [A, B]

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

    async def test_many_are_confirmed_at_once_in_their_order(self) -> None:
        """Each agent's in order, unknown ones are passed, and at a wrong one it ends."""
        presence = await self.new()
        await presence.confirm_all([])
        for ref in (A, B, C):
            await presence.touch(ref, T0, None)
        downs = await presence.expire(T0 + 100, 500)
        for ref in (A, B):
            await presence.touch(ref, T0 + 130, None)
        ups = [one for one in await presence.pending(500) if one.kind is TransitionKind.UP]
        first, second = (next(d for d in downs if d.agent == up.agent) for up in ups)
        with expect(PresenceError):
            await presence.confirm_all([first, ups[1]])
        assert first not in await presence.pending(500) or await presence.pending_count() == 5
        assert {second, *ups} <= set(await presence.pending(500))
        await presence.confirm_all([first, second, *ups])
        assert await presence.pending(500) == [one for one in downs if one.agent == C]
        await presence.confirm_all([first, *downs])
        assert await presence.pending_count() == 0
        await presence.confirm_all(downs)

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

    async def test_the_longest_overdue_goes_down_first(self) -> None:
        """Whoever waits for the next page waits the least."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.touch(B, T0, None)
        await presence.touch(C, T0 - 5, None)
        await presence.touch(A, T0 + 10, None)
        found = [(await presence.expire(T0 + 200, number))[-1].agent for number in (1, 2, 3)]
        assert found == [C, B, A]

    async def test_a_sign_of_life_just_after_the_deadline_is_down_and_then_up(self) -> None:
        """C16. A scan at the deadline decides nothing; after it, never up before down."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        assert await presence.expire(T0 + 90, 500) == []
        await presence.touch(A, T0 + 90, None)
        assert await presence.expire(T0 + 90.001, 500) == []
        assert len(await presence.expire(T0 + 180.001, 500)) == 1
        await presence.touch(A, T0 + 180.001, None)
        down, up = await presence.expire(T0 + 180.001, 500)
        assert (down.kind, up.kind) == (TransitionKind.DOWN, TransitionKind.UP)
        assert up.seq == down.seq + 1

    async def test_a_sign_of_life_in_the_last_moment_counts(self) -> None:
        """Also when a scan has looked at the agent in the second of its deadline."""
        presence = await self.new()
        await presence.touch(A, T0 + 0.5, None)
        assert await presence.expire(T0 + 90.25, 500) == []
        await presence.touch(A, T0 + 90.375, None)
        assert await presence.expire(T0 + 90.75, 500) == []
        assert await presence.expire(T0 + 180.375, 500) == []
        assert len(await presence.expire(T0 + 180.5, 500)) == 1

    async def test_steps_of_the_clock_lose_no_agent(self) -> None:
        """C17. After a step back the deadline counts from the newest receipt, by the new clock."""
        presence = await self.new()
        for step in (-3_600, 3_600, 46_800):
            await presence.touch(A, T0 + step, None)
            [shown] = await presence.agents()
            assert shown.deadline == T0 + step + 90
            assert await presence.expire(T0 + step + 90, 500) == []
        await presence.touch(A, T0, None)
        [shown] = await presence.agents()
        assert (shown.last_seen, shown.deadline) == (T0 + 46_800, T0 + 90)
        assert len(await presence.expire(T0 + 91, 500)) == 1

    async def test_an_interval_that_makes_no_sense_is_not_taken(self) -> None:
        """From an agent as from a setting."""
        presence = await self.new()
        await presence.touch(A, T0, 45.0)
        for interval in (0, -1.0, float("nan"), float("inf")):
            await presence.touch(A, T0, interval)
            await presence.ensure(B, T0, interval)
        assert [row.interval_seconds for row in await presence.agents()] == [45.0, 30.0]

    async def test_what_is_asked_twice_is_done_once(self) -> None:
        """An answer can be lost; whoever asks again decides nothing a second time."""
        presence = await self.new()
        for _ in range(2):
            await presence.ensure(A, T0, None)
            await presence.touch(A, T0, None)
        for _ in range(2):
            assert len(await presence.expire(T0 + 100, 500)) == 1
        for _ in range(2):
            await presence.touch(A, T0 + 110, None)
        for _ in range(2):
            await presence.grace(
                now=T0 + 120, ended_at=T0 + 120, blind_seconds=900, blind_max_seconds=300
            )
        [shown] = await presence.agents()
        assert shown.deadline == T0 + 120 + 330 + 90
        assert len(await presence.expire(T0 + 600, 500)) == 3
        for _ in range(2):
            await presence.remove(A.agent_id, T0 + 610, "removed")
        found = await presence.pending(500)
        assert [transition.reason for transition in found] == [None, None, None, "removed"]
        for _ in range(2):
            await presence.confirm(found[0])
        assert await presence.pending(500) == found[1:]

    async def test_a_grace_changes_nothing_for_an_agent_that_is_down(self) -> None:
        """It comes up when it is heard, and its deadline counts from then."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.expire(T0 + 100, 500)
        end = T0 + 200
        await presence.grace(now=end, ended_at=end, blind_seconds=900, blind_max_seconds=300)
        [shown] = await presence.agents()
        assert (shown.state, shown.down_since) == (PresenceState.DOWN, T0 + 100)
        await presence.touch(A, end + 1, None)
        [shown] = await presence.agents()
        assert (shown.state, shown.deadline) == (PresenceState.UP, end + 91)
