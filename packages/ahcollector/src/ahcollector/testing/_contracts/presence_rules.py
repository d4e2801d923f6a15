"""What every `Presence` does: agents are watched by what is set for their company."""

from __future__ import annotations

import math

from ahcollector.presence.base import Presence, WatchRule
from ahcollector.testing._contracts.presence_reports import T0, A, B, C, PresenceReports

__all__ = ["PresenceRules"]


async def _deadline(presence: Presence) -> float | None:
    [shown] = await presence.agents(limit=1)
    return shown.deadline


class PresenceRules(PresenceReports):
    """A part of the suite; `PresenceContract` is the whole."""

    async def test_a_companys_down_min_gives_the_deadlines_of_its_agents(self) -> None:
        """max(3 x interval, down_min), each company's its own."""
        presence = await self.new()
        await presence.touch(A, T0, None, rule=WatchRule(down_min_seconds=600.0))
        await presence.touch(B, T0, None, rule=WatchRule(down_min_seconds=10.0))
        await presence.touch(C, T0, 20.0, rule=WatchRule(down_min_seconds=0.0))
        found = [shown.deadline for shown in await presence.agents()]
        assert found == [T0 + 600, T0 + 90, T0 + 60]
        downs = await presence.expire(T0 + 90.001, 500)
        assert [down.agent for down in downs] == [C, B]
        assert await presence.expire(T0 + 600, 500) == downs
        assert len(await presence.expire(T0 + 600.001, 500)) == 3

    async def test_a_companys_interval_is_for_agents_that_named_none(self) -> None:
        """What an agent says of itself goes before."""
        presence = await self.new()
        rule = WatchRule(interval_seconds=100.0)
        await presence.touch(A, T0, None, rule=rule)
        await presence.touch(B, T0, 60.0, rule=rule)
        await presence.touch(B, T0, None, rule=rule)
        found = [(one.interval_seconds, one.deadline) for one in await presence.agents()]
        assert found == [(100.0, T0 + 300), (60.0, T0 + 180)]

    async def test_a_rule_is_kept_until_another_one_is_told(self) -> None:
        """So processes that do not know it, and the next one, judge by it too."""
        presence = await self.new()
        await presence.touch(
            A, T0, None, rule=WatchRule(interval_seconds=50.0, down_min_seconds=600.0)
        )
        await presence.touch(A, T0 + 1, None)
        assert await _deadline(presence) == T0 + 601
        await presence.touch(A, T0 + 2, None, rule=WatchRule(down_min_seconds=200.0))
        assert await _deadline(presence) == T0 + 202
        await presence.touch(A, T0 + 3, None, rule=WatchRule(interval_seconds=50.0))
        assert await _deadline(presence) == T0 + 153
        await presence.touch(A, T0 + 4, None, rule=WatchRule())
        assert await _deadline(presence) == T0 + 94

    async def test_a_rule_that_is_not_firm_is_only_for_a_new_agent(self) -> None:
        """The hub's word was not heard yet: what it said before a restart stays good."""
        presence = await self.new()
        loose = WatchRule(interval_seconds=50.0, down_min_seconds=300.0, is_firm=False)
        await presence.touch(A, T0, None, rule=loose)
        assert await _deadline(presence) == T0 + 300
        await presence.touch(A, T0, None, rule=WatchRule(down_min_seconds=600.0))
        await presence.touch(A, T0 + 1, None, rule=loose)
        await presence.ensure(A, T0 + 1, 70.0, rule=loose)
        await presence.touch(A, T0 + 1, None)
        [shown] = await presence.agents()
        assert (shown.interval_seconds, shown.deadline) == (30.0, T0 + 601)

    async def test_an_agent_that_never_spoke_is_watched_by_the_rule_too(self) -> None:
        """A grace of two intervals, then the threshold; the rule's interval goes first."""
        presence = await self.new()
        rule = WatchRule(interval_seconds=40.0, down_min_seconds=600.0)
        await presence.ensure(A, T0, 20.0, rule=rule)
        assert await _deadline(presence) == T0 + 80 + 600
        await presence.remove(A.agent_id, T0, "removed")
        await presence.ensure(A, T0, 20.0, rule=WatchRule(down_min_seconds=10.0))
        assert await _deadline(presence) == T0 + 40 + 60
        # The deadline of a known one follows at its next contact.
        await presence.ensure(A, T0, 20.0, rule=WatchRule(down_min_seconds=700.0))
        assert await _deadline(presence) == T0 + 40 + 60
        await presence.touch(A, T0, None)
        assert await _deadline(presence) == T0 + 700

    async def test_a_removed_agent_leaves_no_rule_behind(self) -> None:
        """Who comes under its id is somebody else's."""
        presence = await self.new()
        await presence.touch(A, T0, None, rule=WatchRule(down_min_seconds=600.0))
        await presence.remove(A.agent_id, T0, "removed")
        await presence.ensure(A, T0, None)
        await presence.touch(A, T0, None)
        assert await _deadline(presence) == T0 + 90

    async def test_a_grace_counts_with_the_down_min_of_each(self) -> None:
        """After a blindness: its grace, and its threshold anew."""
        presence = await self.new()
        await presence.touch(A, T0, None, rule=WatchRule(down_min_seconds=600.0))
        await presence.touch(B, T0, None)
        await presence.grace(
            now=T0 + 50, ended_at=T0 + 50, blind_seconds=0.0, blind_max_seconds=300.0
        )
        found = [shown.deadline for shown in await presence.agents()]
        assert found == [T0 + 50 + 60 + 600, T0 + 50 + 60 + 90]

    async def test_a_rule_that_makes_no_sense_is_none(self) -> None:
        """Neither a deadline in the past nor one that never comes."""
        presence = await self.new()
        for odd in (-1.0, math.nan, math.inf, -math.inf):
            await presence.touch(
                A, T0, None, rule=WatchRule(interval_seconds=odd, down_min_seconds=odd)
            )
            assert await _deadline(presence) == T0 + 90
        await presence.touch(A, T0, None, rule=WatchRule(interval_seconds=0.0))
        assert await _deadline(presence) == T0 + 90

    async def test_a_rule_is_known_to_the_next_process(self) -> None:
        """With the intents that were handed out, all before them is durable."""
        if not self.durable:
            return
        presence = await self.new()
        await presence.touch(A, T0, None, rule=WatchRule(down_min_seconds=600.0))
        await presence.touch(B, T0, None)
        await presence.expire(T0 + 100, 500)
        again = await self.reopen(presence)
        await again.touch(A, T0 + 100, None)
        assert await _deadline(again) == T0 + 700
