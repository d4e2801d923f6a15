"""What the check of a Redis finds out, on real ones that are set up in every wrong way."""

import logging
from functools import partial

import anyio
import pytest

from ahcollector.errors import RedisRefusedError, RedisSettingsError
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.testing import FakeClock

pytestmark = [pytest.mark.service, pytest.mark.anyio]

PASSWORD = "canary-5d1e"


class CountedClock(FakeClock):
    """Counts who went to sleep, which is how a loop tells that it went round."""

    def __init__(self):
        super().__init__(1_790_000_000.0)
        self.sleeps = 0

    async def sleep(self, seconds):
        self.sleeps += 1
        await super().sleep(seconds)

    async def round(self, seconds):
        """Let one interval pass, and what is done at its end."""
        with anyio.fail_after(10):
            while not self.sleeps:
                await anyio.sleep(0.001)
            before = self.sleeps
            self.advance(seconds)
            while self.sleeps == before:
                await anyio.sleep(0.001)


def client_of(server, **more):
    clock = more.pop("clock", None)
    return RedisClient(
        config=RedisConfig(port=server.port, prefix="check:", timeout_seconds=5, **more),
        clock=clock,
    )


@pytest.fixture
async def admin(private_redis):
    client = client_of(private_redis)
    yield client
    await client.aclose()


@pytest.fixture
async def limited(private_redis, admin):
    """Makes the client of a user with the rights named."""
    made = []

    async def make(rights):
        await admin.call("ACL", "SETUSER", "lim", "reset", "on", f">{PASSWORD}", *rights.split())
        made.append(client_of(private_redis, username="lim", password=PASSWORD))
        return made[-1]

    yield make
    for client in made:
        await client.aclose()


async def test_a_good_redis_is_left_as_it_was(admin):
    assert await admin.check() == ()
    assert admin.policy == "noeviction"
    assert await admin.call("DBSIZE") == 0


async def test_the_rights_that_the_page_about_redis_names_are_enough(limited):
    """docs/how-to/run-on-redis.md."""
    rights = "~check:* &check:* +@all -@admin -@dangerous +config|get +info"
    client = await limited(rights)
    assert await client.check() == ()


@pytest.mark.parametrize(
    ("rights", "told"),
    [
        ("~* &* +@all -set", r"does not let user lim write keys .*'set'.*\+@write ~check:\*"),
        ("~check:* &* +@all -@write", r"write keys .*\+@write ~check:\*"),
        ("~other:* &* +@all", r"write keys .*keys.*\+@write ~check:\*"),
        ("%W~* &* +@all", r"read keys .*\+@read ~check:\*"),
        ("~* &* +@all -get", r"read keys .*'get'.*\+@read ~check:\*"),
        ("~* &* +@all -@scripting", r"run scripts .*'eval'.*\+@scripting ~check:\*"),
        ("~* &* +@all -del", r"delete keys .*'del'.*\+@write ~check:\*"),
        ("~* &* +@all -publish", r"publish on channels .*'publish'.*\+publish &check:\*"),
        ("~* resetchannels +@all", r"publish on channels .*channel.*\+publish &check:\*"),
        ("~* &* +@all -subscribe", r"listen to channels .*'subscribe'.*\+subscribe"),
    ],
)
async def test_a_right_that_is_missing_is_named_with_the_way_to_give_it(limited, rights, told):
    client = await limited(rights)
    with pytest.raises(RedisSettingsError, match=told) as caught:
        await client.check()
    assert "gave no answer" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


async def test_what_a_check_without_rights_left_behind_ends_by_itself(limited, admin):
    client = await limited("~* &* +@all -get")
    with pytest.raises(RedisSettingsError):
        await client.check()
    _, [key] = await admin.call("SCAN", 0, "MATCH", "check:*")
    assert 0 < await admin.call("PTTL", key) <= 10_000


async def test_a_replica_is_refused(admin, private_redis):
    await admin.call("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(RedisSettingsError, match=rf":{private_redis.port} is a replica.*master"):
        await admin.check()
    await admin.call("REPLICAOF", "NO", "ONE")
    assert await admin.check() == ()


async def test_a_full_redis_is_an_error_that_may_pass(admin):
    await admin.call("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(RedisRefusedError, match=r"refuses SET: OOM.*raise maxmemory") as caught:
        await admin.check()
    assert caught.value.code == "OOM"
    await admin.call("CONFIG", "SET", "maxmemory", "0")
    assert await admin.check() == ()


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
async def test_without_the_right_to_config_the_policy_is_read_from_info(limited, admin, policy):
    await admin.call("CONFIG", "SET", "maxmemory-policy", policy)
    client = await limited("~check:* &check:* +@all -config")
    if policy == "noeviction":
        assert await client.check() == ()
    else:
        with pytest.raises(RedisSettingsError, match=f"maxmemory-policy {policy}"):
            await client.check()
    assert client.policy == policy


async def test_a_redis_that_tells_no_policy_is_taken_with_a_warning(limited):
    client = await limited("~check:* &check:* +@all -config -info")
    [warning] = await client.check()
    assert "does not tell its maxmemory-policy" in warning
    assert "+config|get or +info" in warning
    assert client.policy is None
    await client.ping()


async def test_a_policy_that_turns_bad_is_told_once_and_makes_the_ping_fail(
    private_redis, admin, caplog
):
    clock = CountedClock()
    client = client_of(private_redis, clock=clock)
    caplog.set_level(logging.INFO, "ahcollector.redis")
    await client.check()

    async with anyio.create_task_group() as group:
        group.start_soon(partial(client.watch, interval_seconds=60))
        await clock.round(60)
        await client.ping()
        await admin.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await client.ping()
        for _ in range(3):
            await clock.round(60)
            with pytest.raises(RedisSettingsError, match=r"allkeys-lru.*noeviction"):
                await client.ping()
        assert [one.levelname for one in caplog.records] == ["ERROR"]
        assert "allkeys-lru" in caplog.records[0].error
        await admin.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await client.ping()
        assert [one.levelname for one in caplog.records] == ["ERROR", "INFO"]
        group.cancel_scope.cancel()
    await client.aclose()


async def test_the_watch_outlives_an_outage_and_believes_what_it_saw_before(private_redis):
    clock = CountedClock()
    client = client_of(private_redis, clock=clock)
    await client.check()
    private_redis.kill()
    async with anyio.create_task_group() as group:
        group.start_soon(partial(client.watch, interval_seconds=60))
        for _ in range(3):
            await clock.round(60)
        private_redis.start()
        assert client.policy == "noeviction"
        await client.ping()
        group.cancel_scope.cancel()
    await client.aclose()
