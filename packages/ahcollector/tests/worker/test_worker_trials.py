"""What the worker does with batches that processes died with, in fake time."""

import random

import anyio
import pytest

from ahcollector.bus import ReadyHandler, shard_for
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import MemoryDeadBatches, Worker

pytestmark = [pytest.mark.anyio, pytest.mark.fault]
SHARD = shard_for("web-1")


class Handed:
    """A delivery that notes what is asked of it."""

    def __init__(self, number, attempt):
        self.number = number
        self.batch = batch_of(number)
        self.shard = SHARD
        self.attempt = attempt
        self.receipt = self
        self.is_cleared = self.is_acknowledged = self.is_taken = False

    async def ack(self):
        self.is_acknowledged = True

    async def again(self):
        raise AssertionError("nothing was lost")

    async def clear_tries(self):
        self.is_cleared = True


class Store:
    """Takes writes, when it may."""

    def __init__(self):
        self.writes = []
        self.error = None
        self.opened = anyio.Event()
        self.opened.set()

    async def write(self, batches):
        await self.opened.wait()
        if self.error is not None:
            raise self.error
        self.writes.append([int(batch.request_id, 16) for batch in batches])


class Answers:
    """Tells the store's start, when it may."""

    def __init__(self):
        self.asked = 0
        self.error = None
        self.opened = anyio.Event()
        self.opened.set()

    async def epoch(self):
        self.asked += 1
        await self.opened.wait()
        if self.error is not None:
            raise self.error
        return "always the same"


class World:
    """A worker, and the test in the place of its bus."""

    is_shared = True

    def __init__(self, **settings):
        self.clock = FakeClock()
        self.store = Store()
        self.dead = MemoryDeadBatches()
        self.worker = Worker(
            bus=self,
            store=self.store,
            clock=self.clock,
            rng=random.Random(1),
            dead_batches=self.dead,
            shutdown_flush_seconds=0,
            **settings,
        )

    async def subscribe(self, shards, handler, *, at_end):
        self.handler = handler
        await anyio.sleep_forever()

    async def __aenter__(self):
        self.tasks = anyio.create_task_group()
        await self.tasks.__aenter__()
        self.tasks.start_soon(self.worker.run)
        await anyio.wait_all_tasks_blocked()
        return self

    async def __aexit__(self, *error):
        self.tasks.cancel_scope.cancel()
        return await self.tasks.__aexit__(*error)

    async def hand(self, *deliveries):
        async def work():
            for delivery in deliveries:
                await self.handler(delivery)
                delivery.is_taken = True

        self.tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        return deliveries


async def test_a_second_try_goes_with_others_at_once_and_is_cleared_by_the_write():
    """C9."""
    async with World() as world:
        world.store.opened = anyio.Event()
        fresh, *seconds = await world.hand(Handed(0, 1), *[Handed(n, 2) for n in range(1, 5)])
        assert all(one.is_taken for one in seconds)
        assert not any(one.is_cleared for one in seconds)
        world.store.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert [number for write in world.store.writes for number in write] == [0, 1, 2, 3, 4]
        assert len(world.store.writes) <= 2
        assert all(one.is_cleared and one.is_acknowledged for one in seconds)
        assert (fresh.is_acknowledged, fresh.is_cleared) == (True, False)


@pytest.mark.parametrize("error", [None, PermanentStoreError("refused"), LookupError("odd")])
async def test_from_the_third_try_on_a_batch_is_written_alone_and_the_bus_waits(error):
    """C9: behind what was taken before it, whatever comes of the write but the end of all."""
    async with World() as world:
        await world.hand(Handed(0, 1), Handed(1, 2))
        world.store.opened = anyio.Event()
        [third] = await world.hand(Handed(2, 3))
        assert not third.is_taken
        world.store.error = error
        world.store.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert (third.is_taken, third.is_cleared, third.is_acknowledged) == (True, True, True)
        written = [[0, 1]] if error is not None else [[0, 1], [2]]
        assert world.store.writes[-len(written) :] == written
        assert await world.dead.count() == (error is not None)


