"""A day and more offline, in fast time: what is on disk, what is counted, what arrives.

The collector of these tests is a transport in the same process and the disk is a simulated one
under the real WAL, so that a day takes a second. The points that arrive are compared one by one
with those that were produced.
"""

import logging
import random

import pytest

from ahwal import WAL, DropReason, MemoryQueue, Sample, Sender, TransportError
from ahwal.errors import WALReadError, WALWriteError
from ahwal.testing import FakeClock, SimulatedDisk
from ahwal.transport import ConfigReply, Reply
from ahwire import limits
from ahwire.agent_pb2 import MetricsAck, MetricsBatch
from ahwire.codec import decompress

pytestmark = pytest.mark.anyio
HOUR = 3600.0


@pytest.fixture
def anyio_backend():
    # The backends differ in nothing that these tests look at.
    return "asyncio"


class Collector:
    """A transport that can be cut off, and remembers each point by its value."""

    def __init__(self, clock):
        self.clock = clock
        self.online = True
        self.points = {}
        self.requests = 0

    async def post_metrics(self, body, *, coding):
        self.requests += 1
        if not self.online:
            raise TransportError("no route to host", request_id="0" * 16)
        batch = MetricsBatch.FromString(decompress(body, coding, limits.MAX_PLAIN_BYTES))
        oldest = (self.clock.time() - limits.MAX_POINT_AGE_SECONDS) * 1000
        count = 0
        for series in batch.series:
            for point in series.points:
                assert point.ts_ms >= oldest, "a point that a collector would refuse"
                self.points[point.value] = point.ts_ms
                count += 1
        ack = MetricsAck(
            ack_seq=batch.seq,
            accepted_points=count,
            server_time_ms=round(self.clock.time() * 1000),
        )
        return Reply(status=202, ack=ack)

    async def get_config(self, etag=""):
        return ConfigReply(status=200)

    def clear_token(self):
        pass


