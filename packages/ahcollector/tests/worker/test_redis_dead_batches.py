"""What dead batches in Redis do besides the contract: shared by workers, keys, junk, bounds."""

import copy
import gc
import random
import tracemalloc

import anyio
import attrs
import pytest
from dead_stage import T0, check_whole, client_of, fresh_prefix, numbers, put
from hypothesis import given, settings
from hypothesis import strategies as st

from ahcollector.errors import DeadBatchesError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import MemoryDeadBatches, replay_dead_batches

pytestmark = [pytest.mark.service, pytest.mark.anyio]


def dead_of(client, **more):
    from ahcollector.worker.redis import RedisDeadBatches

    return RedisDeadBatches(client=client, **more)


@pytest.fixture
async def client(redis_server, anyio_backend):
    client = client_of(redis_server.port)
    yield client
    await client.aclose()


async def test_nothing_is_left_of_letters_that_are_gone(client, keys_of):
    dead = dead_of(client)
    await put(dead, 1, 2, 2, 3)
    await dead.purge([(await dead.letters())[0].letter_id])
    await check_whole(client)
    await dead.purge(None)
    assert await keys_of(client) == {"wk:dead:state"}
    assert await client.call("HGET", client.key("wk", "dead", "state"), "bytes") == b"0"


async def test_workers_that_put_at_once_keep_the_bounds_together(redis_server):
    prefix = fresh_prefix()
    clients = [client_of(redis_server.port, prefix) for _ in range(3)]
    workers = [dead_of(client, letters_max=50) for client in clients]
    async with anyio.create_task_group() as tasks:
        for place, worker in enumerate(workers):
            for first in range(0, 60, 15):
                begin = place * 100 + first
                tasks.start_soon(put, worker, *range(begin, begin + 15))
    held = await numbers(workers[0])
    assert len(set(held)) == len(held) == 50
    assert sum(worker.total for worker in workers) == 180
    assert sum(worker.dropped for worker in workers) == 130
    await check_whole(clients[0])
    for client in clients:
        await client.aclose()


async def test_what_goes_is_counted_by_the_bound_that_did_it(client):
    metrics = PrometheusMetrics()
    await put(dead_of(client), 0)
    [letter] = await dead_of(client).letters()
    size = letter.size_bytes
    dead = dead_of(
        client, letters_max=3, bytes_max=5 * size, retention_seconds=100, metrics=metrics
    )
    await put(dead, 1, 2, 3, 4)
    await put(dead, 5, now=T0 + 101)
    tight = dead_of(client, bytes_max=size + size // 2, metrics=metrics)
    await put(tight, 6)
    await dead_of(client, bytes_max=10, metrics=metrics).put(batch_of(7), "no", T0)
    sample = metrics.registry.get_sample_value
    reasons = {
        reason: sample("ahc_worker_dead_batches_dropped_total", {"reason": reason})
        for reason in ("count", "age", "bytes", "too_large")
    }
    assert reasons == {"count": 3, "age": 2, "bytes": 1, "too_large": 1}
    assert await numbers(dead) == [6]
    await check_whole(client)


operations = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("purge"), st.sets(st.integers(0, 4), max_size=3)),
    st.tuples(st.just("replay"), st.sets(st.integers(0, 4), max_size=3)),
    st.tuples(st.just("purge all")),
    st.tuples(st.just("page"), st.integers(0, 4), st.integers(0, 3)),
)


@settings(max_examples=60)
@given(st.lists(operations, max_size=15), st.integers(1, 4))
def test_redis_does_what_memory_does(redis_server, script, letters_max):
    anyio.run(compare, redis_server.port, copy.deepcopy(script), letters_max)


async def compare(port, script, letters_max):
    client = client_of(port)
    bounds = {"letters_max": letters_max, "retention_seconds": 2}
    both = [MemoryDeadBatches(**bounds), dead_of(client, **bounds)]
    now = T0
    for kind, *arguments in script:
        answers = []
        if kind == "put":
            now += arguments[1]
        for dead in both:
            answers.append(await do(dead, kind, arguments, now))
            answers[-1] = answers[-1], dead.dropped, dead.total, await numbers(dead)
        assert answers[0] == answers[1]
    await check_whole(client)
    await client.aclose()