async def test_a_store_that_is_away_takes_the_tries_of_all_that_waits_for_it_back():
    """C9: a store that is down is no fault of a batch, and kills of workers meanwhile neither."""
    async with World() as world:
        world.store.error = TemporaryStoreError("503")
        handed = [Handed(0, 2), Handed(1, 3)]
        await world.hand(*handed)
        assert all(one.is_taken and one.is_cleared for one in handed)
        # It is known to be away now.
        later = await world.hand(Handed(2, 4), Handed(3, 2))
        assert all(one.is_taken and one.is_cleared for one in later)
        world.store.error = None
        await world.clock.run_for(60)
        assert sorted(number for write in world.store.writes for number in write) == [0, 1, 2, 3]


async def test_where_the_buffer_is_full_a_batch_waits_without_its_tries():
    """C9."""
    async with World(flush_samples=1) as world:
        world.store.opened = anyio.Event()
        await world.hand(*[Handed(n, 1) for n in range(4)])
        [waits] = await world.hand(Handed(4, 4))
        assert (waits.is_cleared, waits.is_taken) == (True, False)
        world.store.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert waits.is_acknowledged


async def test_no_more_than_a_thousand_batches_are_on_trial_at_a_time():
    """C9: or a second kill would leave all that was held to be written one by one."""
    async with World() as world:
        world.store.opened = anyio.Event()
        handed = await world.hand(*[Handed(n, 2) for n in range(1_002)])
        assert sum(one.is_taken for one in handed) == 1_000
        assert not any(one.is_cleared for one in handed)
        world.store.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert all(one.is_cleared and one.is_acknowledged for one in handed)


class Asks:
    """A bus that asks the handler, before it counts a try."""

    def __init__(self, world, count=1):
        self.ready = 0
        for _ in range(count):
            world.tasks.start_soon(self.ask, world)

    async def ask(self, world):
        await world.handler.ready(SHARD)
        self.ready += 1


async def test_no_further_try_begins_before_the_buffer_has_room():
    """C9: so a kill meanwhile costs none, however often."""
    async with World(flush_samples=1) as world:
        assert isinstance(world.handler, ReadyHandler)
        world.store.opened = anyio.Event()
        await world.hand(*[Handed(n, 1) for n in range(4)])
        asks = Asks(world)
        await anyio.wait_all_tasks_blocked()
        assert asks.ready == 0
        world.store.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert asks.ready == 1


async def test_no_further_try_begins_while_the_store_hangs():
    """C9: its last answer is a second old at most, and many ask it together."""
    answers = Answers()
    async with World(restarts=answers, durable_after_seconds=1_000.0) as world:
        answers.opened = anyio.Event()
        asks = Asks(world, 50)
        await anyio.wait_all_tasks_blocked()
        assert (asks.ready, answers.asked) == (0, 1)
        answers.opened.set()
        await anyio.wait_all_tasks_blocked()
        assert (asks.ready, answers.asked) == (50, 1)
        answers.opened = anyio.Event()
        await world.clock.run_for(0.9)
        asks = Asks(world)
        await anyio.wait_all_tasks_blocked()
        assert (asks.ready, answers.asked) == (1, 1)
        await world.clock.run_for(0.2)
        asks = Asks(world)
        await anyio.wait_all_tasks_blocked()
        assert (asks.ready, answers.asked) == (0, 2)


@pytest.mark.parametrize("error", [TemporaryStoreError("503"), LookupError("odd")])
async def test_a_store_that_gives_no_answer_is_away_and_ends_the_trials(error):
    """C9: what is tried after that waits without its tries."""
    answers = Answers()
    async with World(restarts=answers, durable_after_seconds=1_000.0) as world:
        world.store.opened = anyio.Event()
        [waits] = await world.hand(Handed(0, 3))
        await world.clock.run_for(2)
        answers.error = error
        asks = Asks(world, 10)
        await anyio.wait_all_tasks_blocked()
        assert (asks.ready, answers.asked) == (10, 2)
        [later] = await world.hand(Handed(1, 3))
        assert all(one.is_cleared and one.is_taken for one in (waits, later))
        answers.error = None
        world.store.opened.set()
        await world.clock.run_for(60)
        assert sorted(number for write in world.store.writes for number in write) == [0, 1]


async def test_a_reason_that_has_no_utf_8_is_kept_with_a_batch():
    """C9: half a surrogate pair in what a store raises."""
    async with World() as world:
        world.store.error = PermanentStoreError("no \ud800")
        [handed] = await world.hand(Handed(0, 1))
        await world.clock.run_for(1)
        assert handed.is_acknowledged
        [letter] = await world.dead.letters()
        assert letter.reason == r"PermanentStoreError: no \ud800"
