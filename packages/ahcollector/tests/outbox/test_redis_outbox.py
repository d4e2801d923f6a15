"""What only the outbox in Redis has: damaged keys, a Redis that is full, pieces, lost replies."""

import math

import anyio
import pytest

from ahcollector.errors import FencedOutboxError, OutboxError
from ahcollector.metrics import EVENTS_LOST, OUTBOX_DEAD_LETTER, NullMetrics
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.outbox import T0, event
from ahwire import Event
from ahwire.limits import MAX_FENCE

pytestmark = [pytest.mark.anyio, pytest.mark.service]


class Counts(NullMetrics):
    def __init__(self):
        self.of = {}

    def inc(self, metric, amount=1.0, /, **labels):
        key = (metric.name, *labels.values())
        self.of[key] = self.of.get(key, 0) + amount


async def numbers(outbox):
    return [entry.event.seq for entry in await outbox.peek(1_000)]


async def letters(outbox):
    return {letter.letter_id: letter.reason for letter in await outbox.dead_letters()}


DAMAGE = {
    "no event": lambda e: b"1.0 {}",
    "no time": lambda e: b"yesterday " + e.to_json(),
    "no finite time": lambda e: b"nan " + e.to_json(),
    "cut": lambda e: b"1.0 " + e.to_json()[:-1],
    "empty": lambda e: b"",
    "bytes": lambda e: b"\xff\x00\xfe",
    "another event": lambda e: b"1.0 " + event(77).to_json(),
}


@pytest.mark.fault
@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("found_by", ["peek", "expire"])
async def test_what_is_no_event_is_a_dead_letter_and_stops_nobody(outboxes, how, found_by):
    """C21: the first in the queue cannot be read."""
    counts, client = Counts(), outboxes.client()
    outbox = outboxes(client=client, metrics=counts, clock=FakeClock(T0 + 9))
    await outbox.append([event(number) for number in range(101)], T0)
    first = event(0).event_id
    damaged = DAMAGE[how](event(0))
    await client.call("HSET", client.key("ob", "e"), first, damaged)
    if found_by == "expire":
        await outbox.expire(0.5, T0 + 9)
    assert await numbers(outbox) == list(range(1, 101))
    [letter] = await outbox.dead_letters()
    assert (letter.letter_id, letter.reason, letter.dead_at) == (first, "unreadable", T0 + 9)
    assert not letter.replayable
    assert damaged.endswith(letter.body)
    assert counts.of[(OUTBOX_DEAD_LETTER.name, "unreadable")] == 1
    assert await outbox.replay(None, T0) == 0
    assert await outbox.replay([first], T0) == 0
    assert await outbox.append([event(0)], T0) == 0
    assert await outbox.purge([first]) == 1


@pytest.mark.fault
async def test_an_id_without_a_body_is_dropped_and_counted(outboxes):
    counts, client = Counts(), outboxes.client()
    outbox = outboxes(client=client, metrics=counts)
    await outbox.append([event(number) for number in range(1_500)], T0)
    gone = [event(number).event_id for number in range(1_200)]
    await client.call("HDEL", client.key("ob", "e"), *gone)
    assert await numbers(outbox) == list(range(1_200, 1_500))
    assert counts.of == {(EVENTS_LOST.name, "unknown"): 1_200}
    assert (await outbox.stats(T0)).damaged_lines == 1_200
    assert await outbox.append([event(3)], T0) == 1


async def test_an_id_without_a_body_does_not_stop_what_expires(outboxes):
    counts, client = Counts(), outboxes.client()
    outbox = outboxes(client=client, metrics=counts)
    await outbox.append([event(1), event(2), event(3)], T0)
    await client.call("HDEL", client.key("ob", "e"), event(1).event_id)
    assert await outbox.expire(T0 + 1, T0 + 1) == 2
    assert counts.of == {(EVENTS_LOST.name, "unknown"): 1}
    await client.call("HDEL", client.key("ob", "dead"), event(2).event_id)
    assert list(await letters(outbox)) == [event(3).event_id]
    assert await outbox.replay(None, T0) == 1
    await outbox.expire(T0, T0)
    assert (await outbox.stats(T0)).dead == 0
    assert counts.of == {(EVENTS_LOST.name, "unknown"): 2}


