"""What only the bus on Redis has: leases, claims, tries that outlive a process, dead letters."""

import anyio
import pytest
from bus_hands import Hands, number_of, subscribed, until

from ahcollector.bus import SHARDS, TRIES_MAX, shard_for
from ahcollector.bus._streams import ShardStreams, _scripts
from ahcollector.errors import BusError, RedisError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.redis import RedisClient, Script
from ahcollector.testing._contracts.bus import batch_of

pytestmark = [pytest.mark.anyio, pytest.mark.service]
SHARD = shard_for("web-1")


def stream(client, shard=SHARD):
    return client.key("bus", "s", str(shard))


async def pending(client, shard=SHARD):
    return (await client.call("XPENDING", stream(client, shard), "workers"))["pending"]


class ReplyLost(RedisClient):
    """Loses the reply to one command after it was executed."""

    loses = None

    async def _settled(self, what, send):
        reply = await super()._settled(what, send)
        if what == self.loses:
            self.loses = None
            raise RedisError(f"injected: the reply to {what} was lost")
        return reply


async def test_an_entry_whose_reply_was_lost_is_there_once_and_the_publisher_knows_it_may_be(buses):
    """C10."""
    client = buses.client(ReplyLost)
    bus = buses(client=client)
    await bus.publish(batch_of(0))
    client.loses = "XADD"
    with pytest.raises(BusError, match=r"cannot put an entry on .*bus:s:\d+: "):
        await bus.publish(batch_of(1))
    assert await client.call("XLEN", stream(client)) == 2
    async with subscribed(bus, hands := Hands()):
        await hands.have(2)
    assert hands.numbers == [0, 1]


@pytest.mark.parametrize("what", ["XREADGROUP", "bus settle", "bus begin", "bus bury", "bus take"])
async def test_a_lost_reply_of_the_reading_side_loses_no_entry_and_no_order(buses, what):
    client = buses.client(ReplyLost)
    client.for_blocking = lambda **_: client
    bus = buses(client=client)
    client.loses = what
    for number in range(40):
        await bus.publish(batch_of(number))
    seen = []

    async def handler(delivery):
        seen.append(number_of(delivery))
        if number_of(delivery) == 3:
            raise LookupError("poison")
        await delivery.ack()

    async def is_done():
        return 39 in seen and await client.call("XLEN", stream(client)) == 0

    client.aclose = anyio.lowlevel.checkpoint
    async with subscribed(bus, handler):
        await until(is_done)
    assert client.loses is None
    first = sorted(set(seen), key=seen.index)
    assert first == list(range(40))
    assert await bus.dead.count() == 1
    await RedisClient.aclose(client)


async def test_what_was_read_ahead_and_not_handed_over_had_no_try(buses):
    bus = buses()
    for number in range(10):
        await bus.publish(batch_of(number))
    began = anyio.Event()

    async def hangs(_):
        began.set()
        await anyio.sleep_forever()

    for _ in range(2 * TRIES_MAX):
        began = anyio.Event()
        async with subscribed(bus, hangs):
            with anyio.fail_after(10):
                await began.wait()
    async with subscribed(bus, hands := Hands()):
        await hands.have(10)
    assert hands.numbers == list(range(10))
    assert {one.attempt for one in hands.taken} == {1}
    assert await bus.dead.count() == 0


async def test_bytes_that_are_no_batch_are_set_aside_at_once_and_neighbours_flow(buses):
    metrics = PrometheusMetrics()
    client = buses.client()
    bus = buses(client=client, metrics=metrics)
    await bus.publish(batch_of(0))
    await client.call("XADD", stream(client), "*", "b", b"\xff junk")
    await client.call("XADD", stream(client), "*", "other", "thing", "shard", "7")
    await bus.publish(batch_of(1))
    async with subscribed(bus, hands := Hands()):
        await hands.have(2)
    assert hands.numbers == [0, 1]
    letters = await bus.dead.letters()
    assert [(one.batch, one.shard) for one in letters] == [(None, SHARD), (None, SHARD)]
    assert "is no batch: its version is 255" in letters[0].reason
    # What they hold is kept, whatever it is.
    rows = await client.call("XRANGE", client.key("bus", "dead"), "-", "+")
    assert rows[0][1][b"b"] == b"\xff junk"
    count = metrics.registry.get_sample_value
    assert count("ahc_bus_dead_letter_total", {"reason": "unreadable"}) == 2
    assert await bus.dead.replay(None) == 0
    assert await bus.dead.purge([letters[0].letter_id, "no-such", "1-1"]) == 1
    assert await bus.dead.count() == 1


