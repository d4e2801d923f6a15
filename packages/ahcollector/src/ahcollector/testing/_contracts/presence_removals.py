"""What every `Presence` does: contacts that come after an agent was removed."""

from __future__ import annotations

from ahcollector.presence.base import PresenceCounts
from ahcollector.testing._contracts.presence_reports import T0, A, B, PresenceReports

__all__ = ["PresenceRemovals"]


class PresenceRemovals(PresenceReports):
    """A part of the suite; `PresenceContract` is the whole."""

    async def test_a_contact_that_comes_after_the_removal_begins_no_watch(self) -> None:
        """It was let in before; nobody would end the watch, and its silence be told as a down."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.touch(B, T0, None)
        await presence.remove(A.agent_id, T0 + 10, "removed")
        for late in (-0.5, 0.0, 0.5, 15.0, 59.999):
            await presence.touch(A, T0 + 10 + late, 45.0)
        assert await presence.counts() == PresenceCounts(agents=1, down=0)
        lease = await presence.drain_seen(500)
        assert [seen.agent_id for seen in lease.seen] == [B.agent_id]
        assert [one.agent for one in await presence.expire(T0 + 10_000, 500)] == [B]

    async def test_after_a_minute_contacts_make_a_removed_agent_known_again(self) -> None:
        """Who has no registry behind presence never calls `ensure`."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.remove(A.agent_id, T0 + 10, "removed")
        await presence.touch(A, T0 + 70, None)
        assert [row.agent for row in await presence.agents()] == [A]
        [down] = await presence.expire(T0 + 1_000, 500)
        assert down.last_seen == T0 + 70

    async def test_the_registrys_word_ends_the_quiet_at_once(self) -> None:
        """An agent that moved, or whose revocation was taken back, is watched from then on."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.remove(A.agent_id, T0 + 10, "removed")
        await presence.ensure(A, T0 + 10, None)
        await presence.touch(A, T0 + 11, None)
        [shown] = await presence.agents()
        assert (shown.agent, shown.last_seen) == (A, T0 + 11)
        await presence.remove(A.agent_id, T0 + 12, "removed")
        await presence.touch(A, T0 + 13, None)
        assert await presence.agents() == []

    async def test_the_newest_of_two_removals_counts(self) -> None:
        """The registry may forget an agent between them; also of an id that was never known."""
        presence = await self.new()
        await presence.touch(A, T0, None)
        for agent in (A, B):
            for at in (T0 + 10, T0 + 50):
                await presence.remove(agent.agent_id, at, "removed")
            await presence.touch(agent, T0 + 109, None)
        assert await presence.agents() == []
        for agent in (A, B):
            await presence.touch(agent, T0 + 110, None)
        assert await presence.counts() == PresenceCounts(agents=2, down=0)

    async def test_a_removal_of_a_clock_that_was_ahead_makes_nobody_deaf(self) -> None:
        """C17. A small step back at most doubles the quiet; after a large one it binds nobody."""
        presence = await self.new()
        for agent in (A, B):
            await presence.touch(agent, T0, None)
            await presence.remove(agent.agent_id, T0, "removed")
        await presence.touch(A, T0 - 3_600, None)
        assert [row.agent for row in await presence.agents()] == [A]
        await presence.touch(B, T0 - 59, None)
        await presence.touch(B, T0 + 59, None)
        assert [row.agent for row in await presence.agents()] == [A]
        await presence.touch(B, T0 + 60, None)
        assert await presence.counts() == PresenceCounts(agents=2, down=0)

    async def test_a_removal_is_known_to_the_next_process(self) -> None:
        """A restart between the two must not let the late contact in."""
        if not self.durable:
            return
        presence = await self.new()
        await presence.touch(A, T0, None)
        await presence.touch(B, T0, None)
        await presence.remove(A.agent_id, T0 + 100, "removed")
        # Decided, so that all of it is saved.
        assert len(await presence.expire(T0 + 101, 500)) == 1
        again = await self.reopen(presence)
        await again.touch(A, T0 + 110, None)
        assert [row.agent for row in await again.agents()] == [B]