async def do(dead, kind, arguments, now):
    letters = await dead.letters()
    ids = [letter.letter_id for letter in letters]

    def chosen(places):
        return [ids[place] for place in sorted(places) if place < len(ids)]

    if kind == "put":
        return await dead.put(batch_of(arguments[0]), f"at {now}", now)
    if kind == "purge":
        return await dead.purge(chosen(arguments[0]))
    if kind == "purge all":
        return await dead.purge(None)
    if kind == "page":
        after = ids[arguments[0]] if arguments[0] < len(ids) else ""
        page = await dead.letters(after=after, limit=arguments[1])
        return [attrs.evolve(letter, size_bytes=0) for letter in page]
    published = []

    async def publish(batch):
        published.append(batch)

    return await replay_dead_batches(dead, publish, chosen(arguments[0])), published


JUNK = {
    "a text": lambda key: ("SET", key, "x"),
    "a list": lambda key: ("RPUSH", key, "x"),
    "an empty letter": lambda key: ("HSET", key, "x", "y"),
}


@pytest.mark.fault
@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("met", ["list", "read", "purge", "purge all", "replaced", "pushed out"])
async def test_what_is_found_instead_of_a_letter_is_set_aside_whoever_meets_it(
    client, keys_of, junk, met, caplog
):
    await put(dead_of(client), 1, 2, 3)
    first = (await dead_of(client).letters())[0].letter_id
    key = client.key("wk", "dead", "l", first)
    await client.call("DEL", key)
    await client.call(*JUNK[junk](key))
    metrics = PrometheusMetrics()
    dead = dead_of(client, metrics=metrics, letters_max=3)
    if met == "list":
        assert [int(one.request_id, 16) for one in await dead.letters(limit=2)] == [2, 3]
    elif met == "read":
        assert await dead.read(first) is None
    elif met == "purge":
        assert await dead.purge([first]) == 0
    elif met == "purge all":
        assert await dead.purge(None) == 2
    else:
        await put(dead, 1 if met == "replaced" else 4)
    left = {"purge all": [], "replaced": [2, 3, 1], "pushed out": [2, 3, 4]}.get(met, [2, 3])
    assert await numbers(dead) == left
    assert (dead.damaged, dead.dropped) == (1, 0)
    assert metrics.registry.get_sample_value("ahc_worker_dead_batches_damaged_total") == 1
    assert {f"wk:dead:damaged:{first}", "wk:dead:damaged"} <= await keys_of(client)
    assert await client.call("SMEMBERS", client.key("wk", "dead", "damaged")) == {first.encode()}
    [record] = [one for one in caplog.records if "damaged" in one.message]
    assert record.where == client.key("wk", "dead", "damaged")
    await put(dead, 7)
    letters = await dead.letters()
    state = await client.call("HGET", client.key("wk", "dead", "state"), "bytes")
    assert int(state) == sum(letter.size_bytes for letter in letters)


@pytest.mark.fault
@pytest.mark.parametrize("field", ["b", "samples", "at", "size", "reason", "company_id"])
async def test_a_letter_with_a_damaged_field_is_set_aside_and_its_neighbours_stay(client, field):
    dead = dead_of(client)
    await put(dead, 1, 2, 3)
    second = (await dead.letters())[1].letter_id
    key = client.key("wk", "dead", "l", second)
    await client.call("HSET", key, field, b"\xff\xfe")
    before = await client.call("HGETALL", key)
    if field == "b":
        assert await dead.read(second) is None
    assert len(await dead.letters()) == 2
    assert await numbers(dead) == [1, 3]
    assert dead.damaged == 1
    assert await client.call("HGETALL", client.key("wk", "dead", "damaged", second)) == before


@pytest.mark.fault
async def test_a_letter_that_somebody_deleted_is_taken_out_of_the_order(client):
    dead = dead_of(client)
    await put(dead, 1, 2)
    first = (await dead.letters())[0].letter_id
    await client.call("DEL", client.key("wk", "dead", "l", first))
    await client.call("ZADD", client.key("wk", "dead"), 5, "no number")
    assert await numbers(dead) == [2]
    assert dead.damaged == 2
    await put(dead, 1)
    assert await numbers(dead) == [2, 1]


