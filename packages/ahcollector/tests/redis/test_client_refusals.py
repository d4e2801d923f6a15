"""A Redis that answers and does not do what it is asked: what is told, by a command and a script.

Whether the keys are at fault is what parts judge by: presence tells people to move a key away.
"""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector._redis_refusals import Refusal, refusal
from ahcollector.errors import RedisError, RedisRefusedError
from ahcollector.redis import RedisClient, RedisConfig, Script

PLAIN = Script.of("plain", "return redis.call(ARGV[1], KEYS[1], ARGV[2])")
# As the scripts of presence: the error that a command returned, with its key, is raised again.
NAMING = Script.of(
    "naming",
    """
    local done, why = pcall(function()
      local reply = redis.pcall(ARGV[1], KEYS[1], ARGV[2])
      if type(reply) == 'table' and reply.err then
        error({err = reply.err .. ' (' .. ARGV[1] .. ' ' .. KEYS[1] .. ')'})
      end
    end)
    if not done then
      error(why)
    end
    """,
)
ENDLESS = Script.of("endless", "while true do redis.call('GET', 'k') end")
SHA = "5c379545a990415081f92995177e3f1facfcc679"

WAY_OUT = {
    "OOM": "raise maxmemory",
    "NOREPLICAS": "min-replicas-to-write",
    "MISCONF": "make room",
    "READONLY": "name its master",
    "MASTERDOWN": "name its master",
    "BUSY": "SCRIPT KILL",
    "NOPERM": "ACL",
    "CLUSTERDOWN": "CLUSTER INFO",
}


@pytest.mark.parametrize("code", WAY_OUT)
@pytest.mark.parametrize(
    "said",
    [
        "{} no",
        # Redis 7: a command's in a script, and one that a script raised.
        f"{{}} no script: {SHA}, on @user_script:1.",
        f"user_script:10: {{}} no (SET k) script: {SHA}, on @user_script:10.",
        # Redis 6, as redis-py hands it on.
        f"Error running script (call to f_{SHA}): @user_script:1: @user_script: 1: -{{}} no",
        f"ERR Error running script (call to f_{SHA}): @user_script:3: {{}} no (SET k)",
    ],
)
def test_a_state_of_redis_is_known_in_every_wording(code, said):
    found = refusal(said.format(code))
    assert (found.code, found.is_of_server) == (code, True)
    assert found.text.startswith(said.format(code).removesuffix("."))
    assert WAY_OUT[code] in found.text


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("WRONGTYPE Operation against a key", "WRONGTYPE"),
        (f"user_script:10: WRONGTYPE Operation (HGET OOM) script: {SHA}", "WRONGTYPE"),
        ("DAMAGED a field is no number (HMGET ah:pres:a:READONLY)", "DAMAGED"),
        ("user_script:1: attempt to perform arithmetic on a nil value", "ERR"),
        ("value is not an integer or out of range", "ERR"),
        # What a key or a value is called says nothing of Redis.
        ("user_script:1: OOMs are no numbers", "ERR"),
        ("no such thing: OOM command", "ERR"),
    ],
)
def test_what_a_key_holds_is_no_state_of_redis(said, code):
    assert refusal(said) == Refusal(code=code, text=said, is_of_server=False)


@pytest.mark.parametrize(
    "said",
    [
        f"Script killed by user with SCRIPT KILL... script: {SHA}, on @user_script:1.",
        f"Error running script (call to f_{SHA}): @user_script:1: Script killed by user with SCRI",
        f"The user executing the script can't run this command or subcommand script: {SHA}",
        "user_script:10: ERR The user executing the script can't access at least one of the keys",
    ],
)
def test_what_redis_says_of_a_script_without_a_word_is_known_too(said):
    assert refusal(said).is_of_server


@given(st.text())
def test_whatever_is_said_has_a_code_and_keeps_its_words(said):
    found = refusal(said)
    assert found.code.isupper()
    assert said.rstrip(". ") in found.text


# --- a real one


@pytest.fixture
async def client(private_redis, anyio_backend):
    config = RedisConfig(port=private_redis.port, prefix="refusals:", timeout_seconds=5)
    client = RedisClient(config=config)
    yield client
    await client.aclose()


async def full(client):
    await client.call("CONFIG", "SET", "maxmemory", "1")


async def without_replicas(client):
    await client.call("CONFIG", "SET", "min-replicas-to-write", "1")


async def without_disk(client):
    await client.call("CONFIG", "SET", "save", "3600 1")
    directory = (await client.call("CONFIG", "GET", "dir"))[1].decode()
    blocked = anyio.Path(directory) / "dump.rdb"
    await blocked.mkdir()
    await (blocked / "file").touch()
    await client.call("SET", client.key("k"), "v")
    await client.call("BGSAVE")
    with anyio.fail_after(10):
        while (await client.call("INFO", "persistence"))["rdb_last_bgsave_status"] == "ok":
            await anyio.sleep(0.05)


async def replica(client):
    await client.call("REPLICAOF", "127.0.0.1", "1")


STATES = {
    "OOM": full,
    "NOREPLICAS": without_replicas,
    "MISCONF": without_disk,
    "READONLY": replica,
}


@pytest.mark.service
@pytest.mark.anyio
@pytest.mark.parametrize("code", STATES)
async def test_a_write_that_redis_refuses_is_told_alike_by_command_and_scripts(client, code):
    await STATES[code](client)
    key = client.key("k")
    for refused in (
        lambda: client.call("SET", key, "v"),
        lambda: client.run(PLAIN, keys=[key], args=["SET", "v"]),
        lambda: client.run(NAMING, keys=[key], args=["SET", "v"]),
        lambda: client.pipeline([["SET", key, "v"]]),
    ):
        with pytest.raises(RedisRefusedError, match=WAY_OUT[code]) as caught:
            await refused()
        assert (caught.value.code, caught.value.is_of_server) == (code, True)
    # Which of its commands it was.
    with pytest.raises(
        RedisRefusedError, match=f"refuses SET {key} in a pipeline: {code} "
    ) as found:
        await client.pipeline([["GET", key], ["SET", key, "secret"]])
    assert "secret" not in str(found.value)


@pytest.mark.service
@pytest.mark.anyio
async def test_a_script_that_redis_is_busy_with_or_that_was_killed_is_no_damage(
    client, private_redis
):
    await client.call("CONFIG", "SET", "busy-reply-threshold", "1")
    other = RedisClient(config=RedisConfig(port=private_redis.port, prefix="", timeout_seconds=30))
    killed = []

    async def run_endless():
        with pytest.raises(RedisError) as caught:
            await other.run(ENDLESS)
        killed.append(caught.value)

    async with anyio.create_task_group() as group:
        group.start_soon(run_endless)
        with anyio.fail_after(10):
            busy = None
            while busy is None:
                try:
                    await client.run(PLAIN, keys=[client.key("k")], args=["SET", "v"])
                except RedisRefusedError as error:
                    busy = error
        await client.call("SCRIPT", "KILL")
    await other.aclose()
    assert (busy.code, busy.is_of_server) == ("BUSY", True)
    assert "SCRIPT KILL" in str(busy)
    assert killed[0].is_of_server


@pytest.mark.service
@pytest.mark.anyio
async def test_a_key_of_another_type_is_the_key_s_fault(client):
    key = client.key("k")
    await client.call("RPUSH", key, "v")
    for script in (PLAIN, NAMING):
        with pytest.raises(RedisRefusedError) as caught:
            await client.run(script, keys=[key], args=["HGET", "field"])
        assert (caught.value.code, caught.value.is_of_server) == ("WRONGTYPE", False)
