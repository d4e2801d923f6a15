"""What is held for long, and asked for again, on a real Redis: nothing twice, nothing lost."""

import anyio
import pytest

from ahcollector.bus import SHARDS, TRIES_MAX, shard_for
from ahcollector.bus.base import ALONE_FROM
from ahcollector.errors import RedisError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.redis import RedisClient
from ahcollector.testing._contracts.bus import batch_of

pytestmark = [pytest.mark.anyio, pytest.mark.service]
SHARD = shard_for("web-1")
# The client takes the long reply of the bare command for the short one.
PENDING = "return redis.call('XPENDING', KEYS[1], 'workers', '-', '+', 100)"


class Holder:
    """A handler that keeps receipts, and a subscription as long as the block lasts."""

    def __init__(self, bus):
        self.bus = bus
        self.numbers = []
        self.attempts = []
        self.receipts = []

    async def __call__(self, delivery):
        self.numbers.append(int(delivery.batch.request_id, 16))
        self.attempts.append(delivery.attempt)
        self.receipts.append(delivery.receipt)

    async def __aenter__(self):
        self.tasks = anyio.create_task_group()
        await self.tasks.__aenter__()
        self.tasks.start_soon(self.bus.subscribe, range(SHARDS), self)
        return self

    async def __aexit__(self, *error):
        self.tasks.cancel_scope.cancel()
        return await self.tasks.__aexit__(*error)

    async def have(self, count):
        with anyio.fail_after(20):
            while len(self.numbers) < count:
                await anyio.sleep(0.01)


class FailsOnce(RedisClient):
    """One script fails, not sent or with its reply lost."""

    fails = None
    is_sent = False

    async def _settled(self, what, send):
        if what != self.fails:
            return await super()._settled(what, send)
        self.fails = None
        if self.is_sent:
            await super()._settled(what, send)
        raise RedisError(f"injected: no reply to {what}")


async def left(client):
    return await client.call("XLEN", client.key("bus", "s", str(SHARD)))


async def until_none_is_left(client):
    with anyio.fail_after(20):
        while await left(client):
            await anyio.sleep(0.01)


async def test_what_is_held_for_longer_than_a_sweep_is_not_handed_over_twice(buses):
    """C11: the owner knows what it holds, and what was asked for again and waits for its turn."""
    client = buses.client()
    bus = buses(client=client, claim_idle_seconds=0.2)
    for number in range(100):
        await bus.publish(batch_of(number))
    async with Holder(bus) as holder:
        await holder.have(100)
        await anyio.sleep(1.0)
        assert holder.numbers == list(range(100))
        for receipt in holder.receipts[:100]:
            await receipt.again()
        assert bus.depth()[SHARD] == 100
        await holder.have(200)
        await anyio.sleep(0.5)
        assert holder.numbers == [*range(100), *range(100)]
        assert set(holder.attempts) == {1}
        for receipt in holder.receipts:
            await receipt.ack()
        await until_none_is_left(client)


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_reading_again_that_failed_is_made_again_in_the_old_order(buses, is_sent):
    """C10."""
    client = buses.client(FailsOnce)
    bus = buses(client=client)
    for number in range(80):
        await bus.publish(batch_of(number))
    async with Holder(bus) as holder:
        await holder.have(80)
        client.fails, client.is_sent = "bus fetch", is_sent
        for receipt in holder.receipts[:80]:
            await receipt.again()
        await holder.have(160)
        assert holder.numbers[80:] == list(range(80))
        for receipt in holder.receipts[80:]:
            await receipt.ack()
        await until_none_is_left(client)


async def test_what_somebody_deleted_meanwhile_is_cleaned_away(buses):
    """C11: as any pending entry without a body."""
    client = buses.client()
    bus = buses(client=client)
    for number in range(4):
        await bus.publish(batch_of(number))
    async with Holder(bus) as holder:
        await holder.have(4)
        rows = await client.call("XRANGE", client.key("bus", "s", str(SHARD)), "-", "+")
        await client.call("XDEL", client.key("bus", "s", str(SHARD)), rows[1][0])
        for receipt in holder.receipts[:4]:
            await receipt.again()
        await holder.have(7)
        assert holder.numbers[4:] == [0, 2, 3]
        for receipt in holder.receipts[4:]:
            await receipt.ack()
        await until_none_is_left(client)
    pending = await client.call("XPENDING", client.key("bus", "s", str(SHARD)), "workers")
    assert pending["pending"] == 0


