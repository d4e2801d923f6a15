"""The detector over a memory presence and a memory outbox, in fake time."""

import random

import anyio
import pytest

from ahcollector.detector import Detector
from ahcollector.errors import OutboxError, PresenceError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef, IngestBeacon, MemoryPresence
from ahcollector.testing import FakeClock
from ahwire import EventType, UUID7Generator

pytestmark = pytest.mark.anyio
A = AgentRef(agent_id="a", company_id="acme", server_id="web-1")
DOWN, UP = EventType.AGENT_DOWN, EventType.AGENT_UP


class Failing:
    """Passes calls on; while `error` is set, every call raises it."""

    def __init__(self, target):
        self.target = target
        self.error = None

    def __getattr__(self, name):
        if self.error is not None:
            raise self.error
        return getattr(self.target, name)


class World:
    """A collector that has been up for long, and sees."""

    def __init__(self):
        self.clock = FakeClock()
        ids = UUID7Generator(self.clock, random.Random(1))
        self.memory = MemoryPresence(event_ids=ids.next)
        self.presence = Failing(self.memory)
        self.outbox = Failing(MemoryOutbox())
        self.metrics = PrometheusMetrics()
        self.detector = self.new_detector()
        self.beacons = True
        self.alive = {}

    def new_detector(self):
        return Detector(
            presence=self.presence, outbox=self.outbox, clock=self.clock, metrics=self.metrics
        )

    async def run(self, seconds):
        """Each second: beacons and contacts as they come, and a scan every ten."""
        for _ in range(seconds):
            self.clock.advance(1)
            now = self.clock.time()
            second = round(self.clock.monotonic())
            if self.beacons and second % 5 == 0:
                await self.memory.beacon(now)
            for agent, phase in self.alive.items():
                if second % 30 == phase:
                    await self.memory.touch(agent, now, None)
            if second % 10 == 0:
                await self.detector.scan()

    async def start(self, alive=True):
        await self.memory.beacon(self.clock.time())
        await self.run(500)
        if alive:
            self.alive[A] = 7
            await self.run(60)

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)

    async def events(self):
        return [entry.event for entry in await self.outbox.target.peek(1_000)]

    async def kinds(self):
        return [event.type for event in await self.events()]


async def test_silence_is_one_down_and_a_contact_one_up():
    world = World()
    await world.start()
    del world.alive[A]
    await world.run(300)
    assert await world.kinds() == [DOWN]
    [down] = await world.events()
    silent = (down.occurred_at.timestamp()) - (await world.memory.agents())[0].last_seen
    assert 90 < silent <= 100
    assert world.value("ahc_agents_down") == 1
    world.alive[A] = 7
    await world.run(300)
    assert await world.kinds() == [DOWN, UP]
    assert world.value("ahc_agents_down") == 0
    assert world.value("ahc_events_emitted_total", type="agent.down") == 1
    assert world.value("ahc_events_emitted_total", type="agent.up") == 1
    assert world.value("ahc_events_retry") == 0
    assert world.value("ahc_events_lost_total", type="agent.down") == 0
    assert world.value("ahc_last_scan_timestamp_seconds") > 0


async def test_nothing_is_declared_in_the_first_two_intervals():
    world = World()
    await world.memory.touch(A, world.clock.time() - 1_000, None)
    world.alive.clear()
    await world.memory.beacon(world.clock.time())
    for _ in range(6):
        report = await world.detector.scan()
        assert not report.declaring
        world.clock.advance(9.99)
        await world.memory.beacon(world.clock.time())
    assert await world.kinds() == []


async def test_an_outbox_that_fails_loses_nothing_and_repeats_nothing():
    """Down and up both wait, in order, under the ids they were decided with."""
    world = World()
    await world.start()
    del world.alive[A]
    world.outbox.error = OutboxError("full")
    await world.run(300)
    assert world.value("ahc_events_retry") == 1
    [decided] = await world.memory.pending(10)
    world.alive[A] = 7
    await world.run(60)
    assert world.value("ahc_events_retry") == 2
    world.outbox.error = None
    await world.run(20)
    assert await world.kinds() == [DOWN, UP]
    assert (await world.events())[0].event_id == decided.event_id


