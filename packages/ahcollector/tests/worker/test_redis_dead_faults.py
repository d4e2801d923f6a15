"""Dead batches in a Redis that is killed, by workers that are killed, cancelled and cut off.

Redis syncs its file at every write (``appendfsync always``): a put that returned is there after
kill -9, and one that raised may be repeated.
"""

import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from dead_stage import T0, check_whole, client_of, fresh_prefix, numbers, put

from ahcollector.bus import SHARDS
from ahcollector.errors import BusError, DeadBatchesError
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import replay_dead_batches

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.anyio]
SCRIPT = Path(__file__).with_name("dead_process.py")


def dead_of(client, **more):
    from ahcollector.worker.redis import RedisDeadBatches

    return RedisDeadBatches(client=client, **{"letters_max": 100_000} | more)


def bus_of(client, **more):
    from ahcollector.bus.redis import RedisBus

    return RedisBus(client=client, **{"queue_batches_max": 100_000} | more)


async def on_the_bus(client):
    """The numbers of all batches in all shards, each time they are there."""
    from ahcollector.bus._entries import decode

    found = []
    for shard in range(SHARDS):
        rows = await client.call("XRANGE", client.key("bus", "s", str(shard)), "-", "+")
        found += [int(decode(fields[b"b"]).request_id, 16) for _, fields in rows]
    return found


@pytest.fixture
def start(mortal):
    """Start processes: `start(prefix, "put", 0, 100)`; those that live are ended."""
    with ExitStack() as stack:

        def started(prefix, *arguments):
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(mortal.port), prefix, *map(str, arguments)],
                stdout=subprocess.PIPE,
                text=True,
            )

            def end():
                process.kill()
                process.wait()
                process.stdout.close()

            stack.callback(end)
            return process

        yield started


async def test_c10_a_put_whose_reply_was_lost_and_that_is_repeated_is_one_letter(
    line, private_redis
):
    """C10: the client sends it once, and the worker again, with a later time."""
    client = client_of(line.port, timeout_seconds=2)
    dead = dead_of(client)
    await put(dead, 1)
    for number in (2, 3):
        line.loses = True
        with pytest.raises(DeadBatchesError, match="keep a batch"):
            await put(dead, number)
        await put(dead, number, now=T0 + 1)
    assert line.lost == 2
    assert await numbers(dead) == [1, 2, 3]
    first = (await dead.letters())[0].letter_id
    # A script that Redis does not know yet is two commands, of which the first does nothing.
    await dead.purge(["1"])
    line.loses = True
    with pytest.raises(DeadBatchesError, match="delete letters"):
        await dead.purge([first])
    assert await dead.purge([first]) == 0
    assert await numbers(dead) == [2, 3]
    await check_whole(client)
    await client.aclose()


async def test_a_put_that_returned_is_there_after_kill_9_in_the_middle(mortal):
    client = client_of(mortal.port, timeout_seconds=2)
    dead = dead_of(client)
    returned, raised = set(), set()

    async def write(first):
        for number in range(first, first + 60):
            try:
                await put(dead, number)
                returned.add(number)
            except DeadBatchesError:
                raised.add(number)

    for turn in range(3):
        raised.clear()
        async with anyio.create_task_group() as group:
            for writer in range(4):
                group.start_soon(write, turn * 1_000 + writer * 60)
            enough = len(returned) + 60
            while len(returned) < enough:
                await anyio.sleep(0.001)
            await anyio.to_thread.run_sync(mortal.kill)
        await anyio.to_thread.run_sync(mortal.start)
        assert raised
        held = await numbers(dead)
        assert returned <= set(held)
        assert len(held) == len(set(held))
        await check_whole(client)
    await put(dead, *raised)
    held = await numbers(dead)
    assert len(held) == len(set(held))
    assert set(held) >= returned | raised
    await check_whole(client)
    await client.aclose()


async def test_c13_cancelled_at_every_command_no_half_is_left(mortal):
    """C13: whatever was cut off was done or was not, and may be done again."""
    client = client_of(mortal.port, connections_max=4)
    dead = dead_of(client, letters_max=20)
    chance = random.Random(13)
    bus = bus_of(client)
    cut = 0

    async def replay_some():
        await replay_dead_batches(dead, bus.publish)

    kinds = {
        "put": lambda: put(dead, chance.randrange(40)),
        "purge": lambda: dead.purge(None),
        "page": lambda: numbers(dead),
        "replay": replay_some,
    }

    async def cancelled(kind, after):
        nonlocal cut
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(kinds[kind])
                for _ in range(after):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        cut += scope.cancelled_caught

    for _ in range(80):
        async with anyio.create_task_group() as group:
            for kind in chance.choices(list(kinds), weights=[20, 1, 3, 1], k=6):
                group.start_soon(cancelled, kind, chance.randint(0, 12))
        await put(dead, chance.randrange(40))
    assert cut > 80
    await check_whole(client)
    await put(dead, *range(40))
    assert await numbers(dead) == list(range(20, 40))
    await client.aclose()


