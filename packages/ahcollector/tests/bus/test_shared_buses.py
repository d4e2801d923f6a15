"""What a bus that processes share has besides the contract, on Redis and on NATS."""

import anyio
import pytest
from bus_hands import Hands, number_of, subscribed, until

from ahcollector.bus import TRIES_MAX, shard_for
from ahcollector.bus.jetstream import BufferSize
from ahcollector.errors import BusFull
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing._contracts.bus import batch_of

pytestmark = [pytest.mark.anyio, pytest.mark.service]
SHARD = shard_for("web-1")


# What each takes as the setting that lets a shard hold three batches, whether read or not.
OF_THREE = {
    "buses": {"queue_batches_max": 3},
    "nats_buses": {
        "size": BufferSize(bytes_max=1 << 20, batches_max=100, shard_batches_max=3),
    },
}


@pytest.fixture(params=["buses", "nats_buses"], ids=["redis", "nats"])
def which(request):
    return request.param


@pytest.fixture
def shared(request, which):
    """Make buses that share one service and one prefix."""
    return request.getfixturevalue(which)


async def test_many_publishers_at_once_keep_the_order_of_their_calls(shared):
    bus = shared(queue_batches_max=1_000, sample_seconds=60.0)
    await bus.publish(batch_of(0))
    async with anyio.create_task_group() as tasks:
        for number in range(1, 300):
            tasks.start_soon(bus.publish, batch_of(number))
    async with subscribed(bus, hands := Hands()):
        await hands.have(300)
    assert hands.numbers == list(range(300))


@pytest.mark.fault
async def test_stopped_workers_and_a_full_shard_trim_nothing(shared):
    """C8."""
    bus = shared(queue_batches_max=20)
    for number in range(20):
        await bus.publish(batch_of(number))
    for _ in range(3):
        with pytest.raises(BusFull, match=r"holds 20 batches that no worker has read"):
            await bus.publish(batch_of(99))
        # The next sample says the same.
        await anyio.sleep(0.03)
    async with subscribed(bus, hands := Hands(acks=False)):
        await hands.have(20)
        # Held entries do not count.
        await bus.publish(batch_of(20))
        await hands.have(21)
    async with subscribed(bus, again := Hands()):
        await again.have(21)
    assert again.numbers == list(range(21))


async def test_a_bus_sees_what_another_process_put_there(shared):
    one, other = shared(queue_batches_max=5), shared(queue_batches_max=5)
    await other.publish(batch_of(0, server_id="db-1"))
    for number in range(5):
        await one.publish(batch_of(number))
    await anyio.sleep(0.03)
    with pytest.raises(BusFull):
        await other.publish(batch_of(9))
    assert other.depth()[SHARD] == 5


@pytest.mark.fault
async def test_tries_are_counted_over_all_owners(shared):
    """C9."""
    bus = shared(retry_seconds=30.0, lease_seconds=60.0)
    await bus.publish(batch_of(0))
    await bus.publish(batch_of(1))
    tries = []
    for _ in range(TRIES_MAX):
        failed = anyio.Event()

        async def fails(delivery, failed=failed):
            if number_of(delivery) == 0:
                tries.append(delivery.attempt)
                failed.set()
                raise LookupError("poison")

        async with subscribed(bus, fails):
            with anyio.fail_after(10):
                await failed.wait()
    assert tries == list(range(1, TRIES_MAX + 1))
    async with subscribed(bus, hands := Hands()):
        await hands.have(1)
    assert hands.numbers == [1]
    assert [letter.batch for letter in await bus.dead.letters()] == [batch_of(0)]


async def test_what_a_handler_took_has_no_tries_however_often_it_comes_back(shared):
    bus = shared(lease_seconds=60.0)
    await bus.publish(batch_of(0))
    for _ in range(2 * TRIES_MAX):
        async with subscribed(bus, hands := Hands(acks=False)):
            await hands.have(1)
    assert await bus.dead.count() == 0
    assert hands.taken[0].attempt <= 2


async def test_dead_letters_are_bounded_paged_and_replayed_in_order(shared, which):
    metrics = PrometheusMetrics()
    bus = shared(metrics=metrics, dead_max=4, **OF_THREE[which])
    gone = []

    async def poison(delivery):
        gone.append(number_of(delivery))
        raise LookupError("no such\nthing: ü %41")

    async with subscribed(bus, poison):
        for number in range(6):
            await bus.publish(batch_of(number))

            async def is_dead(number=number):
                return (
                    gone.count(number) == TRIES_MAX
                    and not sum(bus.depth().values())
                    and await bus.dead.count() == min(number + 1, 4)
                )

            await until(is_dead)
    count = metrics.registry.get_sample_value
    assert count("ahc_bus_dead_letter_total", {"reason": "handler_failed"}) == 6
    assert count("ahc_bus_dead_letters_dropped_total") == 2
    letters = await bus.dead.letters(limit=3)
    letters += await bus.dead.letters(after=letters[-1].letter_id, limit=3)
    assert [one.batch for one in letters] == [batch_of(n) for n in range(2, 6)]
    assert {one.reason for one in letters} == {"LookupError: no such\nthing: ü %41"}
    assert await bus.dead.replay([letters[3].letter_id, letters[1].letter_id]) == 2
    assert await bus.dead.letters(after=letters[1].letter_id) == [letters[2]]
    assert await bus.dead.replay(None) == 1
    with pytest.raises(BusFull):
        await bus.dead.replay(None)
    async with subscribed(bus, hands := Hands()):
        await hands.have(3)
    assert hands.numbers == [3, 5, 2]
    assert await bus.dead.purge(None) == 1
    assert await bus.dead.letters() == []


async def test_order_of_a_server_is_kept_while_workers_come_and_go(shared):
    publisher = shared(queue_batches_max=10_000)
    seen = {}

    async def handler(delivery):
        seen.setdefault(delivery.batch.server_id, []).append(number_of(delivery))
        await anyio.sleep(0.001)
        await delivery.ack()

    async def work(seconds):
        async with subscribed(shared(), handler):
            await anyio.sleep(seconds)

    async def publish():
        for number in range(1_000):
            await publisher.publish(batch_of(number, server_id=f"s{number % 50}"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, 20)
        tasks.start_soon(publish)
        for _ in range(3):
            await work(0.4)

        async def all_came():
            return len({n for numbers in seen.values() for n in numbers}) == 1_000

        await until(all_came)
        tasks.cancel_scope.cancel()
    for numbers in seen.values():
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first)