@pytest.mark.fault
async def test_a_state_that_was_lost_is_made_again_and_no_id_is_used_twice(client):
    dead = dead_of(client)
    await put(dead, 1, 2)
    await client.call("DEL", client.key("wk", "dead", "state"), client.key("wk", "dead", "by"))
    await put(dead, 3, now=T0 - 1_000)
    assert await numbers(dead) == [1, 2, 3]
    state = await client.call("HGET", client.key("wk", "dead", "state"), "bytes")
    assert int(state) == sum(letter.size_bytes for letter in await dead.letters())
    await client.call("HSET", client.key("wk", "dead", "state"), "bytes", "x", "last", "y")
    await put(dead, 4)
    assert await numbers(dead) == [1, 2, 3, 4]


@pytest.mark.fault
@pytest.mark.parametrize("key", ["dead", "dead:state", "dead:by"])
async def test_a_key_that_all_need_is_named_and_touched_by_nobody(client, key):
    dead = dead_of(client)
    await put(dead, 1)
    name = client.key("wk", key)
    await client.call("DEL", name)
    await client.call("SET", name, "x")
    with pytest.raises(DeadBatchesError, match=r"cannot keep a batch.*WRONGTYPE"):
        await put(dead, 2)
    assert await client.call("GET", name) == b"x"
    letters = await client.call("KEYS", client.key("wk", "dead", "l", "*"))
    assert len(letters) == 1


async def test_a_batch_that_no_bus_carries_is_refused_with_the_reason(client):
    dead = dead_of(client)
    series = attrs.evolve(batch_of(1).series[0], points=((1 << 70, 1.0),))
    with pytest.raises(DeadBatchesError, match=r"cannot keep a batch: .* stamps are 64-bit"):
        await dead.put(attrs.evolve(batch_of(1), series=(series,)), "no", T0)
    assert dead.total == 0


async def test_odd_clocks_leave_ids_for_those_that_are_right(client):
    dead = dead_of(client, retention_seconds=1e301)
    for number, now in enumerate((1e15, T0, -5.0, 1e300)):
        await dead.put(batch_of(number), "no", now)
    assert sorted(await numbers(dead)) == [0, 1, 2, 3]
    ids = [int(letter.letter_id) for letter in await dead.letters()]
    assert ids == sorted(ids)
    assert ids[-1] < 1 << 53
    await check_whole(client)


async def test_many_large_letters_are_never_in_memory_at_once(client):
    """Listed, replayed and purged: at most a batch, as objects, and what it takes to read it."""
    dead = dead_of(client)
    chance = random.Random(1)
    points = tuple((stamp, chance.random()) for stamp in range(5_000))
    series = attrs.evolve(batch_of(1).series[0], points=points)
    for number in range(60):
        await dead.put(attrs.evolve(batch_of(number), series=(series,)), "no", T0)
    assert sum(letter.size_bytes for letter in await dead.letters()) > 60 * 30_000
    published = 0

    async def publish(batch):
        nonlocal published
        published += batch.samples

    async def peak_of(action):
        gc.collect()
        tracemalloc.start()
        try:
            await action()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    first = (await dead.letters(limit=1))[0].letter_id
    one = await peak_of(lambda: dead.read(first))
    assert await peak_of(lambda: dead.letters(limit=500)) < one
    assert await peak_of(lambda: replay_dead_batches(dead, publish)) < 3 * one
    assert (published, await dead.count()) == (60 * 5_000, 0)


async def test_the_rights_that_the_guide_gives_a_user_are_enough(private_redis):
    """Those of docs/how-to/run-on-redis.md; a letter is set aside with them, too."""
    prefix = fresh_prefix()
    admin = client_of(private_redis.port, prefix)
    rights = f"~{prefix}* &{prefix}* +@all -@admin -@dangerous +config|get +info"
    await admin.call("ACL", "SETUSER", "lim", "on", ">secret", *rights.split())
    client = client_of(private_redis.port, prefix, username="lim", password="secret")
    dead = dead_of(client, letters_max=3)
    await put(dead, 1, 2, 3, 4)
    first = (await dead.letters())[0].letter_id
    await admin.call("SET", client.key("wk", "dead", "l", first), "x")
    assert await numbers(dead) == [3, 4]
    assert dead.damaged == 1
    assert await dead.purge(None) == 2
    await client.aclose()
    await admin.aclose()