async def test_an_ack_of_a_stale_owner_is_refused(buses):
    client = buses.client()
    bus = buses(client=client)
    await bus.publish(batch_of(0))
    async with subscribed(bus, hands := Hands(acks=False)):
        await hands.have(1)
        # Its lease went to another one, and it does not know yet.
        await client.call("DEL", client.key("bus", "own", str(SHARD)))
        [taken] = await ShardStreams(client=client).take("another", [SHARD], lease_ms=60_000)
        await hands.taken[0].ack()

        async def knows():
            return not await anyio.lowlevel.checkpoint() and bus._subscriptions.held() == 0

        await until(knows)
        assert await pending(client) == 1
    # Nor did its end give the other one's shard up.
    owner = await client.call("GET", client.key("bus", "own", str(SHARD)))
    assert owner.decode() == taken.lease
    assert await pending(client) == 1


async def test_a_try_that_ends_with_a_lease_is_none(buses):
    """A worker waits for its store, and Redis is away for longer than a lease, again and again."""
    client = buses.client()
    bus = buses(client=client)
    await bus.publish(batch_of(0))
    begun = []

    async def waits(delivery):
        begun.append(delivery.attempt)
        await anyio.sleep_forever()

    async with subscribed(bus, waits):
        for turn in range(2 * TRIES_MAX):

            async def has_begun(turn=turn):
                return len(begun) > turn

            await until(has_begun)
            await client.call("DEL", client.key("bus", "own", str(SHARD)))
    async with subscribed(bus, hands := Hands()):
        await hands.have(1)
    assert await bus.dead.count() == 0
    assert max(begun) < TRIES_MAX


async def test_fences_only_rise_although_redis_forgot_the_last_one(buses):
    client = buses.client()
    streams = ShardStreams(client=client)
    fences = []
    for turn in range(6):
        [taken] = await streams.take(f"worker {turn}", [7], lease_ms=60_000)
        fences.append(int(taken.lease.split()[0]))
        assert await streams.take("late", [7], lease_ms=60_000) == []
        # One who had it before cannot give it up.
        await streams.release(7, f"{fences[0] - 1} stale", {})
        assert await streams.take("late", [7], lease_ms=60_000) == []
        await streams.release(7, taken.lease, {})
        if turn == 3:
            await anyio.sleep(0.01)
            await client.call("DEL", client.key("bus", "fence"))
    assert fences == sorted(set(fences))


async def test_a_pending_entry_that_was_deleted_is_cleaned_away(buses):
    """C11."""
    client = buses.client()
    bus = buses(client=client)
    for number in range(4):
        await bus.publish(batch_of(number))
    async with subscribed(bus, hands := Hands(acks=False)):
        await hands.have(4)
    rows = await client.call("XRANGE", stream(client), "-", "+")
    await client.call("XDEL", stream(client), rows[0][0], rows[2][0])
    assert await pending(client) == 4
    async with subscribed(bus, again := Hands()):
        await again.have(2)
    assert again.numbers == [1, 3]
    assert await pending(client) == 0


async def test_what_a_stale_owner_reads_is_found_by_the_sweep(buses):
    """C11: it follows the cursor to the tail, over entries that are not idle."""
    client = buses.client()
    bus = buses(client=client, queue_batches_max=1_000)
    async with subscribed(bus, hands := Hands(acks=False)):
        await bus.publish(batch_of(0))
        await hands.have(1)
        # As a stale owner would: read under the name of all, and nobody is told.
        async with anyio.create_task_group() as tasks:
            for number in range(1, 151):
                tasks.start_soon(bus.publish, batch_of(number))
            for _ in range(200):
                tasks.start_soon(
                    client.call,
                    *("XREADGROUP", "GROUP", "workers", "owner", "COUNT", 3, "STREAMS"),
                    *(stream(client), ">"),
                )
        await hands.have(151)
    assert sorted(hands.numbers) == list(range(151))


