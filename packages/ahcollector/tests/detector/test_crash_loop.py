"""A server in a crash loop declares no living agent dead, and still finds the dead ones.

The agents are honest: they send each interval, and after a refusal they wait in the full jitter of
`ahwire.Backoff` up to 300 s. The server dies without a goodbye, lives for seconds or minutes, and
comes back with what its last save holds.
"""

import random

import pytest

from ahcollector.detector import Detector
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.presence._snapshot import PresenceImage, decode, encode
from ahcollector.testing import FakeClock
from ahwire import Backoff, UUID7Generator, phase_offset

pytestmark = pytest.mark.anyio
INTERVAL, BACKOFF_MAX, THRESHOLD, SCAN = 30.0, 300.0, 90.0, 10.0
GRACE = BACKOFF_MAX + INTERVAL


class Agent:
    def __init__(self, n, rng, clock):
        self.ref = AgentRef(agent_id=f"agent-{n}", company_id="acme", server_id=f"server-{n}")
        self.backoff = Backoff(5.0, BACKOFF_MAX, rng)
        self.due = clock.time() + phase_offset(self.ref.agent_id, INTERVAL)


class World:
    """A fleet, and a server that is there or not."""

    def __init__(self, *, seed, agents):
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.ids = UUID7Generator(self.clock, self.rng)
        self.outbox = MemoryOutbox()
        self.fleet = [Agent(n, self.rng, self.clock) for n in range(agents)]
        self.saved = b"".join(encode(PresenceImage()))
        self.presence = None
        self.refuses = 0.0

    async def live(self, seconds):
        """A process of its own, killed at the end; saves and beacons each 5 s."""
        self.presence = MemoryPresence(event_ids=self.ids.next, image=decode(self.saved)[0])
        detector = Detector(presence=self.presence, outbox=self.outbox, clock=self.clock)
        await self.presence.beacon(self.clock.time())
        await detector.scan()
        for second in range(1, seconds + 1):
            self.clock.advance(1)
            await self.send()
            if second % 5 == 0:
                await self.presence.beacon(self.clock.time())
                self.saved = b"".join(encode(self.presence._image()))
            if second % SCAN == 0:
                await detector.scan()
        self.presence = None

    async def dark(self, seconds):
        for _ in range(seconds):
            self.clock.advance(1)
            await self.send()

    async def send(self):
        now = self.clock.time()
        for agent in self.fleet:
            if agent.due > now:
                continue
            if self.presence is not None:
                await self.presence.touch(agent.ref, now, INTERVAL)
            if self.presence is None or self.rng.random() < self.refuses:
                agent.due = now + agent.backoff.next()
            else:
                agent.backoff.reset()
                agent.due = now + INTERVAL

    async def down(self):
        return {entry.event.agent_id: entry.event for entry in await self.outbox.peek(10_000)}


@pytest.mark.parametrize("seed", range(4))
async def test_a_crash_loop_with_short_lives_declares_nobody(seed):
    world = World(seed=seed, agents=200)
    await world.live(500)
    for _ in range(10):
        await world.dark(12)
        await world.live(2)
    await world.dark(12)
    await world.live(700)
    assert await world.down() == {}


@pytest.mark.parametrize("away_seconds", [2, 7, 30, 60, 120])
async def test_one_restart_declares_nobody_however_short_it_is(away_seconds):
    """A wait of up to 300 s can follow a minute, and even a few seconds, of refusals."""
    world = World(seed=away_seconds, agents=1_000)
    await world.live(500)
    await world.dark(away_seconds)
    await world.live(450)
    assert await world.down() == {}


@pytest.mark.parametrize("seed", range(8))
async def test_any_row_of_restarts_finds_exactly_the_dead(seed):
    world = World(seed=100 + seed, agents=150)
    await world.live(500)
    for _ in range(world.rng.randint(2, 12)):
        await world.dark(world.rng.choice([1, 3, 7, 12, 14, 20, 60, 200]))
        world.refuses = world.rng.choice([0.0, 0.0, 0.5])
        await world.live(world.rng.choice([1, 2, 6, 9, 25, 70, 130]))
    assert await world.down() == {}
    world.refuses = 0.5
    dead = {agent.ref.agent_id for agent in world.fleet[:3]}
    world.fleet = world.fleet[3:]
    await world.dark(world.rng.choice([1, 7, 12, 60]))
    await world.live(25)
    await world.dark(3)
    world.refuses = 0.0
    begin = world.clock.time()
    await world.live(round(GRACE + THRESHOLD + 2 * SCAN))
    down = await world.down()
    assert set(down) == dead
    latest = max(event.occurred_at.timestamp() for event in down.values())
    assert latest <= begin + GRACE + THRESHOLD + SCAN + 1
