"""Redis forgets all while processes live: they notice, say so once, and declare nobody for it."""

import pytest

from ahcollector.detector import Detector
from ahcollector.errors import PresenceError
from ahcollector.metrics import PRESENCE_LOST, PrometheusMetrics
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef
from ahcollector.testing import FakeClock
from ahwire import EventType

pytestmark = [pytest.mark.anyio, pytest.mark.service]
REFS = [AgentRef(agent_id=f"agent-{n}", company_id="acme", server_id="s") for n in range(20)]
INTERVAL = 30.0


@pytest.fixture
def forget(keys_of):
    """Take away all keys of a client's prefix, as if Redis had begun without its data."""

    async def forget(client):
        await client.call("DEL", *(client.prefix + key for key in await keys_of(client)))

    return forget


def told(caplog):
    return [line for line in caplog.records if line.getMessage().startswith("Redis forgot")]


def lost(metrics):
    [line] = [
        line
        for line in metrics.exposition().decode().splitlines()
        if line.startswith(PRESENCE_LOST.name + " ")
    ]
    return float(line.split()[1])


class Process:
    def __init__(self, new, name, clock, outbox):
        self.metrics = PrometheusMetrics()
        self.presence = new(name=name, clock=clock, metrics=self.metrics)
        self.client = new.client(self.presence)
        self.detector = Detector(presence=self.presence, outbox=outbox, clock=clock)


class World:
    """Two processes, and agents that speak to the first; the registry makes them known."""

    def __init__(self, new):
        self.clock = FakeClock()
        self.outbox = MemoryOutbox()
        self.processes = [Process(new, name, self.clock, self.outbox) for name in ("one", "two")]
        self.alive = set(REFS)

    async def know(self):
        for ref in REFS:
            await self.processes[0].presence.ensure(ref, self.clock.time(), INTERVAL)

    async def live(self, seconds):
        for second in range(0, seconds, 5):
            self.clock.advance(5)
            for process in self.processes:
                await process.presence.beacon(self.clock.time())
            if second % INTERVAL == 0:
                for ref in self.alive:
                    await self.processes[0].presence.touch(ref, self.clock.time(), INTERVAL)
            if second % 10 == 0:
                for process in self.processes:
                    await process.detector.scan()

    async def events(self):
        return [
            (entry.event.type, entry.event.agent_id) for entry in await self.outbox.peek(10_000)
        ]


@pytest.fixture
async def world(shared):
    world = World(shared)
    await world.know()
    await world.live(600)
    world.alive -= {REFS[0], REFS[1]}
    await world.live(200)
    assert sorted(await world.events()) == [
        (EventType.AGENT_DOWN, "agent-0"),
        (EventType.AGENT_DOWN, "agent-1"),
    ]
    return world


async def test_each_process_says_once_what_is_lost_and_gives_a_grace(world, forget, caplog):
    """No flood: of those that are heard nobody is told; of those that are not, a down each."""
    await forget(world.processes[0].client)
    await world.know()
    begin = world.clock.time()
    # One agent that was down is heard again, and nothing ends its alert: that is what is said.
    world.alive.add(REFS[0])
    await world.live(300)
    lines = told(caplog)
    assert [line.levelname for line in lines] == ["ERROR", "ERROR"]
    assert {(line.agents_down_before, line.transitions_before) for line in lines} == {(2, 0)}
    assert all("end the alerts" in line.getMessage() for line in lines)
    assert [lost(process.metrics) for process in world.processes] == [1.0, 1.0]
    assert len(await world.events()) == 2
    # The other one is told again after the grace, and its up ends both.
    await world.live(300)
    assert (await world.events())[2:] == [(EventType.AGENT_DOWN, "agent-1")]
    newest = (await world.outbox.peek(10))[-1].event
    assert newest.occurred_at.timestamp() - begin > 300 + INTERVAL
    world.alive.add(REFS[1])
    await world.live(600)
    assert (await world.events())[3:] == [(EventType.AGENT_UP, "agent-1")]
    assert len(told(caplog)) == 2


async def test_who_was_not_heard_since_is_not_declared_before_the_grace_is_over(world, forget):
    """Agents can be in their longest backoff."""
    world.alive.clear()
    await forget(world.processes[1].client)
    await world.know()
    await world.live(400)
    assert len(await world.events()) == 2
    await world.live(100)
    assert len(await world.events()) == 2 + len(REFS)


async def test_the_detector_is_told_once_by_an_error(shared, forget):
    presence = shared(name="one")
    await presence.ingest_sight()
    await forget(shared.client(presence))
    with pytest.raises(PresenceError, match="Redis forgot presence"):
        await presence.ingest_sight()
    assert await presence.ingest_sight() is None
    await forget(shared.client(presence))
    # Also when the beacon of the same process was the first to notice.
    await presence.beacon(1_700_000_000.0)
    with pytest.raises(PresenceError, match="Redis forgot presence"):
        await presence.ingest_sight()
    assert await presence.ingest_sight() is not None


async def test_a_process_that_begins_or_loses_replies_notices_no_loss(shared, caplog):
    metrics = PrometheusMetrics()
    one = shared(name="one", metrics=metrics)
    client = shared.client(one)
    for call in range(3):
        client.fails = {client.calls + call: "reply lost"}
        try:
            await one.ingest_sight()
        except PresenceError as error:
            assert "injected" in str(error)  # noqa: PT017 - some of the calls need no third command
    client.fails = {}
    await one.ingest_sight()
    two = shared(name="two")
    await two.ingest_sight()
    await two.beacon(1_700_000_000.0)
    await one.beacon(1_700_000_000.0)
    assert told(caplog) == []
    assert lost(metrics) == 0


@pytest.mark.parametrize("call", range(3))
async def test_a_loss_is_told_once_though_a_reply_is_lost(shared, forget, caplog, call):
    presence = shared(name="one")
    client = shared.client(presence)
    await presence.ingest_sight()
    await forget(client)
    client.fails = {client.calls + call: "reply lost"}
    with pytest.raises(PresenceError, match="injected"):
        await presence.ingest_sight()
    client.fails = {}
    with pytest.raises(PresenceError, match="Redis forgot presence"):
        await presence.ingest_sight()
    assert await presence.ingest_sight() is None
    assert len(told(caplog)) == 1