async def test_a_presence_store_that_fails_for_ten_minutes_gives_no_down():
    """C15: frozen while it fails, a fresh grace afterwards; who really died is found."""
    world = World()
    dead = AgentRef(agent_id="dead", company_id="acme", server_id="web-2")
    world.alive[dead] = 3
    await world.start()
    world.presence.error = PresenceError("no answer")
    # Nobody's contact is noted either: the store is gone for the ingest too.
    contacts, world.alive = world.alive, {}
    world.beacons = False
    await world.run(600)
    assert await world.kinds() == []
    assert world.value("ahc_detector_blind") == 1
    world.presence.error = None
    world.beacons = True
    await world.run(300)
    assert await world.kinds() == []
    assert world.value("ahc_detector_blind") == 0
    world.alive = {A: contacts[A]}
    # The blindness ends with the first scan that sees, and a scan finds the dead: 10 s each.
    await world.run(330 + 90 + 20 - 300)
    assert [event.agent_id for event in await world.events()] == ["dead"]
    await world.run(600)
    assert [event.agent_id for event in await world.events()] == ["dead"]


async def test_no_ingest_no_judgement():
    """No beacon: frozen; afterwards the living have time to come back."""
    world = World()
    await world.start()
    contacts, world.alive = world.alive, {}
    world.beacons = False
    await world.run(900)
    assert await world.kinds() == []
    world.beacons = True
    await world.run(299)
    world.alive = contacts
    await world.run(600)
    assert await world.kinds() == []


@pytest.mark.parametrize("step", [-3_600, 3_600, 13 * 3_600])
async def test_a_step_of_the_wall_clock_is_no_down(step):
    """C17. And who dies after it is found within grace and threshold."""
    world = World()
    await world.start()
    world.clock.step_wall(step)
    await world.run(900)
    assert await world.kinds() == []
    world.clock.step_wall(step)
    del world.alive[A]
    await world.run(330 + 90 + 20)
    assert await world.kinds() == [DOWN]


@pytest.mark.parametrize("late", [0.0, 0.001])
async def test_a_heartbeat_at_the_edge_of_the_deadline(late):
    """C16: at it: nothing; a millisecond after, while the scan runs: down then up, seq rising."""
    world = World()
    await world.start(alive=False)
    heard = world.clock.time()
    await world.memory.touch(A, heard, None)
    for _ in range(8):
        world.clock.advance(10)
        await world.memory.beacon(world.clock.time())
        await world.detector.scan()
    world.clock.advance(10 + late)
    await world.memory.beacon(world.clock.time())

    # The contact comes between the decision and the outbox.
    async def append(events, now):
        await world.memory.touch(A, world.clock.time(), None)
        return await MemoryOutbox.append(world.outbox.target, events, now)

    class Between:
        def __getattr__(self, name):
            return append if name == "append" else getattr(world.outbox.target, name)

    world.detector._outbox = Between()
    await world.detector.scan()
    await world.memory.touch(A, world.clock.time(), None)
    await world.detector.scan()
    if late:
        assert await world.kinds() == [DOWN, UP]
        down, up = await world.events()
        assert up.seq > down.seq
    else:
        assert await world.kinds() == []


async def test_a_scan_goes_on_until_there_is_no_more():
    """More than a page went down at once."""
    world = World()
    await world.start(alive=False)
    for number in range(1_201):
        ref = AgentRef(agent_id=f"a{number}", company_id="acme", server_id=f"s{number}")
        await world.memory.touch(ref, world.clock.time(), None)
    await world.run(90)
    world.clock.advance(1)
    await world.memory.beacon(world.clock.time())
    report = await world.detector.scan()
    assert (report.emitted, report.complete, report.declaring) == (1_201, True, True)


async def test_run_scans_until_cancelled_and_goes_on_after():
    """Cancelled anywhere; a new run goes on."""
    world = World()
    clock = world.clock
    beacon = IngestBeacon(presence=world.presence, clock=clock)
    await world.memory.touch(A, clock.time(), None)
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beacon.run)
            tasks.start_soon(world.detector.run)
            await clock.run_for(100)
            tasks.cancel_scope.cancel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beacon.run)
        tasks.start_soon(world.detector.run)
        await clock.run_for(500)
        tasks.cancel_scope.cancel()
    assert await world.kinds() == [DOWN]


