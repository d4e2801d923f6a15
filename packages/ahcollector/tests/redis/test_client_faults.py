"""The Redis client under cancellation, restarts and lost replies: C13 and C10."""

import random
import time

import anyio
import anyio.lowlevel
import pytest

from ahcollector.errors import RedisError
from ahcollector.redis import RedisClient, RedisConfig, Script

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.anyio]

ECHO = Script.of("echo", "redis.call('INCR', KEYS[1]) return ARGV[1]")
CONNECTIONS = 4


def client_of(server, **more):
    config = RedisConfig(
        port=server.port, prefix="faults:", connections_max=CONNECTIONS, timeout_seconds=5, **more
    )
    return RedisClient(config=config)


async def connections_of(client):
    """How many connections Redis sees, without subscriptions and replicas."""
    reply = await client.call("CLIENT", "LIST", "TYPE", "normal")
    # redis-py reads the list into one dict a connection; other versions leave the text.
    return len(reply) if isinstance(reply, list) else len(reply.splitlines())


@pytest.mark.parametrize("rounds", [500, pytest.param(10_000, marks=pytest.mark.nightly)], ids=str)
async def test_c13_commands_cancelled_at_every_await_mix_no_replies_and_leak_no_connection(
    private_redis, rounds
):
    client = client_of(private_redis)
    chance = random.Random(13)
    kinds = {
        "call": lambda word: client.call("ECHO", word),
        "run": lambda word: client.run(ECHO, keys=[client.key("count")], args=[word]),
        "pipeline": lambda word: client.pipeline([["ECHO", word], ["ECHO", f"{word}!"]]),
    }
    wrong, ended, cut = [], 0, 0

    async def ask(kind, word):
        nonlocal ended
        reply = await kinds[kind](word)
        ended += 1
        told = [word.encode(), f"{word}!".encode()] if kind == "pipeline" else word.encode()
        if reply != told:
            wrong.append((word, reply))

    async def cancelled(kind, word, after):
        nonlocal cut
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, kind, word)
                for _ in range(after):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        cut += scope.cancelled_caught

    for number in range(rounds):
        kind = ("call", "run", "pipeline")[number % 3]
        async with anyio.create_task_group() as group:
            # Some find no free connection and are cancelled while they wait for one.
            for position in range(chance.randint(1, 2 * CONNECTIONS)):
                word = f"{number}.{position}"
                group.start_soon(cancelled, kind, word, chance.randint(0, 12))
        if number % 10 == 0:
            await ask(kind, f"{number} whole")
    assert wrong == []
    assert cut > rounds, "else nothing was tried"
    assert ended > rounds / 10
    assert await connections_of(client) <= CONNECTIONS
    await client.aclose()


async def test_c13_after_a_cancellation_storm_the_loop_is_idle(private_redis):
    """A task that spins on a cancelled scope would eat a core for ever."""
    client = client_of(private_redis)
    for _ in range(50):
        with anyio.move_on_after(0):
            await client.ping()
        with anyio.move_on_after(0.001):
            await client.call("ECHO", "x")
    began = time.process_time()
    await anyio.sleep(0.3)
    assert time.process_time() - began < 0.2
    await client.aclose()


async def test_c13_commands_under_way_in_a_kill_end_and_the_next_is_answered(private_redis):
    """Five times; within three times the second that the fault's line names."""
    client = client_of(private_redis)
    for turn in range(5):
        answered, refused = [], []

        async def ask(word, answered=answered, refused=refused):
            for number in range(200):
                told = f"{word}.{number}"
                try:
                    answered.append((told, (await client.call("ECHO", told)).decode()))
                except RedisError as error:
                    refused.append(error)
                    return

        async with anyio.create_task_group() as group:
            for word in range(CONNECTIONS):
                group.start_soon(ask, f"{turn}.{word}")
            await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(private_redis.kill)
        assert refused
        assert all(told == reply for told, reply in answered)
        private_redis.start()
        began = time.monotonic()
        while True:
            try:
                assert await client.call("ECHO", "again") == b"again"
                break
            except RedisError:
                await anyio.sleep(0.01)
        assert time.monotonic() - began < 3
        assert await connections_of(client) <= CONNECTIONS
    await client.aclose()


@pytest.mark.parametrize("way", ["call", "run", "pipeline"])
async def test_c10_a_write_whose_reply_is_lost_is_done_once_and_raises(line, private_redis, way):
    """redis-py alone would send it up to ten times more, without a word."""
    direct = client_of(private_redis)
    key = direct.key("times")
    add = Script.of("add", "return redis.call('INCR', KEYS[1])")
    await direct.run(add, keys=[direct.key("other")])
    client = client_of(line)
    await client.ping()
    ways = {
        "call": lambda: client.call("INCR", key),
        "run": lambda: client.run(add, keys=[key]),
        "pipeline": lambda: client.pipeline([["INCR", key]]),
    }
    line.loses = True
    with pytest.raises(RedisError):
        await ways[way]()
    assert line.lost == 1
    assert await direct.call("GET", key) == b"1"
    assert await client.call("INCR", key) == 2, "and the client is as good as before"
    await client.aclose()
    await direct.aclose()


async def test_c13_a_task_that_does_nothing_but_commands_can_be_cancelled(private_redis):
    """Each command is waited for to its end, so the task is asked before it sends the next."""
    client = client_of(private_redis)
    done = 0

    async def busy():
        nonlocal done
        while done < 2_000:
            await client.call("ECHO", "x")
            done += 1

    with anyio.move_on_after(0.02) as scope:
        await busy()
    assert scope.cancelled_caught
    assert done < 2_000
    await client.aclose()
