"""Redis is killed, or away for long, or the collector was: nobody is declared dead for it."""

import heapq
import random

import anyio
import pytest

from ahcollector.detector import Detector
from ahcollector.errors import PresenceError
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef, TransitionKind
from ahcollector.testing import FakeClock
from ahwire import Backoff, EventType, phase_offset

pytestmark = [pytest.mark.anyio, pytest.mark.service]
T0 = 1_700_000_000.0
A = AgentRef(agent_id="agent-a", company_id="acme", server_id="web-1")
INTERVAL = 30.0


async def kill(server, presence, client):
    """Kill it and start it again; the connections of before fail once each.

    It syncs always: with everysec it may hold back what it answered for, while a sync is slow.
    """
    server.kill()
    with pytest.raises(PresenceError, match="presence cannot be asked"):
        await presence.pending_count()
    with pytest.raises(PresenceError):
        await presence.ping()
    server.start()
    await client.call("CONFIG", "SET", "appendfsync", "always")


async def test_killed_with_minus_nine_redis_has_what_was_decided_and_handed_out(
    presences_on, private_redis
):
    async with presences_on(private_redis) as new:
        presence = new(name="one")
        client = new.client(presence)
        await client.call("CONFIG", "SET", "appendfsync", "always")
        told = []
        now = T0
        for _ in range(3):
            await presence.touch(A, now, 45.0)
            [down] = await presence.expire(now + 200, 500)
            await kill(private_redis, presence, client)
            assert await presence.pending(500) == [down]
            await presence.touch(A, now + 230, None)
            both = await presence.expire(now + 231, 500)
            await kill(private_redis, presence, client)
            assert await presence.expire(now + 232, 500) == both
            for transition in both:
                await presence.confirm(transition)
            told += both
            now += 1_000
        assert [one.kind for one in told] == [TransitionKind.DOWN, TransitionKind.UP] * 3
        assert [one.seq for one in told] == sorted({one.seq for one in told})


class Agents:
    """Agents that send each interval, and back off while nobody answers."""

    def __init__(self, count, rng, clock):
        self.refs = [
            AgentRef(agent_id=f"agent-{n:05}", company_id=f"co-{n % 40}", server_id=f"s-{n}")
            for n in range(count)
        ]
        self.backoffs = [Backoff(5.0, 300.0, rng) for _ in range(count)]
        self.due = [
            (clock.time() + phase_offset(ref.agent_id, INTERVAL), n)
            for n, ref in enumerate(self.refs)
        ]
        heapq.heapify(self.due)
        self.died = set()

    async def send(self, until, presence):
        """Let everybody send whose time has come; None or no answer: a 503."""
        async with anyio.create_task_group() as tasks:
            while self.due and self.due[0][0] <= until:
                at, n = heapq.heappop(self.due)
                if n not in self.died:
                    tasks.start_soon(self._send, n, at, presence)

    async def _send(self, n, at, presence):
        wait = INTERVAL
        try:
            if presence is None:
                raise PresenceError("nobody is there")
            await presence.touch(self.refs[n], at, INTERVAL)
            self.backoffs[n].reset()
        except PresenceError:
            wait = self.backoffs[n].next()
        heapq.heappush(self.due, (at + wait, n))


class World:
    """A collector in simulated time: beacons, agents, scans."""

    def __init__(self, count, seed):
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.agents = Agents(count, self.rng, self.clock)
        self.outbox = MemoryOutbox()
        self.blind = 0

    def detector(self, presence):
        return Detector(presence=presence, outbox=self.outbox, clock=self.clock)

    async def live(self, presence, detector, seconds, *, step=5):
        """Seconds pass; beacons each 5 s, scans each 10 s."""
        for second in range(0, seconds, step):
            self.clock.advance(step)
            if presence is not None:
                try:
                    await presence.beacon(self.clock.time())
                except PresenceError:
                    self.blind += 1
            await self.agents.send(self.clock.time(), presence)
            if detector is not None and second % 10 == 0:
                await detector.scan()

    async def events(self):
        return [entry.event for entry in await self.outbox.peek(10_000)]


async def storm(new, *, count):
    """C14."""
    world = World(count, seed=count)
    presence = new(name="one", clock=world.clock)
    for ref in world.agents.refs:
        await presence.ensure(ref, world.clock.time(), INTERVAL)
    detector = world.detector(presence)
    await world.live(presence, detector, 300)
    assert await world.events() == []
    died = world.rng.sample(range(count), 3)
    await world.live(None, None, 400)
    world.agents.died.update(died)
    await world.live(None, None, 500)

    presence = new(name="one", clock=world.clock)
    begin = world.clock.time()
    await world.live(presence, world.detector(presence), 1_100)
    events = await world.events()
    assert sorted(event.agent_id for event in events) == sorted(
        world.agents.refs[n].agent_id for n in died
    )
    assert [event.type for event in events] == [EventType.AGENT_DOWN] * 3
    grace, threshold, scan, beacon = 300 + INTERVAL, 90, 10, 5
    latest = begin + grace + threshold + scan + beacon
    assert all(event.occurred_at.timestamp() <= latest for event in events)


async def test_after_fifteen_minutes_off_exactly_the_dead_go_down(shared):
    """C14, with 1,000 agents."""
    await storm(shared, count=1_000)


@pytest.mark.nightly
async def test_after_fifteen_minutes_off_exactly_the_dead_of_ten_thousand_go_down(shared):
    """C14."""
    await storm(shared, count=10_000)


async def test_a_redis_that_is_away_for_ten_minutes_declares_nobody(presences_on, private_redis):
    """C15. The detector is frozen meanwhile; the dead are found after a fresh grace."""
    async with presences_on(private_redis) as new:
        world = World(100, seed=15)
        presence = new(name="one", clock=world.clock)
        detector = world.detector(presence)
        await world.live(presence, detector, 300)
        private_redis.kill()
        world.agents.died = {1, 2}
        await world.live(presence, detector, 600)
        assert world.blind == 120
        assert (await detector.scan()).blind
        private_redis.start()
        begin = world.clock.time()
        await world.live(presence, detector, 1_000)
        events = await world.events()
        assert sorted(event.agent_id for event in events) == ["agent-00001", "agent-00002"]
        assert {event.type for event in events} == {EventType.AGENT_DOWN}
        assert all(300 <= event.occurred_at.timestamp() - begin <= 440 for event in events)


@pytest.mark.parametrize("hours", [-1, 1, 13])
async def test_a_step_of_the_collectors_clock_declares_nobody(shared, hours):
    """C17. And who dies afterwards is found."""
    world = World(50, seed=17)
    presence = shared(name="one", clock=world.clock)
    detector = world.detector(presence)
    await world.live(presence, detector, 300)
    world.clock.step_wall(hours * 3_600)
    # The agents' own time goes on: they send when their interval is over.
    world.agents.due = [(at + hours * 3_600, n) for at, n in world.agents.due]
    await world.live(presence, detector, 900)
    assert await world.events() == []
    world.agents.died = {7}
    await world.live(presence, detector, 600)
    assert [event.agent_id for event in await world.events()] == ["agent-00007"]