async def test_a_beacon_that_cannot_be_written_is_written_later():
    world = World()
    world.presence.error = PresenceError("no answer")
    beacon = IngestBeacon(presence=world.presence, clock=world.clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beacon.run)
        await world.clock.run_for(20)
        world.presence.error = None
        await world.clock.run_for(6)
        tasks.cancel_scope.cancel()
    assert await world.memory.ingest_sight() is not None


class FullDisk:
    """A snapshot that cannot be saved while it is full."""

    full = False

    def save(self, chunks):
        del chunks
        if self.full:
            raise OSError(28, "no space left on device")


def lines(caplog, text):
    return [record for record in caplog.records if text in record.getMessage()]


async def test_a_door_that_begins_after_the_detector_is_no_warning(caplog):
    caplog.set_level("INFO", "ahcollector.detector")
    world = World()
    await world.detector.scan()
    assert world.value("ahc_detector_blind") == 1
    await world.run(500)
    assert lines(caplog, "the detector is blind") == lines(caplog, "sees again") == []
    [grace] = lines(caplog, "agents have a grace")
    assert grace.ended_at == "2023-11-14T22:13:30.000Z"


async def test_a_door_that_never_begins_is_a_warning(caplog):
    caplog.set_level("INFO", "ahcollector.detector")
    world = World()
    world.beacons = False
    await world.detector.scan()
    await world.run(10)
    assert lines(caplog, "the detector is blind") == []
    await world.run(10)
    [warning] = lines(caplog, "the detector is blind")
    assert warning.levelname == "WARNING"
    assert warning.why == (
        "no ingest process tells that it hears agents: see that one runs, with an IngestBeacon "
        "beside its door"
    )


async def test_an_hour_of_a_full_disk_is_a_warning_a_minute_and_one_line_at_its_end(caplog):
    """W29: each scan sees at first, and fails when it must keep what it decided."""
    caplog.set_level("INFO", "ahcollector.detector")
    world = World()
    disk = FullDisk()
    ids = UUID7Generator(world.clock, random.Random(1))
    world.memory = MemoryPresence(event_ids=ids.next, snapshot=disk)
    world.presence.target = world.memory
    await world.start()
    caplog.clear()
    disk.full = True
    del world.alive[A]
    await world.run(3_600)
    warnings = lines(caplog, "the detector is blind")
    assert 30 <= len(warnings) <= 60
    assert "no space" in warnings[-1].why
    assert lines(caplog, "sees again") == []
    assert world.value("ahc_detector_blind") == 1
    disk.full = False
    await world.run(600)
    assert len(lines(caplog, "sees again")) == 1
    assert world.value("ahc_detector_blind") == 0
    assert await world.kinds() == [DOWN]


async def test_an_hour_of_a_full_outbox_is_a_warning_a_minute_and_one_line_at_its_end(caplog):
    caplog.set_level("INFO", "ahcollector.detector")
    world = World()
    await world.start()
    world.outbox.error = OutboxError("full")
    del world.alive[A]
    await world.run(3_600)
    assert 30 <= len(lines(caplog, "events wait for the outbox")) <= 60
    world.outbox.error = None
    await world.run(60)
    assert len(lines(caplog, "takes events again")) == 1


async def test_a_trouble_that_comes_and_goes_is_told_once_a_minute_at_most(caplog):
    caplog.set_level("INFO", "ahcollector.detector")
    world = World()
    await world.start()
    caplog.clear()
    for scan in range(360):
        world.presence.error = PresenceError("no answer") if scan % 2 else None
        await world.run(10)
    assert len(lines(caplog, "the detector is blind")) <= 60
    assert len(lines(caplog, "sees again")) <= 60


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="scan_interval_seconds"):
        Detector(presence=None, outbox=None, clock=FakeClock(), scan_interval_seconds=0)