@pytest.mark.fault
@pytest.mark.parametrize("count", [3, 700])
async def test_events_whose_order_was_deleted_are_sent_all_the_same(outboxes, count):
    client = outboxes.client()
    outbox = outboxes(client=client)
    await outbox.append([event(number) for number in range(count)], T0)
    await client.call("DEL", client.key("ob", "q"))
    assert sorted(await numbers(outbox)) == list(range(count))
    await outbox.dead([event(number).event_id for number in range(count)], "refused", T0, None)
    await client.call("DEL", client.key("ob", "dead", "q"))
    await outbox.expire(T0, T0)
    assert len(await outbox.dead_letters(limit=1_000)) == count


async def test_a_letter_that_is_none_hinders_nobody_and_is_shown(outboxes):
    client = outboxes.client()
    outbox = outboxes(client=client, dead_max=2, dead_retention_seconds=10.0)
    await outbox.append([event(number) for number in range(5)], T0)
    await outbox.dead([event(0).event_id, event(1).event_id], "refused", T0, None)
    await client.call("HSET", client.key("ob", "dead"), event(0).event_id, b"\xff no letter")
    [odd, _] = await outbox.dead_letters()
    assert (odd.body, odd.reason, odd.replayable) == (b"\xff no letter", "unreadable", False)
    await outbox.expire(T0 - 1, T0 + 11)
    [odd] = await outbox.dead_letters()
    assert (odd.letter_id, odd.body, odd.dead_at) == (event(0).event_id, b"\xff no letter", T0 + 11)
    await outbox.dead([event(2).event_id, event(3).event_id], "refused", T0 + 12, None)
    assert set(await letters(outbox)) == {event(2).event_id, event(3).event_id}


KEYS = [
    ("ob", "q"),
    ("ob", "e"),
    ("ob", "dead"),
    ("ob", "dead", "q"),
    ("ob", "recent"),
    ("ob", "n"),
    ("ob", "fence"),
]


@pytest.mark.fault
@pytest.mark.parametrize("key", KEYS)
async def test_a_key_of_another_type_is_an_error_and_leaves_no_half(outboxes, key):
    client = outboxes.client()
    outbox = outboxes(client=client)
    await outbox.append([event(number) for number in range(4)], T0)
    await outbox.dead([event(0).event_id], "refused", T0, 5)
    await outbox.ack([event(1).event_id], 5)
    place = client.key(*key)
    await client.call("RENAME", place, client.key("aside"))
    await client.call("RPUSH", place, "not mine")
    for call in (
        outbox.dead([event(2).event_id], "refused", T0, 6),
        outbox.replay([event(0).event_id], T0),
        outbox.ack([event(3).event_id], 6),
        outbox.append([event(9)], T0),
        outbox.expire(T0 + 1, T0 + 1),
    ):
        with pytest.raises(OutboxError, match="WRONGTYPE"):
            await call
    await client.call("RENAME", client.key("aside"), place)
    assert await numbers(outbox) == [2, 3]
    assert list(await letters(outbox)) == [event(0).event_id]


