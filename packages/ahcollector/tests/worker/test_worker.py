"""The worker between an in-process bus and stores that fail as told, in fake time."""

import logging
import random

import anyio
import pytest

from ahcollector.bus import InProcessBus, shard_for
from ahcollector.clock import SystemClock
from ahcollector.errors import DeadBatchesError, PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.store import MemoryStore
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import MemoryDeadBatches, Worker

pytestmark = pytest.mark.anyio
OTHER = next(f"s{n}" for n in range(1_000) if shard_for(f"s{n}") != shard_for("web-1"))


class ScriptedStore:
    """Takes writes; a test sets what it refuses or fails with."""

    def __init__(self):
        self.writes = []
        self.tries = 0
        self.at_once = 0
        self.at_once_max = 0
        self.down = False
        self.poison = {}
        self.holds = None

    async def write(self, batches):
        self.tries += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            if self.holds is not None:
                await self.holds.wait()
            await anyio.sleep(0)
            if self.down:
                raise TemporaryStoreError("503")
            numbers = [int(batch.request_id, 16) for batch in batches]
            for number in numbers:
                if number in self.poison:
                    raise self.poison[number]
            self.writes.append(numbers)
        finally:
            self.at_once -= 1

    @property
    def stored(self):
        return [number for write in self.writes for number in write]


class World:
    def __init__(self, clock=None, **settings):
        self.clock = FakeClock() if clock is None else clock
        self.bus = InProcessBus(clock=self.clock, queue_batches_max=100_000)
        self.store = ScriptedStore()
        self.dead = MemoryDeadBatches()
        self.metrics = PrometheusMetrics()
        self.worker = self.new_worker(**settings)

    def new_worker(self, **settings):
        return Worker(
            bus=self.bus,
            clock=self.clock,
            rng=random.Random(1),
            dead_batches=self.dead,
            metrics=self.metrics,
            **{"store": self.store} | settings,
        )

    async def publish(self, *numbers, server_id="web-1"):
        for number in numbers:
            await self.bus.publish(batch_of(number, server_id=server_id))

    async def run(self, *steps):
        """Run the worker; between the steps so many seconds pass. Stop it at the end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.worker.run)
            await anyio.wait_all_tasks_blocked()
            for step in steps:
                if callable(step):
                    await step()
                else:
                    await self.clock.run_for(step)
            tasks.cancel_scope.cancel()

    def held(self):
        return sum(len(shard.held) for shard in self.bus._shards)


async def test_batches_wait_half_a_second_for_others_and_go_together():
    world = World()

    async def before():
        assert world.store.writes == []
        await world.publish(3)

    async def after():
        assert world.store.writes == [[1, 2, 3]]
        assert world.held() == 0

    await world.publish(1, 2)
    await world.run(0.49, before, 0.01, after)


async def test_enough_samples_go_at_once():
    world = World(flush_samples=3)
    await world.publish(1, 2, 3, 4)

    async def check():
        assert world.store.writes == [[1, 2, 3]]

    await world.run(check, 0.5)
    assert world.store.writes == [[1, 2, 3], [4]]


async def test_nothing_is_acknowledged_before_it_is_written():
    world = World()
    world.store.holds = anyio.Event()
    await world.publish(1)

    async def check():
        assert world.store.tries == 1
        assert world.held() == 1
        world.store.holds.set()
        await anyio.wait_all_tasks_blocked()
        assert world.held() == 0

    await world.run(0.5, check)


async def test_a_store_that_is_down_loses_nothing_and_is_asked_by_one_at_a_time():
    """Across all shards: one probe, with a growing wait; order holds within each shard."""
    world = World(flush_samples=2)
    servers = [f"s{n}" for n in range(100)]
    for round_number in range(3):
        for n, server in enumerate(servers):
            await world.publish(round_number * 100 + n, server_id=server)
    world.store.down = True

    async def check():
        # 60 shards fail once each; after that one probe at a time, up to 30 s apart.
        assert world.store.tries < 64 + 60
        world.store.tries = world.store.at_once_max = 0

    async def calm():
        assert world.store.tries <= 300 / 5
        assert world.store.at_once_max == 1
        world.store.down = False

    await world.run(60, check, 300, calm, 60)
    assert sorted(world.store.stored) == list(range(300))
    for n in range(100):
        mine = [number for number in world.store.stored if number % 100 == n]
        assert mine == [n, 100 + n, 200 + n]
    assert world.held() == 0


async def test_a_shard_with_four_unwritten_flushes_takes_no_more():
    world = World(flush_samples=5, shutdown_flush_seconds=0)
    world.store.down = True
    await world.publish(*range(100))

    async def check():
        assert world.worker.stats().pending_samples == 20
        assert world.bus.depth()[shard_for("web-1")] == 100 - 20 - 1

    await world.run(5, check)


async def test_a_refused_batch_is_set_aside_and_its_neighbours_are_written():
    world = World()
    world.store.poison = {2: PermanentStoreError("too many labels")}
    await world.publish(1, 2, 3)
    await world.run(0.5)
    assert world.store.stored == [1, 3]
    [letter] = await world.dead.letters()
    assert await world.dead.read(letter.letter_id) == batch_of(2)
    assert letter.reason == "PermanentStoreError: too many labels"
    assert world.held() == 0
    sample = world.metrics.registry.get_sample_value
    assert sample("ahc_tsdb_batches_dropped_total", {"reason": "refused"}) == 1
    assert sample("ahc_worker_batches_total") == 3
    assert world.worker.stats().samples_written == 2


async def test_a_batch_that_breaks_the_store_is_set_aside_after_five_tries():
    """C9, for what a store raises and should not."""
    world = World()
    world.store.poison = {2: ZeroDivisionError("bug")}
    await world.publish(1, 2, 3)
    await world.run(0.5)
    assert world.store.stored == [1, 3]
    # Once together, then alone: 1, five times 2, 3.
    assert world.store.tries == 1 + 1 + 5 + 1
    [letter] = await world.dead.letters()
    assert letter.reason == "ZeroDivisionError: bug"


async def test_a_dead_letter_that_cannot_be_kept_keeps_the_batch_on_the_bus():
    world = World()
    world.store.poison = {1: PermanentStoreError("no")}
    put = world.dead.put

    async def failing(batch, reason, now):
        raise DeadBatchesError("disk full")

    world.dead.put = failing

    async def check():
        assert world.held() == 1
        world.dead.put = put

    await world.publish(1)
    await world.run(10, check, 2)
    assert world.held() == 0
    assert len(await world.dead.letters()) == 1


async def test_every_line_about_batches_names_their_requests(caplog):
    world = World()
    world.store.down = True
    world.store.poison = {1: ZeroDivisionError("bug"), 2: PermanentStoreError("no")}
    put, failures = world.dead.put, []

    async def failing_once(batch, reason, now):
        if not failures:
            failures.append(reason)
            raise DeadBatchesError("disk full")
        await put(batch, reason, now)

    async def up():
        world.store.down = False

    world.dead.put = failing_once
    await world.publish(*range(20))
    with caplog.at_level(logging.DEBUG, "ahcollector.worker"):
        await world.run(1, up, 10)
    ids = [f"{number:016x}" for number in range(20)]
    told = {}
    for line in caplog.records:
        found = (
            [line.request_id] if hasattr(line, "request_id") else line.__dict__.get("request_ids")
        )
        told.setdefault(line.getMessage(), found)
    assert told == {
        "the store takes no samples": ids[:10],
        "the store takes samples again": None,
        "the store failed in an unexpected way": ids[:10],
        "a batch is set aside": ids[1:2],
        "a dead letter was not kept": ids[1:2],
        "dead letters are kept again": None,
    }


async def test_a_stop_writes_what_is_there():
    """Also what still waits on the bus, without waiting for the half second."""
    world = World(SystemClock(), flush_seconds=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.worker.run)
        await anyio.wait_all_tasks_blocked()
        await world.publish(1, 2)
        await world.publish(3, server_id=OTHER)
        tasks.cancel_scope.cancel()
    assert sorted(world.store.stored) == [1, 2, 3]
    assert world.held() == 0


async def test_a_stop_while_the_store_is_down_ends_and_leaves_the_rest_on_the_bus():
    world = World(shutdown_flush_seconds=0.05)
    world.store.down = True
    await world.publish(1, 2)
    with anyio.fail_after(3):
        await world.run(5)
    assert world.bus.depth()[shard_for("web-1")] == 2
    world.store.down = False
    await world.bus.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.new_worker().run)
        await world.clock.run_for(10)
    assert world.store.stored == [1, 2]


class SharedBus(InProcessBus):
    """What is left on it is others' to write."""

    is_shared = True