async def test_a_lease_that_was_lost_leaves_what_is_asked_for_again_to_the_next_owner(buses):
    """Once, whoever asks, and with no try for it."""
    client = buses.client()
    bus = buses(client=client)
    for number in range(50):
        await bus.publish(batch_of(number))
    for _ in range(2 * TRIES_MAX):
        async with Holder(bus) as holder:
            await holder.have(50)
            await client.call("DEL", client.key("bus", "own", str(SHARD)))
            for receipt in holder.receipts[:50]:
                await receipt.again()
            await holder.have(100)
            for receipt in holder.receipts[:50]:
                await receipt.ack()
                await receipt.again()
            await anyio.sleep(0.05)
            assert holder.numbers == [*range(50), *range(50)]
            assert await left(client) == 50
    assert await bus.dead.count() == 0


async def test_what_was_read_and_lost_with_a_lease_before_its_turn_had_no_try(buses):
    """However often that happens, also where a take-over had counted the second try of many."""
    client = buses.client()
    bus = buses(client=client)
    for number in range(20):
        await bus.publish(batch_of(number))
    begun = []

    async def hangs(delivery):
        begun.append(delivery.attempt)
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, range(SHARDS), hangs)
        for turn in range(2 * TRIES_MAX):
            if turn:
                await client.call("DEL", client.key("bus", "own", str(SHARD)))
            with anyio.fail_after(20):
                while len(begun) <= turn:
                    await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    for attempts in ({1}, {2}, {2}):
        async with Holder(bus) as holder:
            await holder.have(20)
            assert holder.numbers == list(range(20))
            assert set(holder.attempts) == attempts
    assert await bus.dead.count() == 0


async def test_what_is_held_and_lost_with_a_lease_had_no_try(buses):
    """However often, also where a take-over had counted a second one that nobody cleared."""
    client = buses.client()
    bus = buses(client=client)
    for number in range(20):
        await bus.publish(batch_of(number))
    async with Holder(bus) as holder:
        for turn in range(1, 2 * TRIES_MAX):
            await holder.have(20 * turn)
            await client.call("DEL", client.key("bus", "own", str(SHARD)))
        await holder.have(40 * TRIES_MAX)
    # The next owner may come before the tries are taken back: then there is one more.
    assert max(holder.attempts) <= ALONE_FROM
    for _ in range(2):
        async with Holder(bus) as holder:
            await holder.have(20)
            assert set(holder.attempts) <= {1, 2}
    assert await bus.dead.count() == 0


async def test_tries_that_are_cleared_are_cleared_in_redis(buses):
    """In the handler, and after it returned; what nobody clears goes on counting."""
    client = buses.client()
    bus = buses(client=client)
    for number in range(3):
        await bus.publish(batch_of(number))
    async with Holder(bus) as holder:
        await holder.have(3)

    async def tries():
        rows = await client.call("EVAL", PENDING, 1, client.key("bus", "s", str(SHARD)))
        return [row[3] for row in rows]

    kept = []

    async def handler(delivery):
        kept.append(delivery)
        if len(kept) == 1:
            await delivery.clear_tries()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, range(SHARDS), handler)
        with anyio.fail_after(20):
            while len(kept) < 3 or await tries() != [1, 2, 2]:
                await anyio.sleep(0.01)
            await kept[1].clear_tries()
            while await tries() != [1, 1, 2]:
                await anyio.sleep(0.01)
        assert [one.attempt for one in kept] == [2, 2, 2]
        tasks.cancel_scope.cancel()
    # It ended in good order: nobody died with the third.
    assert await tries() == [1, 1, 1]


async def test_what_is_held_is_told(buses):
    metrics = PrometheusMetrics()
    bus = buses(metrics=metrics)
    for number in range(3):
        await bus.publish(batch_of(number))
    async with Holder(bus) as holder:
        await holder.have(3)
        assert metrics.registry.get_sample_value("ahc_bus_held") == 3
        await holder.receipts[0].ack()
        await holder.receipts[1].ack()
        assert metrics.registry.get_sample_value("ahc_bus_held") == 1