@pytest.mark.fault
async def test_a_full_redis_refuses_events_and_lets_them_go(outboxes_at, private_redis):
    """What only makes room works: the lease, acknowledgements, dead letters, their purge."""
    async with outboxes_at(private_redis.port) as new:
        client = new.client()
        outbox, lease = new(client=client), new.lease(client=client)
        await outbox.append([event(number, text="x" * 2_000) for number in range(60)], T0)
        # The scripts are known: what is tried below is not whether Redis has room for them.
        for call in (outbox.ack([], 1), outbox.dead([], "", T0, 1), outbox.expire(0, T0)):
            await call
        await lease.drop(await lease.hold())
        await client.call("CONFIG", "SET", "maxmemory", "1mb")
        with pytest.raises(OutboxError, match="OOM"):
            await outbox.append([event(100)], T0)
        fence = await lease.hold()
        assert fence is not None
        assert await outbox.ack([event(0).event_id], fence) == 1
        assert await outbox.dead([event(1).event_id], "refused", T0, fence) == 1
        assert await outbox.replay(None, T0) == 1
        assert await outbox.expire(T0 + 1, T0 + 1) == 59
        assert await outbox.purge(None) == 59
        await lease.drop(fence + 10)
        assert await lease.hold() > fence + 10
        await client.call("CONFIG", "SET", "maxmemory", "0")
        assert await outbox.append([event(100)], T0) == 1


async def test_many_and_large_events_go_in_pieces(outboxes):
    outbox = outboxes()
    many = [event(number) for number in range(1_234)]
    large = [event(number, text="x" * 1_500_000) for number in range(2_000, 2_005)]
    assert await outbox.append([*many, *large], T0) == 1_239
    found = await outbox.peek(200)
    assert [entry.event.seq for entry in found] == list(range(200))
    seen = [entry.event.event_id for entry in await outbox.peek(1_000)]
    assert await outbox.ack(seen, None) == 1_000
    ids = [one.event_id for one in [*many, *large]]
    assert await outbox.dead(ids, "refused", T0, None) == 239
    shown = await outbox.dead_letters(limit=500)
    assert [letter.letter_id for letter in shown] == ids[1_000:]
    assert await outbox.replay(None, T0) == 239
    # Large ones come a few at a time, and all come.
    left = ids[1_000:]
    while left:
        page = [entry.event.event_id for entry in await outbox.peek(1_000)]
        assert page == left[: len(page)]
        assert 0 < len(page) <= 237
        await outbox.ack(page, None)
        left = left[len(page) :]
    assert (await outbox.stats(T0)).depth == 0


async def test_replay_ends_when_letters_come_back_as_fast_as_they_go(outboxes):
    outbox, hub_says_no = outboxes(), outboxes()
    await outbox.append([event(number) for number in range(1_200)], T0)
    await outbox.dead([event(number).event_id for number in range(1_200)], "rejected", T0, None)

    async def reject():
        while True:
            entries = await hub_says_no.peek(200)
            ids = [entry.event.event_id for entry in entries]
            await hub_says_no.dead(ids, "rejected", T0, None)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reject)
            assert await outbox.replay(None, T0) == 1_200
            tasks.cancel_scope.cancel()


async def test_fences_are_exact_to_their_last_digit(outboxes):
    """A number of Lua is so only up to the largest."""
    outbox = outboxes()
    big = MAX_FENCE - 2
    await outbox.append([event(1), event(2)], T0)
    assert await outbox.ack([event(1).event_id], big) == 1
    with pytest.raises(FencedOutboxError) as caught:
        await outbox.ack([event(2).event_id], big - 1)
    assert (caught.value.fence, caught.value.newest) == (big - 1, big)
    assert await outbox.ack([event(2).event_id], big) == 1


async def test_ids_from_outside_are_only_ids(outboxes):
    outbox = outboxes()
    odd = ["", "*", "\x00", "ü", "\ud800", "\udcff", "a" * 1_000]
    assert await outbox.purge(odd) == 0
    assert await outbox.replay(odd, T0) == 0
    assert await outbox.ack(odd, None) == 0
    for one in odd:
        assert await outbox.dead_letters(after=one) == []


