"""What the store in Redis does besides the contract: its keys end, junk is passed over, it dies."""

import pytest

from ahcollector.budget import BudgetKeeper, SeriesBudget, SeriesChange, Window
from ahcollector.errors import BudgetStoreError
from ahcollector.testing import FakeClock
from ahwire.batch import SeriesKey

pytestmark = [pytest.mark.service, pytest.mark.anyio]

NOW = 1_790_000_000.0
HOUR = int(NOW // 3600)


def change(count=3, agent_id="a1"):
    hours = {number.to_bytes(16, "big"): HOUR for number in range(count)}
    window = Window(start=NOW, first=True, begun=count)
    return SeriesChange(agent_id=agent_id, window=window, begun=count, hours=hours)


@pytest.fixture
def store(client):
    from ahcollector.budget.redis import RedisBudgetStore

    return RedisBudgetStore(client=client)


async def test_hash_of_an_agent_ends_a_day_and_an_hour_after_its_last_change(client, store):
    await store.take([change()], now=NOW)
    left = await client.call("TTL", client.key("series", "a1"))
    assert 25 * 3600 - 60 < left <= 25 * 3600


async def test_series_that_are_forgotten_leave_redis(client, store):
    await store.take([change(3000)], now=NOW)
    await store.load("a1", now=NOW + 26 * 3600)
    assert await client.call("HLEN", client.key("series", "a1")) == 3


async def test_fields_that_cannot_be_read_are_passed_over(client, store):
    key = client.key("series", "a1")
    await store.take([change(2)], now=NOW)
    await client.call("HSET", key, "junk", "x", b"\xff" * 16, "never", "begun", "many")
    found = await store.load("a1", now=NOW + 1)
    assert sorted(found.hours) == sorted(change(2).hours)
    assert found.window == Window(start=NOW + 1, first=True, begun=0)
    (window,) = await store.take([change(3)], now=NOW)
    assert window.begun == 1


async def test_key_of_another_type_is_an_error_that_names_it(client, store):
    await client.call("SET", client.key("series", "a1"), "x")
    with pytest.raises(BudgetStoreError, match="known series: cannot load an agent"):
        await store.load("a1", now=NOW)


async def test_redis_that_dies_refuses_nobody_and_is_told_afterwards(private_redis, client_of):
    from ahcollector.budget.redis import RedisBudgetStore

    client = client_of(private_redis.port, timeout_seconds=2.0)
    store = RedisBudgetStore(client=client)
    clock = FakeClock(NOW)
    budget = SeriesBudget(per_hour=1, first_hour=2)
    keeper = BudgetKeeper(budget=budget, store=store, clock=clock, answer_seconds=2.0)

    async def refused(agent, *names):
        await keeper.prepare(agent)
        keys = [SeriesKey.of(name, ()) for name in names]
        return len(budget.refused(agent, keys, now=clock.time()))

    assert await refused("a", "p", "q") == 0
    await keeper.tell()
    private_redis.kill()
    assert await refused("b", "p", "q", "r") == 0
    assert await refused("a", "p", "q", "r") == 1
    await keeper.tell()
    private_redis.start()
    clock.advance(10)
    await keeper.tell()
    assert len((await store.load("b", now=clock.time())).hours) == 3
    assert await refused("b", "p", "q", "r", "s") == 1
    await client.aclose()
