"""What the hub is told each minute."""

import itertools

import anyio
import pytest

from ahcollector.detector import Reporter, TrafficTotals
from ahcollector.errors import TemporaryHubError
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.testing import FakeClock, FakeHub
from ahcollector.testing._contracts.outbox import event

pytestmark = pytest.mark.anyio


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.hub = FakeHub()
        numbers = itertools.count(1)
        self.presence = MemoryPresence(
            event_ids=lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"
        )
        self.outbox = MemoryOutbox()
        self.totals = TrafficTotals()
        self.reporter = Reporter(
            presence=self.presence,
            hub=self.hub,
            outbox=self.outbox,
            clock=self.clock,
            collector_id="collector-1",
            version="0.1.0",
            traffic=lambda: self.totals,
        )

    async def hear(self, count):
        for number in range(count):
            ref = AgentRef(
                agent_id=f"a{number}", company_id=f"co-{number % 2}", server_id=f"s{number}"
            )
            await self.presence.touch(ref, self.clock.time(), None)

    def told(self):
        return [seen.agent_id for report in self.hub.seen for seen in report.seen]


async def test_contacts_go_in_pages_of_500_and_once():
    world = World()
    await world.hear(1_201)
    assert await world.reporter.report_seen() == 1_201
    assert [len(report.seen) for report in world.hub.seen] == [500, 500, 201]
    assert len(set(world.told())) == 1_201
    assert world.hub.seen[0].seen[0].last_seen_at.timestamp() == world.clock.time()
    assert await world.reporter.report_seen() == 0


async def test_an_agent_that_was_only_made_known_is_not_reported():
    world = World()
    ref = AgentRef(agent_id="a", company_id="acme", server_id="s")
    await world.presence.ensure(ref, world.clock.time(), None)
    assert await world.reporter.report_seen() == 0


async def test_contacts_the_hub_did_not_take_are_told_again():
    world = World()
    await world.hear(3)
    world.hub.fails = TemporaryHubError("503", status=503)
    assert await world.reporter.report_seen() == 0
    world.hub.fails = None
    assert await world.reporter.report_seen() == 3


async def test_a_hub_that_takes_nothing_is_warned_of_once_a_minute(caplog):
    """B2-17: a line once per `seen_interval`, however short that is."""
    caplog.set_level("INFO", "ahcollector.reporter")
    world = World()
    await world.hear(3)
    world.hub.fails = TemporaryHubError("503", status=503)
    for _ in range(120):
        world.clock.advance(1)
        await world.reporter.report_seen()
        await world.reporter.report_heartbeat()
    world.hub.fails = None
    await world.reporter.report_seen()
    await world.reporter.report_heartbeat()
    told = [(one.getMessage(), getattr(one, "times", 1)) for one in caplog.records]
    assert sorted(told) == sorted(
        [
            *[("contacts not reported", times) for times in (1, 60)],
            *[("heartbeat not taken", times) for times in (1, 60)],
            ("contacts are reported again", 59),
            ("heartbeats are taken again", 59),
        ]
    )


async def test_contacts_on_their_way_when_it_is_cancelled_are_told_again():
    world = World()
    await world.hear(3)
    world.hub.holds = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.reporter.report_seen)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    world.hub.holds = None
    assert await world.reporter.report_seen() == 3


async def test_a_heartbeat_carries_counts_and_rates():
    world = World()
    await world.hear(3)
    await world.outbox.append([event(1)], world.clock.time())
    world.totals = TrafficTotals(batches=120, samples=6_000)
    world.clock.advance(60)
    assert await world.reporter.report_heartbeat()
    [beat] = world.hub.beats
    assert (beat.collector_id, beat.version) == ("collector-1", "0.1.0")
    assert (beat.agents, beat.agents_down, beat.outbox_depth) == (3, 0, 1)
    assert dict(beat.companies) == {"co-0": 2, "co-1": 1}
    assert (beat.batches_per_second, beat.samples_per_second) == (2.0, 100.0)
    assert beat.at.timestamp() == world.clock.time()
    world.clock.advance(60)
    await world.reporter.report_heartbeat()
    assert world.hub.beats[1].batches_per_second == 0


async def test_both_go_on_each_minute_also_after_failures():
    world = World()
    await world.hear(2)
    world.hub.fails = TemporaryHubError("503", status=503)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.reporter.run)
        await world.clock.run_for(90)
        world.hub.fails = None
        await world.clock.run_for(60)
        tasks.cancel_scope.cancel()
    assert len(world.hub.beats) == 1
    assert sorted(world.told()) == ["a0", "a1"]