async def test_two_processes_put_and_one_is_killed(mortal, start):
    prefix = fresh_prefix()
    doomed, other = start(prefix, "put", 0, 100_000), start(prefix, "put", 200_000, 50)
    told = set()

    def read():
        while len(told) < 30:
            told.add(int(doomed.stdout.readline()))
        doomed.send_signal(signal.SIGKILL)
        told.update(int(line) for line in doomed.stdout if line.endswith("\n"))
        told.update(int(line) for line in other.stdout if line != "done\n")

    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(read)
    client = client_of(mortal.port, prefix)
    held = await numbers(dead_of(client))
    assert set(held) >= told
    # At most the one whose put was under way.
    assert len(held) <= len(told) + 1
    assert told >= set(range(200_000, 200_050))
    await check_whole(client)
    await client.aclose()


async def test_a_replay_that_is_killed_again_and_again_loses_nothing(mortal, start):
    """A batch is on the bus before it is no dead batch; each kill has at most one there twice."""
    prefix = fresh_prefix()
    client = client_of(mortal.port, prefix)
    dead = dead_of(client)
    await put(dead, *range(100))
    for left in (80, 50):
        process = start(prefix, "replay")
        with anyio.fail_after(30):
            while await dead.count() > left:
                await anyio.lowlevel.checkpoint()
        process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(process.wait)
        carried = await on_the_bus(client)
        assert set(carried) | set(await numbers(dead)) == set(range(100))
        await check_whole(client)
    await replay_dead_batches(dead, bus_of(client).publish)
    carried = await on_the_bus(client)
    assert set(carried) == set(range(100))
    assert len(carried) <= 100 + 2
    assert await dead.count() == 0
    await client.aclose()


async def test_a_replay_through_a_redis_that_dies_goes_on_afterwards(mortal):
    client = client_of(mortal.port, timeout_seconds=2)
    dead, bus = dead_of(client), bus_of(client)
    await put(dead, *range(100))
    published = 0

    async def publish(batch):
        nonlocal published
        published += 1
        if published == 30:
            await anyio.to_thread.run_sync(mortal.kill)
        await bus.publish(batch)

    with pytest.raises((BusError, DeadBatchesError)):
        await replay_dead_batches(dead, publish)
    with pytest.raises(DeadBatchesError, match="gave no answer"):
        await dead.letters()
    await anyio.to_thread.run_sync(mortal.start)
    assert set(await on_the_bus(client)) | set(await numbers(dead)) == set(range(100))
    await replay_dead_batches(dead, bus.publish)
    assert set(await on_the_bus(client)) == set(range(100))
    assert await dead.count() == 0
    await client.aclose()


async def test_a_full_redis_keeps_the_batch_with_the_worker_until_there_is_room(private_redis):
    client = client_of(private_redis.port)
    dead = dead_of(client)
    await put(dead, 1)
    await client.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await client.call("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(DeadBatchesError, match="OOM"):
        await put(dead, 2)
    assert await numbers(dead) == [1]
    # What makes room must be possible in a Redis that has none.
    assert await dead.purge(None) == 1
    await client.call("CONFIG", "SET", "maxmemory", "0")
    await put(dead, 2)
    assert await numbers(dead) == [2]
    await check_whole(client)
    await client.aclose()


async def test_a_worker_writes_its_refused_batches_to_redis_through_an_outage(mortal):
    """The batch stays on the bus until it is a dead batch."""
    from ahcollector.bus import InProcessBus
    from ahcollector.clock import SystemClock
    from ahcollector.errors import PermanentStoreError
    from ahcollector.worker import Worker

    class Refuses:
        async def write(self, batches):
            raise PermanentStoreError("too many labels")

    client = client_of(mortal.port, timeout_seconds=1)
    dead = dead_of(client)
    bus = InProcessBus(clock=SystemClock())
    worker = Worker(
        bus=bus,
        store=Refuses(),
        clock=SystemClock(),
        rng=random.Random(1),
        dead_batches=dead,
        flush_seconds=0.01,
    )
    await anyio.to_thread.run_sync(mortal.kill)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await bus.publish(batch_of(1))
        await anyio.sleep(0.2)
        assert worker.stats().dead == 0
        await anyio.to_thread.run_sync(mortal.start)
        with anyio.fail_after(10):
            while worker.stats().dead < 1:
                await anyio.sleep(0.02)
        group.cancel_scope.cancel()
    assert await numbers(dead) == [1]
    [letter] = await dead.letters()
    assert letter.reason == "PermanentStoreError: too many labels"
    await client.aclose()