async def test_a_stop_while_the_store_hangs_does_not_use_up_its_time_where_others_share_the_bus():
    """B2, observed: a SIGTERM took 14 s, though nothing is lost by leaving."""

    class Hangs:
        async def write(self, batches):
            await anyio.sleep_forever()

    took = {}

    async def stop(bus):
        world = World(SystemClock(), flush_seconds=0.01)
        world.bus = bus(clock=world.clock)
        world.worker = world.new_worker(
            store=Hangs(), flush_seconds=0.01, shutdown_flush_seconds=4.5
        )
        await world.publish(1)
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.worker.run)
            await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
        took[bus] = anyio.current_time() - began
        assert world.bus.depth()[shard_for("web-1")] == 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop, SharedBus)
        tasks.start_soon(stop, InProcessBus)
    assert 2 <= took[SharedBus] < 4
    # Here they would be lost, so all the time is used that was given.
    assert took[InProcessBus] >= 4.5


async def test_a_closed_bus_ends_the_worker_when_all_is_written():
    world = World()
    await world.publish(1, 2)
    await world.bus.close()
    with anyio.fail_after(3):
        await world.worker.run()
    assert world.store.stored == [1, 2]


async def test_a_worker_takes_its_own_shards_only():
    world = World(shards=[shard_for("web-1")])
    await world.publish(1)
    await world.publish(2, server_id=OTHER)
    await world.run(1)
    assert world.store.stored == [1]


async def test_a_failure_of_the_bus_ends_the_worker_with_its_error():
    world = World()
    world.worker._bus = None
    with pytest.raises(BaseExceptionGroup) as caught:
        await world.worker.run()
    assert caught.group_contains(AttributeError)


async def test_samples_reach_a_real_store():
    world = World()
    store = MemoryStore(clock=world.clock)
    world.worker = world.new_worker(store=store)
    await world.publish(1, 2, 3)
    world.clock.step_wall(10)
    await world.run(0.5)
    assert store.points == 3
    assert world.worker.stats().pending_samples == 0
