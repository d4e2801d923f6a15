"""What only the in-process bus has."""

import gc
import weakref

import anyio
import pytest

from ahcollector.bus import InProcessBus, shard_for
from ahcollector.errors import BusError, BusFull
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of

pytestmark = pytest.mark.anyio


async def test_dead_letters_are_kept_with_their_reason_and_bounded():
    clock = FakeClock()
    bus = InProcessBus(clock=clock, dead_max=2)
    for number in range(3):
        await bus.publish(batch_of(number))

    async def poison(delivery):
        raise LookupError("no such thing")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, range(64), poison)
        await clock.run_for(10)
        tasks.cancel_scope.cancel()
    assert bus.dead.total == 3
    assert [letter.batch for letter in await bus.dead.letters()] == [batch_of(1), batch_of(2)]
    letter = (await bus.dead.letters())[0]
    assert letter.reason == "LookupError: no such thing"
    assert letter.shard == shard_for("web-1")


async def test_an_entry_that_was_taken_is_not_held_until_the_next_one_comes():
    """A batch may be 30 MB in memory, and there are 64 shards."""
    bus = InProcessBus(clock=FakeClock())
    await bus.publish(batch_of(1))
    taken = []

    async def handler(delivery):
        taken.append(weakref.ref(delivery.batch))
        await delivery.ack()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, range(64), handler)
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        assert [one() for one in taken] == [None]
        tasks.cancel_scope.cancel()


async def test_a_shard_has_one_subscriber():
    bus = InProcessBus(clock=FakeClock())

    async def handler(delivery):
        raise AssertionError

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, [1, 2], handler)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(BusError, match="shard 2 has a subscriber"):
            await bus.subscribe([2, 3], handler)
        tasks.cancel_scope.cancel()
    with pytest.raises(BusError, match="no shard 64"):
        await bus.subscribe([64], handler)


async def test_a_cancelled_handler_gives_its_entry_back_without_a_try():
    bus = InProcessBus(clock=FakeClock())
    await bus.publish(batch_of(1))

    async def hangs(delivery):
        await anyio.sleep_forever()

    for _ in range(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.subscribe, range(64), hangs)
            await anyio.wait_all_tasks_blocked()
            assert not any(bus.depth().values())
            tasks.cancel_scope.cancel()
        assert bus.depth()[shard_for("web-1")] == 1
    assert bus.dead.total == 0


async def test_stopped_workers_and_a_full_shard_trim_nothing():
    """C8."""
    bus = InProcessBus(clock=FakeClock())
    for number in range(256):
        await bus.publish(batch_of(number))
    for _ in range(10):
        with pytest.raises(BusFull, match="256"):
            await bus.publish(batch_of(999))
    taken = []

    async def handler(delivery):
        taken.append(delivery.batch)
        await delivery.ack()

    await bus.close()
    await bus.subscribe(range(64), handler)
    assert taken == [batch_of(number) for number in range(256)]


async def test_what_is_held_is_a_metric():
    metrics = PrometheusMetrics()
    bus = InProcessBus(clock=FakeClock(), metrics=metrics)
    await bus.publish(batch_of(1))
    await bus.publish(batch_of(2))
    receipts = []

    async def handler(delivery):
        receipts.append(delivery.receipt)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, range(64), handler)
        await anyio.wait_all_tasks_blocked()
        assert metrics.registry.get_sample_value("ahc_bus_held") == 2
        await receipts[0].ack()
        assert metrics.registry.get_sample_value("ahc_bus_held") == 1
        tasks.cancel_scope.cancel()


async def test_the_depth_of_each_shard_is_a_metric():
    metrics = PrometheusMetrics()
    bus = InProcessBus(clock=FakeClock(), metrics=metrics)
    await bus.publish(batch_of(1))
    await bus.publish(batch_of(2))
    labels = {"shard": str(shard_for("web-1"))}
    assert metrics.registry.get_sample_value("ahc_bus_depth", labels) == 2
