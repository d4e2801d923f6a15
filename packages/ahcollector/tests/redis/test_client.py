"""The Redis client against a real Redis that is restarted, paused and set up wrongly."""

import socket
from functools import partial

import anyio
import attrs
import pytest

from ahcollector.errors import RedisError, RedisSettingsError
from ahcollector.redis import RedisClient, RedisConfig, Script

pytestmark = [pytest.mark.service, pytest.mark.anyio]

ADD = Script.of("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


def config_of(server, **more):
    return RedisConfig(host="127.0.0.1", port=server.port, prefix="client:", **more)


@pytest.fixture
async def client(redis_server):
    client = RedisClient(config=config_of(redis_server))
    yield client
    await client.call("FLUSHDB")
    await client.aclose()


async def test_a_script_that_redis_does_not_know_is_taught_and_run_once(client):
    await client.call("SCRIPT", "FLUSH")
    key = client.key("sum")
    assert await client.run(ADD, keys=[key], args=[2]) == 2
    assert await client.run(ADD, keys=[key], args=[3]) == 5


async def test_a_pipelines_replies_come_in_the_order_of_its_commands(client):
    commands = [["SET", client.key("a"), "1"], ["GET", client.key("a")], ["GET", client.key("b")]]
    assert await client.pipeline(commands) == [True, b"1", None]


async def test_an_error_among_a_pipelines_replies_is_raised(client):
    await client.call("SET", client.key("text"), "x")
    with pytest.raises(RedisError, match="not an integer"):
        await client.pipeline([["INCR", client.key("text")], ["PING"]])


async def test_a_redis_that_evicts_keys_is_refused(private_redis):
    client = RedisClient(config=config_of(private_redis))
    await client.check()
    await client.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(RedisSettingsError, match=r"maxmemory-policy allkeys-lru.*noeviction"):
        await client.check()
    await client.aclose()


async def test_after_a_restart_the_next_command_is_answered(private_redis):
    client = RedisClient(config=config_of(private_redis))
    for _ in range(5):
        assert await client.run(ADD, keys=[client.key("turns")], args=[1]) >= 1
        private_redis.kill()
        with pytest.raises(RedisError, match=rf"127.0.0.1:{private_redis.port} gave no answer"):
            await client.ping()
        private_redis.start()
        await client.ping()
    await client.aclose()


async def test_a_redis_that_hangs_holds_nobody_beyond_the_timeout(private_redis):
    client = RedisClient(config=config_of(private_redis, timeout_seconds=0.2))
    await client.ping()
    private_redis.pause()
    try:
        with anyio.fail_after(3 * 0.4), pytest.raises(RedisError, match="gave no answer to GET"):
            await client.call("GET", client.key("a"))
    finally:
        private_redis.resume()
    await client.ping()
    await client.aclose()


async def test_a_command_that_waits_longer_than_the_timeout_is_no_error(redis_server):
    """C12."""
    client = RedisClient(config=config_of(redis_server, timeout_seconds=0.2, connections_max=1))
    waiting = client.for_blocking(block_seconds=0.5, connections_max=2)
    key = client.key("empty")
    command = ("XREAD", "BLOCK", 500, "STREAMS", key, "0")
    with pytest.raises(RedisError, match="gave no answer to XREAD"):
        await client.call(*command)
    async with anyio.create_task_group() as group:
        replies = []

        async def wait():
            replies.append(await waiting.call(*command))

        group.start_soon(wait)
        group.start_soon(wait)
        # Those who wait keep nobody from a connection.
        await client.ping()
    assert len(replies) == 2
    assert not any(replies)
    await waiting.aclose()
    await client.aclose()


async def test_when_all_connections_are_busy_the_error_says_so(private_redis):
    client = RedisClient(config=config_of(private_redis, timeout_seconds=0.2, connections_max=1))
    await client.ping()
    told = []

    async def ask():
        try:
            await client.ping()
        except RedisError as error:
            told.append(str(error))

    private_redis.pause()
    try:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
    finally:
        private_redis.resume()
    assert len(told) == 3
    assert any("all 1 connections are busy" in text for text in told)
    await client.ping()
    await client.aclose()


async def test_a_cancelled_command_leaves_no_reply_for_the_next_one(client):
    for number in range(200):
        async with anyio.create_task_group() as group:
            group.start_soon(client.call, "ECHO", f"cancelled {number}")
            await anyio.lowlevel.checkpoint()
            for _ in range(number % 7):
                await anyio.sleep(0)
            group.cancel_scope.cancel()
        assert await client.call("ECHO", f"mine {number}") == f"mine {number}".encode()


async def test_a_command_that_began_is_finished_although_its_task_is_cancelled(client):
    key = client.key("finished")
    async with anyio.create_task_group() as group:
        group.start_soon(partial(client.run, ADD, keys=[key], args=[1]))
        await anyio.sleep(0)
        group.cancel_scope.cancel()
    assert await client.call("GET", key) == b"1"


async def test_a_wrong_password_is_named_and_not_shown(private_redis):
    admin = RedisClient(config=config_of(private_redis))
    await admin.call("CONFIG", "SET", "requirepass", "right-password")
    wrong = RedisClient(config=config_of(private_redis, password="wrong-canary"))
    with pytest.raises(RedisError, match="check username and password") as caught:
        await wrong.ping()
    assert "wrong-canary" not in str(caught.value)
    right = RedisClient(config=config_of(private_redis, password="right-password"))
    await right.ping()
    for client in (admin, wrong, right):
        await client.aclose()


def test_the_password_is_in_no_text_of_the_config():
    assert "canary" not in repr(RedisConfig(password="canary"))


async def test_nobody_there_is_an_error_that_names_where():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        client = RedisClient(config=RedisConfig(port=port))
        with pytest.raises(RedisError, match=f"127.0.0.1:{port} gave no answer to PING"):
            await client.ping()
        await client.aclose()


async def test_a_channel_is_heard_again_after_a_restart_and_says_that_it_was_deaf(private_redis):
    client = RedisClient(config=config_of(private_redis))
    heard, stands = [], []

    async def until(condition):
        with anyio.fail_after(10):
            while not condition():
                await anyio.sleep(0.01)

    async with anyio.create_task_group() as group:
        group.start_soon(
            lambda: client.listen("news", heard=heard.append, connected=lambda: stands.append(1))
        )
        await until(lambda: len(stands) == 1)
        await client.publish("news", "first")
        await until(lambda: heard == ["first"])
        private_redis.kill()
        private_redis.start()
        await until(lambda: len(stands) == 2)
        await client.publish("news", "second")
        await until(lambda: heard == ["first", "second"])
        group.cancel_scope.cancel()
    await client.aclose()


async def test_another_prefix_hears_nothing(redis_server):
    one = RedisClient(config=config_of(redis_server))
    other = RedisClient(config=attrs.evolve(config_of(redis_server), prefix="other:"))
    assert one.key("a", "b") == "client:a:b"
    assert other.key("a", "b") == "other:a:b"
    await one.aclose()
    await other.aclose()