@pytest.mark.fault
@pytest.mark.parametrize("call", ["append", "ack", "dead", "replay", "purge", "expire", "peek"])
async def test_c10_a_call_whose_reply_was_lost_may_be_repeated(
    outboxes_at, line, private_redis, call
):
    """C10: Redis did it, and nobody heard so."""
    async with outboxes_at(line.port) as far, outboxes_at(private_redis.port) as near:
        near.prefix = far.prefix
        outbox, other = far(), near()
        await other.append([event(1), event(2), event(3)], T0)
        await other.dead([event(3).event_id], "refused", T0, None)
        calls = {
            "append": lambda one: one.append([event(4)], T0),
            "ack": lambda one: one.ack([event(1).event_id], 7),
            "dead": lambda one: one.dead([event(1).event_id], "refused", T0, 7),
            "replay": lambda one: one.replay([event(3).event_id], T0),
            "purge": lambda one: one.purge(None),
            "expire": lambda one: one.expire(T0 + 1, T0 + 1),
            "peek": lambda one: one.peek(10),
        }
        expected = {
            "append": ([1, 2, 4], [3]),
            "ack": ([2], [3]),
            "dead": ([2], [3, 1]),
            "replay": ([1, 2, 3], []),
            "purge": ([1, 2], []),
            "expire": ([], [3, 1, 2]),
            "peek": ([1, 2], [3]),
        }
        await calls[call](other) if call == "peek" else None
        line.loses = True
        with pytest.raises(OutboxError):
            await calls[call](outbox)
        for _ in range(2):
            await calls[call](outbox)
            dead = [Event.from_json(one.body).seq for one in await other.dead_letters()]
            assert (await numbers(other), dead) == expected[call]
        assert line.lost == 1


@pytest.mark.fault
async def test_c13_a_cancelled_call_is_done_or_was_not_begun(outboxes):
    """C13: cancelled at whichever await; the next call has its own reply."""
    client = outboxes.client(connections_max=2)
    outbox, other = outboxes(client=client), outboxes()
    for number in range(150):
        with anyio.move_on_after(0):
            await outbox.append([event(number)], T0)
        async with anyio.create_task_group() as tasks:

            async def work(number=number):
                await outbox.append([event(number)], T0)
                await outbox.dead([event(number).event_id], "refused", T0, None)
                await outbox.replay(None, T0)
                await outbox.ack([event(number).event_id], None)

            tasks.start_soon(work)
            for _ in range(number % 15):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        waiting = set(await numbers(other))
        dead = {Event.from_json(one.body).seq for one in await other.dead_letters()}
        assert waiting | dead <= {number}
        assert not waiting & dead
        await work()
        assert await numbers(other) == []
        assert await other.dead_letters() == []
    stats = await other.stats(T0)
    assert (stats.depth, stats.dead, stats.dead_bytes, stats.damaged_lines) == (0, 0, 0, 0)


async def test_sums_end_where_they_began(outboxes):
    client = outboxes.client()
    outbox = outboxes(client=client, events_bytes_max=100_000, dead_max=3)
    for turn in range(20):
        some = [event(10 * turn + n, text="x" * (turn * 7)) for n in range(6)]
        await outbox.append(some, T0)
        await outbox.dead([one.event_id for one in some[:4]], "refused", T0, None)
        await outbox.replay([some[3].event_id], T0)
        await outbox.purge([some[2].event_id])
        await outbox.ack([one.event_id for one in some], None)
        assert await client.call("HGET", client.key("ob", "n"), "bytes") == b"0"
    await outbox.purge(None)
    assert await client.call("HGET", client.key("ob", "n"), "dead_bytes") == b"0"


async def test_nothing_answers_at_a_port_that_is_not_redis(outboxes_at):
    async with outboxes_at(1) as new:
        outbox = new()
        for call in (outbox.ping(), outbox.append([event(1)], T0), outbox.stats(T0)):
            with pytest.raises(OutboxError, match=r"127\.0\.0\.1:1 gave no answer"):
                await call


async def test_it_is_well_while_redis_is(outboxes):
    outbox = outboxes()
    await outbox.ping()
    assert math.isclose((await outbox.stats(T0)).oldest_age_seconds, 0.0)
