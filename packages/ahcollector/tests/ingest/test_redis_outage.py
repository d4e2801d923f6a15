"""Five minutes without Redis, or with a full bus, or fifteen without any: no 401, just the dead.

Two doors on one real Redis, in simulated time. The agents send real requests and back off as the
library's agent does: full jitter from 5 s to 300 s, never before `Retry-After`, and whoever hears
401 or 403 stops.
"""

import contextlib
import heapq
import random

import httpx
import pytest
from conftest import ListBus

from ahcollector.detector import Detector
from ahcollector.errors import PresenceError, TemporaryHubError
from ahcollector.ingest import ingest_app
from ahcollector.outbox import MemoryOutbox
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry import (
    CachedRegistry,
    CompanySettingsCache,
    Directory,
    NegativeCache,
    Resolver,
)
from ahcollector.testing import FakeClock, FakeHub
from ahwire import Backoff, EventType, UUID7Generator, phase_offset
from ahwire.agent_pb2 import MetricsBatch, Point, Series

pytestmark = [pytest.mark.service, pytest.mark.anyio, pytest.mark.fault]
AGENTS, INTERVAL = 120, 30.0
GRACE, THRESHOLD, SCAN = 300.0 + INTERVAL, 90.0, 10.0


class Door:
    """One process: its own client of Redis, cache, door and detector."""

    def __init__(self, name, port, *, clock, hub, ids, outbox):
        from ahcollector.presence.redis import RedisPresence
        from ahcollector.registry.redis import RedisRegistry

        self.client = RedisClient(config=RedisConfig(port=port, prefix="outage:"), clock=clock)
        negative = NegativeCache()
        self.registry = CachedRegistry(
            registry=RedisRegistry(client=self.client), negative=negative, clock=clock
        )
        self.presence = RedisPresence(
            client=self.client, event_ids=ids.next, name=name, clock=clock
        )
        self.directory = Directory(
            registry=self.registry, presence=self.presence, negative=negative, clock=clock
        )
        resolver = Resolver(
            registry=self.registry,
            directory=self.directory,
            hub=hub,
            negative=negative,
            clock=clock,
        )
        self.bus = ListBus()
        self.app = ingest_app(
            resolver=resolver,
            presence=self.presence,
            bus=self.bus,
            settings=CompanySettingsCache(hub=None, clock=clock),
            clock=clock,
            rng=random.Random(5),
        )
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url="http://collector"
        )
        self.detector = Detector(presence=self.presence, outbox=outbox, clock=clock)

    async def close(self):
        await self.http.aclose()
        await self.client.aclose()


class World:
    def __init__(self, port, seed):
        self.port = port
        self.rng = random.Random(seed)
        self.clock = FakeClock(1_790_000_000.0)
        self.hub = FakeHub()
        self.ids = UUID7Generator(self.clock, self.rng)
        self.outbox = MemoryOutbox()
        self.doors = []
        self.statuses = set()
        self.stopped = set()
        self.died = set()
        self.backoffs = [Backoff(5.0, 300.0, self.rng) for _ in range(AGENTS)]
        self.due = []
        for n in range(AGENTS):
            self.hub.active(f"agent-{n}", f"token-{n}", server_id=f"server-{n}")
            at = self.clock.time() + phase_offset(f"agent-{n}", INTERVAL)
            heapq.heappush(self.due, (at, n))

    def open(self):
        made = {"clock": self.clock, "hub": self.hub, "ids": self.ids, "outbox": self.outbox}
        self.doors = [Door(name, self.port, **made) for name in ("one", "two")]

    async def close(self):
        for door in self.doors:
            await door.close()
        self.doors = []

    async def live(self, seconds):
        for second in range(1, seconds + 1):
            self.clock.advance(1)
            if second % 5 == 0:
                await self.beacons()
            while self.due and self.due[0][0] <= self.clock.time():
                await self.send(heapq.heappop(self.due)[1])
            if second % SCAN == 0:
                for door in self.doors:
                    await door.detector.scan()

    async def beacons(self):
        for door in self.doors:
            with contextlib.suppress(PresenceError):
                await door.presence.beacon(self.clock.time())

    async def send(self, n):
        if n in self.died or n in self.stopped:
            return
        status, retry_after = 0, None
        if self.doors:
            point = Point(ts_ms=round(self.clock.time() * 1000), value=1.0)
            batch = MetricsBatch(seq=1, series=[Series(name="up", points=[point])])
            reply = await self.rng.choice(self.doors).http.post(
                "/agent/v1/metrics",
                content=batch.SerializeToString(),
                headers={
                    "Authorization": f"Bearer token-{n}",
                    "X-AH-Proto": "1",
                    "Content-Type": "application/x-protobuf",
                },
            )
            status = reply.status_code
            retry_after = float(reply.headers.get("retry-after", 0)) or None
            self.statuses.add(status)
        if status in {401, 403}:
            self.stopped.add(n)
            return
        if status == 202:
            self.backoffs[n].reset()
            wait = INTERVAL
        else:
            wait = self.backoffs[n].next(retry_after)
        heapq.heappush(self.due, (self.clock.time() + wait, n))

    async def downs(self):
        events = [entry.event for entry in await self.outbox.peek(10_000)]
        assert {event.type for event in events} <= {EventType.AGENT_DOWN}
        assert len({event.event_id for event in events}) == len(events)
        return {event.agent_id: event for event in events}


