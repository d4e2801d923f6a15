"""Processes whose clocks differ agree on the time, and on who is silent."""

import random

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.detector import Detector
from ahcollector.errors import RedisError
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef
from ahcollector.shared_clock import SharedClock
from ahcollector.testing import FakeClock
from ahwire import UUID7Generator

pytestmark = pytest.mark.anyio
START = 1_800_000_000.0


class Server:
    """The clock that is asked; an answer takes `takes` seconds, half of them each way."""

    def __init__(self, clock, *, takes=0.0):
        self.clock = clock
        self.takes = takes
        self.ahead = 0.0
        self.fails = False

    async def time(self):
        if self.fails:
            raise RedisError("gone")
        self.clock.advance(self.takes / 2)
        instant = self.clock.time() + self.ahead
        self.clock.advance(self.takes / 2)
        return instant


class Machine:
    """A machine's own clock: another wall time, the same seconds."""

    def __init__(self, true, off):
        self.true = true
        self.off = off

    def time(self):
        return self.true.time() + self.off

    def monotonic(self):
        return self.true.monotonic()

    async def sleep(self, seconds):
        await self.true.sleep(seconds)


@given(off=st.floats(-1e8, 1e8), takes=st.floats(0, 0.5))
def test_after_a_reading_the_time_is_the_servers_to_half_the_round_trip(off, takes):
    async def scenario():
        true = FakeClock(START)
        server = Server(true, takes=takes)
        clock = SharedClock(read=server.time, clock=Machine(true, off))
        assert clock.time() == pytest.approx(true.time() + off, abs=1e-3)
        await clock.set()
        assert abs(clock.time() - true.time()) <= takes / 2 + 0.006

    anyio.run(scenario)


async def test_a_step_of_the_machines_own_clock_moves_nothing():
    true = FakeClock(START)
    machine = Machine(true, 5.0)
    clock = SharedClock(read=Server(true).time, clock=machine)
    await clock.set()
    machine.off = 3_600.0
    true.advance(7)
    assert clock.time() == pytest.approx(true.time(), abs=0.01)


async def test_a_slow_answer_moves_the_time_no_further_than_it_must():
    true = FakeClock(START)
    server = Server(true)
    clock = SharedClock(read=server.time, clock=true)
    await clock.set()
    before = clock.time() - true.time()
    server.takes = 0.4
    server.ahead = 0.15
    await clock.set()
    assert clock.time() - true.time() == pytest.approx(before, abs=1e-6)


async def test_an_outage_is_told_once_and_the_time_goes_on(caplog):
    true = FakeClock(START)
    server = Server(true)
    clock = SharedClock(read=server.time, clock=Machine(true, 100.0), interval_seconds=5.0)
    async with anyio.create_task_group() as group:
        group.start_soon(clock.run)
        await true.run_for(1)
        assert clock.time() == pytest.approx(true.time(), abs=0.01)
        server.fails = True
        await true.run_for(30)
        assert caplog.text.count("the shared time cannot be read") == 1
        assert clock.time() == pytest.approx(true.time(), abs=0.01)
        server.fails = False
        server.ahead = 50.0
        await true.run_for(6)
        assert clock.time() == pytest.approx(true.time() + 50.0, abs=0.01)
        group.cancel_scope.cancel()


async def test_the_servers_step_is_one_that_the_detector_can_see():
    """Against the steady clock, which is how it tells a step from time."""
    true = FakeClock(START)
    server = Server(true)
    clock = SharedClock(read=server.time, clock=true)
    await clock.set()
    wall, steady = clock.time(), clock.monotonic()
    server.ahead = 3_600.0
    true.advance(5)
    await clock.set()
    assert (clock.time() - wall) - (clock.monotonic() - steady) == pytest.approx(3_600.0, abs=0.01)


@pytest.mark.service
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("off", [120.0, 3_600.0, -3_600.0])
async def test_two_processes_an_hour_apart_declare_nobody(private_redis, off, shared):
    """C17: and without the shared time they would, so that the test can fail."""
    from ahcollector.presence.redis import RedisPresence
    from ahcollector.redis import RedisClient, RedisConfig

    true, rng = FakeClock(START), random.Random(1)
    server = Server(true)
    client = RedisClient(config=RedisConfig(port=private_redis.port, prefix="clocks:"))
    outbox = MemoryOutbox()
    sides = []
    for name, ahead in (("one", 0.0), ("two", off)):
        machine = Machine(true, ahead)
        clock = SharedClock(read=server.time, clock=machine) if shared else machine
        if shared:
            await clock.set()
        ids = UUID7Generator(clock, rng)
        presence = RedisPresence(client=client, event_ids=ids.next, name=name, clock=clock)
        detector = Detector(presence=presence, outbox=outbox, clock=clock)
        sides.append((clock, presence, detector))
    agents = [AgentRef(agent_id=f"a{n}", company_id="c", server_id="s") for n in range(10)]
    for second in range(0, 900, 5):
        true.advance(5)
        for clock, presence, _ in sides:
            await presence.beacon(clock.time())
        if second % 30 == 0:
            for n, agent in enumerate(agents):
                clock, presence, _ = sides[n % 2]
                await presence.touch(agent, clock.time(), 30.0)
        if second % 10 == 0:
            for _, _, detector in sides:
                await detector.scan()
    events = await outbox.peek(1000)
    assert (len(events) == 0) is shared
    await client.aclose()