class World:
    """A sender over a queue, a producer whose every value is another one, and the law."""

    def __init__(self, queue, *, interval_seconds=300.0, clock=None, **options):
        self.clock = clock or FakeClock()
        self.collector = Collector(self.clock)
        self.queue = queue
        self.interval_seconds = interval_seconds
        self.produced = 0
        self.rng = random.Random(3)
        self.sender = Sender(
            queue=queue,
            transport=self.collector,
            clock=self.clock,
            rng=random.Random(7),
            interval_seconds=interval_seconds,
            **options,
        )

    async def cycle(self, points=5, *, text_bytes=0):
        text = self.rng.randbytes(text_bytes // 2).hex()
        first, self.produced = self.produced, self.produced + points
        await self.sender.enqueue(
            [
                Sample("work", first + index, {"noise": text[index * 400 : index * 400 + 400]})
                for index in range(points)
            ]
        )
        await self.sender.tick()
        self.clock.step(self.interval_seconds)
        return self.checked()

    async def drain(self):
        for _ in range(1000):
            if not self.sender.status().queued_batches:
                break
            await self.sender.tick()
            self.clock.step(self.interval_seconds)
        assert self.sender.status().queued_batches == 0
        # What the queue gave up while it was drained is noticed when it is read once more.
        await self.sender.tick()
        return self.checked()

    def checked(self):
        status = self.sender.status()
        lost = sum(status.dropped.values())
        assert status.produced + status.inherited == status.delivered + lost + status.queued
        return status


def open_wal(disk, clock, **options):
    return WAL.open("simulated", storage=disk.storage(), clock=clock, **options)


async def offline_for(hours, world, disk, *, cap_bytes, text_bytes, points=5):
    """Produce without a collector, and look at the disk after each cycle."""
    world.collector.online = False
    largest = 0
    for _ in range(round(hours * HOUR / world.interval_seconds)):
        status = await world.cycle(points, text_bytes=text_bytes)
        size = disk.used_bytes
        assert size <= cap_bytes + 4096, "over the cap plus the record being written"
        largest = max(largest, size)
        known = status.queued + sum(status.dropped.values())
        # Nothing waits for the next read of the queue to be counted.
        assert known == world.produced
    return largest


@pytest.mark.parametrize(
    ("hours", "interval_seconds"),
    [(30, 1200), pytest.param(24, 60, marks=pytest.mark.nightly)],
)
async def test_after_a_day_offline_the_counters_are_what_was_really_lost(hours, interval_seconds):
    # W13 and W30: the size cap gives up the oldest, then the window does.
    disk, clock, cap_bytes = SimulatedDisk(), FakeClock(), 80 * 1024
    with open_wal(
        disk, clock, max_bytes=cap_bytes, max_age_seconds=48 * HOUR, segment_bytes=8_192
    ) as queue:
        world = World(queue, clock=clock, interval_seconds=interval_seconds)
        largest = await offline_for(hours, world, disk, cap_bytes=cap_bytes, text_bytes=2000)
        assert largest > cap_bytes * 0.8
        world.collector.online = True
        status = await world.drain()
    arrived = world.collector.points
    assert status.delivered == len(arrived)
    assert sum(status.dropped.values()) == world.produced - len(arrived)
    assert status.dropped[DropReason.EVICTED] > 0
    used = {reason for reason, count in status.dropped.items() if count}
    assert used <= {DropReason.EVICTED, DropReason.TOO_OLD}
    # The survivors are the newest, without a gap.
    assert sorted(arrived) == list(range(world.produced - len(arrived), world.produced))


async def test_thirty_hours_offline_against_a_window_of_a_day_drop_six_of_them_and_log_one_line(
    tmp_path, caplog
):
    # W30.
    disk = SimulatedDisk()
    clock = FakeClock()
    with open_wal(disk, clock, max_age_seconds=7 * 24 * HOUR) as queue:
        world = World(queue, clock=clock, interval_seconds=900.0)
        world.collector.online = False
        for _ in range(120):
            await world.cycle()
        world.collector.online = True
        caplog.clear()
        status = await world.drain()
    assert status.dropped[DropReason.EVICTED] == 0
    assert status.delivered == len(world.collector.points)
    assert status.dropped[DropReason.TOO_OLD] == world.produced - len(world.collector.points)
    assert 22 * 5 <= status.dropped[DropReason.TOO_OLD] <= 27 * 5
    told = [r for r in caplog.records if "older than the collector's window" in r.getMessage()]
    assert 1 <= len(told) <= 3


async def test_one_old_point_in_a_batch_of_a_thousand_costs_only_itself():
    # W30: in one batch, as a program may build it itself.
    disk = SimulatedDisk()
    clock = FakeClock()
    now_ms = round(clock.time() * 1000)
    batch = MetricsBatch(seq=1, collected_at_ms=now_ms)
    for index in range(1000):
        series = batch.series.add(name="work")
        series.labels.add(name="index", value=str(index))
        series.points.add(ts_ms=now_ms - (25 * 3_600_000 if index == 500 else 0), value=index)
    with open_wal(disk, clock) as queue:
        queue.append(batch.SerializeToString())
        world = World(queue, clock=clock)
        status = await world.drain()
    assert sorted(world.collector.points) == [n for n in range(1000) if n != 500]
    assert status.dropped[DropReason.TOO_OLD] == 1
    assert status.inherited == 1000


@pytest.mark.nightly
async def test_a_hundred_mebibytes_offline_against_a_cap_of_ten():
    # W13, whole: incompressible batches of 100 KiB.
    disk, clock, cap_bytes = SimulatedDisk(), FakeClock(), 10 << 20
    with open_wal(disk, clock, max_bytes=cap_bytes) as queue:
        world = World(queue, clock=clock, interval_seconds=30.0)
        world.collector.online = False
        for _ in range(1024):
            await world.cycle(500, text_bytes=400 * 500)
            assert disk.used_bytes <= cap_bytes + 256 * 1024
        world.collector.online = True
        status = await world.drain()
    arrived = world.collector.points
    assert sorted(arrived) == list(range(world.produced - len(arrived), world.produced))
    assert status.dropped[DropReason.EVICTED] == world.produced - len(arrived) > 0


@pytest.mark.nightly
async def test_a_days_backlog_of_1000_points_a_batch_drains_in_45_minutes():
    disk, clock = SimulatedDisk(), FakeClock()
    batch = MetricsBatch()
    for index in range(1000):
        series = batch.series.add(name="work")
        series.labels.add(name="index", value=str(index))
        series.points.add()
    with open_wal(disk, clock, max_bytes=1 << 30, max_age_seconds=None) as queue:
        for number in range(2_880):
            batch.seq = number + 1
            batch.collected_at_ms = round(clock.time() * 1000)
            for index, series in enumerate(batch.series):
                series.points[0].ts_ms = batch.collected_at_ms
                series.points[0].value = number * 1000 + index
            queue.append(batch.SerializeToString())
            clock.step(30)
        world = World(queue, clock=clock, interval_seconds=30.0)
        started = clock.monotonic()
        status = await world.drain()
    assert clock.monotonic() - started <= 45 * 60
    # The oldest pass the window of a day while they wait for their turn.
    assert status.dropped[DropReason.TOO_OLD] <= 5_000
    assert status.delivered == len(world.collector.points)
    assert status.delivered + status.dropped[DropReason.TOO_OLD] == 2_880_000


class FlakyDisk(MemoryQueue):
    """A durable queue whose disk refuses to write, or to read, when it is told so."""

    write_error = read_error = False
    reads = 0

    def append(self, data):
        if self.write_error:
            raise WALWriteError("input/output error")
        return super().append(data)

    def peek(self, max_entries, max_bytes):
        self.reads += 1
        if self.read_error:
            raise WALReadError("input/output error", entry_id=1)
        return super().peek(max_entries, max_bytes)


async def test_a_disk_that_comes_and_goes_loses_nothing_and_keeps_the_order():
    clock = FakeClock()
    disk = FlakyDisk(max_bytes=1 << 20, clock=clock)
    world = World(disk, clock=clock)
    world.collector.online = False
    for turn in range(12):
        disk.write_error = turn % 3 != 0
        await world.cycle()
        await world.cycle()
        assert world.checked().on_disk is not disk.write_error
    disk.write_error = False
    await world.cycle()
    world.collector.online = True
    status = await world.drain()
    assert status.delivered == world.produced
    assert list(world.collector.points) == list(range(world.produced))
    assert sum(status.dropped.values()) == 0


async def test_what_memory_cannot_hold_while_the_disk_fails_is_counted_at_once():
    clock = FakeClock()
    disk = FlakyDisk(max_bytes=1 << 20, clock=clock)
    disk.write_error = True
    world = World(disk, clock=clock, memory_bytes_max=2000)
    world.collector.online = False
    for _ in range(30):
        status = await world.cycle()
        assert status.queue_bytes <= 2000
        assert status.queued + status.dropped[DropReason.EVICTED] == world.produced
    assert status.dropped[DropReason.EVICTED] > 0
    disk.write_error = False
    world.collector.online = True
    status = await world.drain()
    await world.cycle()
    assert status.delivered + status.dropped[DropReason.EVICTED] == 150
    assert min(world.collector.points) == status.dropped[DropReason.EVICTED]


async def test_a_record_that_cannot_be_read_stops_neither_the_sender_nor_a_core(caplog):
    clock = FakeClock()
    disk = FlakyDisk(max_bytes=1 << 20, clock=clock)
    world = World(disk, clock=clock, interval_seconds=10.0)
    disk.read_error = True
    for _ in range(30):
        before = disk.reads
        await world.cycle()
        # One look a tick, and no request that nothing is in.
        assert disk.reads - before <= 2
    assert world.collector.requests == 0
    assert world.checked().queued == world.produced
    errors = [r for r in caplog.records if r.levelno >= logging.WARNING]
    # 300 s: one line a minute at most.
    assert 1 <= len(errors) <= 6
    caplog.set_level(logging.INFO, "ahwal.sender")
    disk.read_error = False
    status = await world.drain()
    assert status.delivered == world.produced
    assert caplog.text.count("the queue on disk can be read again") == 1


async def test_batches_in_memory_leave_although_the_disk_can_be_neither_read_nor_written():
    clock = FakeClock()
    disk = FlakyDisk(max_bytes=1 << 20, clock=clock)
    world = World(disk, clock=clock)
    world.collector.online = False
    await world.cycle()
    disk.read_error = disk.write_error = True
    world.collector.online = True
    clock.step(300)
    for _ in range(4):
        await world.cycle()
    assert sorted(world.collector.points) == list(range(5, world.produced))
    disk.read_error = disk.write_error = False
    await world.drain()
    assert sorted(world.collector.points) == list(range(world.produced))


async def test_a_disk_that_refuses_to_forget_what_was_delivered_does_not_make_it_look_lost():
    class Stubborn(FlakyDisk):
        refuse_after = 2

        def remove(self, entry_id):
            self.refuse_after -= 1
            if self.refuse_after < 0:
                raise WALWriteError("no space left on device")
            super().remove(entry_id)

    clock = FakeClock()
    disk = Stubborn(max_bytes=1 << 20, clock=clock)
    world = World(disk, clock=clock)
    world.collector.online = False
    for _ in range(4):
        await world.cycle()
    world.collector.online = True
    clock.step(300)
    await world.sender.tick()
    status = world.checked()
    assert (status.delivered, status.queued) == (10, 10)
    disk.refuse_after = 99
    status = await world.drain()
    assert (status.delivered, status.dropped[DropReason.EVICTED]) == (20, 0)


async def test_a_listener_that_raises_anything_costs_no_point(caplog):
    def listen(appended):
        raise TypeError("a mistake of the host program")

    clock = FakeClock()
    world = World(MemoryQueue(max_bytes=1 << 20, clock=clock), clock=clock, on_appended=listen)
    await world.cycle()
    assert world.checked().delivered == 5
    assert "the listener for appended batches failed" in caplog.text