@pytest.fixture
async def world(private_redis):
    world = World(private_redis.port, seed=7)
    world.open()
    for n in range(AGENTS):
        await world.doors[0].directory.put(world.hub.records[f"agent-{n}"])
    await world.beacons()
    await world.live(300)
    assert await world.downs() == {}
    assert world.statuses == {202}
    yield world
    await world.close()


@pytest.mark.parametrize("hub_answers", [True, False])
async def test_five_minutes_without_redis_cost_no_token_and_no_false_down(
    world, private_redis, hub_answers
):
    """C15 at the door: while it lasts 503 or accepted, never 401; afterwards exactly the dead."""
    private_redis.kill()
    if not hub_answers:
        world.hub.fails = TemporaryHubError("gone")
    await world.live(100)
    died = world.rng.sample(range(AGENTS), 3)
    world.died.update(died)
    await world.live(200)
    assert await world.downs() == {}
    private_redis.start()
    world.hub.fails = None
    back = world.clock.time()
    await world.live(round(GRACE + THRESHOLD + 3 * SCAN) + 30)
    assert world.statuses <= {202, 503}
    assert (503 in world.statuses) is not hub_answers
    downs = await world.downs()
    assert set(downs) == {f"agent-{n}" for n in died}
    latest = back + GRACE + THRESHOLD + 3 * SCAN
    assert all(event.occurred_at.timestamp() <= latest for event in downs.values())


async def test_fifteen_minutes_without_any_collector_end_with_exactly_the_dead(world):
    """C14 through the doors: the new processes find the registry and presence that Redis kept."""
    await world.close()
    await world.live(400)
    died = world.rng.sample(range(AGENTS), 3)
    world.died.update(died)
    await world.live(500)
    world.open()
    back = world.clock.time()
    await world.live(round(GRACE + THRESHOLD + 3 * SCAN) + 30)
    assert world.statuses == {202}
    downs = await world.downs()
    assert set(downs) == {f"agent-{n}" for n in died}
    latest = back + GRACE + THRESHOLD + 3 * SCAN
    assert all(event.occurred_at.timestamp() <= latest for event in downs.values())


async def test_a_bus_that_is_full_for_five_minutes_makes_no_false_down(world):
    """Whoever hears 503 backs off for longer than its silence may last; nobody was blind here."""
    for door in world.doors:
        door.bus.full = True
    await world.live(150)
    died = world.rng.sample(range(AGENTS), 3)
    world.died.update(died)
    await world.live(150)
    for door in world.doors:
        door.bus.full = False
    back = world.clock.time()
    await world.live(round(GRACE + THRESHOLD + 3 * SCAN) + 30)
    assert world.statuses == {202, 503}
    downs = await world.downs()
    assert set(downs) == {f"agent-{n}" for n in died}
    latest = back + GRACE + THRESHOLD + 3 * SCAN
    assert all(event.occurred_at.timestamp() <= latest for event in downs.values())


async def test_an_agent_that_only_the_registry_knows_is_asked_to_come_later(world, private_redis):
    """The admin door was given it and the hub answers 404: while Redis is away nobody can tell."""
    record = world.hub.active("pushed", "token-pushed", server_id="pushed")
    await world.doors[0].directory.put(record)
    del world.hub.records["pushed"]
    headers = {
        "Authorization": "Bearer token-pushed",
        "X-AH-Proto": "1",
        "Content-Type": "application/x-protobuf",
    }

    async def statuses():
        body = MetricsBatch(seq=1).SerializeToString()
        replies = [
            await door.http.post("/agent/v1/metrics", content=body, headers=headers)
            for door in world.doors
        ]
        return [(one.status_code, one.headers.get("retry-after")) for one in replies]

    private_redis.kill()
    for _ in range(2):
        assert await statuses() == [(503, "30")] * 2
        world.clock.advance(60)
    private_redis.start()
    assert await statuses() == [(202, None)] * 2
    world.clock.advance(60)
    headers["Authorization"] = "Bearer nobody's"
    assert [status for status, _ in await statuses()] == [401, 401]
