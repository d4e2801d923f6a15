"""The outbox in Redis does what the one in memory does, whatever is asked of it by two clients."""

import uuid

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.errors import FencedOutboxError, OutboxError
from ahcollector.outbox import MemoryOutbox, OutboxBounds
from ahcollector.testing._contracts.outbox import event

pytestmark = pytest.mark.service

BOUNDS = OutboxBounds(events_max=5, dead_max=3, dead_retention_seconds=10.0)
IDS = [event(number).event_id for number in range(8)]

numbers = st.lists(st.integers(0, 7), max_size=4)
ids = st.lists(st.sampled_from([*IDS, "unknown", ""]), max_size=4)
some = st.one_of(st.none(), ids)
times = st.integers(0, 30).map(float)
fences = st.one_of(st.none(), st.integers(0, 9))
operations = st.one_of(
    st.tuples(st.just("append"), numbers.map(lambda found: [event(one) for one in found]), times),
    st.tuples(st.just("ack"), ids, fences),
    st.tuples(st.just("dead"), ids, st.sampled_from(["rejected: a", "refused"]), times, fences),
    st.tuples(st.just("expire"), times, times),
    st.tuples(st.just("replay"), some, times),
    st.tuples(st.just("purge"), some),
    st.tuples(st.just("peek"), st.integers(0, 6)),
)
pages = st.tuples(st.sampled_from([*IDS, "unknown", ""]), st.integers(1, 4))


async def answer(outbox, operation):
    name, *arguments = operation
    try:
        return await getattr(outbox, name)(*arguments)
    except FencedOutboxError as error:
        return ("fenced", error.fence, error.newest)
    except OutboxError:
        return "full"


async def facts(outbox, page):
    after, limit = page
    stats = await outbox.stats(31.0)
    return {
        "queue": await outbox.peek(100),
        "dead": await outbox.dead_letters(),
        "page": await outbox.dead_letters(after=after, limit=limit),
        "stats": stats,
    }


async def compare(server, script):
    from ahcollector.outbox.redis import RedisOutbox
    from ahcollector.redis import RedisClient, RedisConfig

    prefix = f"{uuid.uuid4().hex}:"
    config = RedisConfig(port=server.port, prefix=prefix, timeout_seconds=5)
    clients = [RedisClient(config=config) for _ in range(2)]
    outboxes = [RedisOutbox(client=client, bounds=BOUNDS) for client in clients]
    model = MemoryOutbox(bounds=BOUNDS)
    try:
        for number, (operation, page) in enumerate(script):
            found = await answer(outboxes[number % 2], operation)
            assert found == await answer(model, operation), operation
            assert await facts(outboxes[1 - number % 2], page) == await facts(model, page)
        sums = await clients[0].call("HGET", f"{prefix}ob:n", "bytes")
        bodies = await clients[0].call("HVALS", f"{prefix}ob:e")
        assert int(sums or 0) == sum(map(len, bodies))
    finally:
        for client in clients:
            await client.aclose()


@settings(max_examples=150)
@given(st.lists(st.tuples(operations, pages), max_size=25))
def test_redis_is_the_model(redis_server, script):
    anyio.run(compare, redis_server, script)


@pytest.mark.nightly
@settings(max_examples=3_000)
@given(st.lists(st.tuples(operations, pages), max_size=60))
def test_redis_is_the_model_in_many_lives(redis_server, script):
    anyio.run(compare, redis_server, script)