async def test_the_sweep_finds_the_idle_behind_a_hundred_that_are_not(buses):
    """C11: COUNT 10, and pages that are empty and not the last."""
    client = buses.client()
    bus = buses(client=client, queue_batches_max=1_000)
    streams = ShardStreams(client=client)
    [taken] = await streams.take("me", [SHARD], lease_ms=60_000)
    for number in range(150):
        await bus.publish(batch_of(number))
    reply = (await streams.read([SHARD], count=150, block_ms=None))[SHARD]
    ids = [one.entry_id for one in reply]
    for one in ids[100:]:
        await client.call("XCLAIM", stream(client), "workers", "owner", 0, one, "IDLE", 90_000)
    await client.call("XDEL", stream(client), ids[120])
    found, pages, cursor = [], 0, b"0-0"
    while pages == 0 or cursor != b"0-0":
        cursor, page = await streams.sweep(
            SHARD, taken.lease, idle_ms=30_000, cursor=cursor, count=10
        )
        found += page
        pages += 1
    assert pages > 1
    entries = await streams.fetch(SHARD, taken.lease, found, bytes_max=1 << 20)
    assert [one.entry_id for one in entries.reads] == ids[100:120] + ids[121:]
    assert await pending(client) == 149


@pytest.mark.parametrize("third", [", {'9-9'}", ""])
async def test_replies_of_two_and_of_three_elements_are_read(buses, third):
    """C11: Redis before 7, which also lists what is deleted as nothing, and since."""
    client = buses.client()
    fake = (
        "local redis = {call = function(name)"
        " if name == 'GET' then return 'lease' end"
        f" return {{'5-0', {{'1-1', false, '2-2'}}{third}}} end}} redis.pcall = redis.call\n"
    )
    script = Script.of("fake", fake + _scripts()["sweep"].body)
    reply = await client.run(script, keys=["k"], args=["", 1, "lease", 30_000, "0-0", 10])
    assert reply == [1, b"5-0", [b"1-1", b"2-2"]]


async def test_workers_share_the_shards_evenly_and_one_that_leaves_gives_all_back(buses):
    client = buses.client()

    async def owners():
        leases = [
            await client.call("GET", client.key("bus", "own", str(shard)))
            for shard in range(SHARDS)
        ]
        names = [lease.split()[1] for lease in leases if lease is not None]
        return sorted(names.count(name) for name in set(names))

    def is_shared(*expected):
        async def shared():
            return await owners() == list(expected)

        return shared

    async with subscribed(buses(), Hands()):
        await until(is_shared(64))
        async with subscribed(buses(), Hands()):
            await until(is_shared(32, 32))
            async with subscribed(buses(), Hands()):

                async def shared():
                    found = await owners()
                    return len(found) == 3 and sum(found) == 64 and max(found) <= 22

                await until(shared)
        await until(is_shared(64))
    assert await owners() == []
    assert await client.call("ZCARD", client.key("bus", "workers")) == 0


async def test_when_the_group_is_gone_it_is_made_again(buses):
    """A Redis that lost everything is a new one, not the end."""
    client = buses.client()
    bus = buses(client=client)
    async with subscribed(bus, hands := Hands()):
        await bus.publish(batch_of(0))
        await hands.have(1)
        keys = await client.call("KEYS", client.prefix + "*")
        await client.call("DEL", *keys)
        await bus.publish(batch_of(1))
        await hands.have(2)
    assert hands.numbers == [0, 1]


async def test_settings_that_cannot_work_are_refused(buses):
    with pytest.raises(ValueError, match="readers is 0; it must be 1 to 64"):
        buses(readers=0)
    with pytest.raises(ValueError, match="entries that are just being read would be claimed"):
        buses(block_seconds=0.5, claim_idle_seconds=1.0)
    with pytest.raises(ValueError, match="a lease would end while its owner waits"):
        buses(block_seconds=0.25, lease_seconds=1.0, claim_idle_seconds=1.0)
