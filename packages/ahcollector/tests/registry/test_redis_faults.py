"""The registry in a Redis that is killed, and behind a line that loses replies.

Redis syncs its file at every write here (``appendfsync always``): what a call returned is there
after kill -9, and a call that raised may be repeated. C10: a write whose reply was lost was done
once, and repeating it changes nothing.
"""

import uuid

import anyio
import pytest

from ahcollector.errors import RegistryError
from ahcollector.testing.contracts import RegistryContract
from ahwire import AgentRecord
from ahwire.hub import AgentState

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.anyio]


def record(number=1, **fields):
    return AgentRecord(
        **{
            "agent_id": f"a{number}",
            "company_id": "acme",
            "server_id": "s",
            "state": AgentState.ACTIVE,
            "token_hash": f"{number:064x}",
            "version": 1,
            **fields,
        }
    )


def client_of(port):
    from ahcollector.redis import RedisClient, RedisConfig

    prefix = f"{uuid.uuid4().hex}:"
    return RedisClient(config=RedisConfig(port=port, prefix=prefix, timeout_seconds=2))


def registry_of(client):
    from ahcollector.registry.redis import RedisRegistry

    return RedisRegistry(client=client)


class TestRegistryInAKilledRedis(RegistryContract):
    @pytest.fixture(autouse=True)
    async def _redis(self, mortal, killed):
        self.server, self.killed = mortal, killed
        self.client = client_of(mortal.port)
        yield
        await self.client.aclose()

    async def new(self):
        return self.killed(
            registry_of(self.client),
            self.server,
            failure=RegistryError,
            kill_at={2, 3, 5, 8, 13, 34, 89, 233, 610},
        )


async def test_what_a_put_returned_is_there_after_kill_9_in_the_middle(mortal):
    client = client_of(mortal.port)
    registry = registry_of(client)
    returned, raised = set(), set()

    async def write(first):
        for number in range(first, first + 200):
            try:
                await registry.put(record(number), now=1.0)
                returned.add(number)
            except RegistryError:
                raised.add(number)

    for turn in range(3):
        async with anyio.create_task_group() as group:
            for writer in range(4):
                group.start_soon(write, turn * 1_000 + writer * 200)
            while len(returned) < 150 + 500 * turn:
                await anyio.sleep(0.001)
            await anyio.to_thread.run_sync(mortal.kill)
        mortal.start()
    assert raised
    found = {number for number in returned if await registry.get(f"a{number}") is not None}
    assert found == returned
    for number in raised:
        await registry.put(record(number), now=1.0)
    counts = await registry.count()
    assert counts.active == len(returned | raised) == 2_400
    assert await registry.company_counts() == {"acme": 2_400}
    await client.aclose()


async def scripts_run(client):
    stats = await client.call("INFO", "commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


async def facts(registry):
    return (
        await registry.get("a1"),
        await registry.lookup(f"{1:064x}"),
        await registry.by_server("acme", "s"),
        await registry.count(),
        await registry.company_counts(),
    )


WRITES = {
    "put": lambda registry: registry.put(record(version=2), now=2.0),
    "revoked put": lambda registry: registry.put(
        record(version=2, state=AgentState.REVOKED), now=2.0
    ),
    "revoke": lambda registry: registry.revoke("a1", now=2.0),
    "delete agent": lambda registry: registry.delete_agent("a1", newest_version=1),
    "delete server": lambda registry: registry.delete_server("acme", "s"),
    "delete company": lambda registry: registry.delete_company("acme"),
    "cursor": lambda registry: registry.set_cursor("c2"),
}


@pytest.mark.parametrize("write", WRITES)
async def test_c10_a_write_whose_reply_was_lost_was_done_once_and_may_be_repeated(
    line, private_redis, write
):
    other = client_of(private_redis.port)
    # Redis knows the script then: what is lost below is the reply of the one that ran.
    await WRITES[write](registry_of(other))
    near = client_of(line.port)
    registry = registry_of(near)
    await registry.put(record(), now=1.0)
    before = await scripts_run(near)
    line.loses = True
    with pytest.raises(RegistryError):
        await WRITES[write](registry)
    assert line.lost == 1
    # One script ran (the cursor is no script), and asking about it is none.
    assert await scripts_run(near) - before == (0 if write == "cursor" else 1)
    done = await facts(registry)
    if write != "cursor":
        assert done[0] is None or done[0].record != record()
    else:
        assert await registry.cursor() == "c2"
    await WRITES[write](registry)
    assert await facts(registry) == done
    await near.aclose()
    await other.aclose()


async def test_c10_a_change_whose_reply_was_lost_is_told_all_the_same(line, private_redis):
    """The message is part of the script: no node is left with what was revoked."""
    from ahcollector.registry import CachedRegistry, NegativeCache
    from ahcollector.testing import FakeClock

    near = client_of(line.port)
    direct = client_of(private_redis.port)
    direct.prefix = near.prefix
    other = registry_of(direct)
    node = CachedRegistry(registry=other, negative=NegativeCache(), clock=FakeClock(), feed=other)
    registry = registry_of(near)
    await registry.revoke("a1", now=0.0)
    await registry.put(record(), now=1.0)
    async with anyio.create_task_group() as group:
        group.start_soon(node.run)
        with anyio.fail_after(10):
            while not node.mark():  # until it is subscribed, and drops what it had
                await anyio.sleep(0.005)
            await node.lookup(f"{1:064x}")
            assert len(node) == 1
            line.loses = True
            with pytest.raises(RegistryError):
                await registry.revoke("a1", now=2.0)
            while len(node):
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    assert (await node.lookup(f"{1:064x}")).state is AgentState.REVOKED
    await near.aclose()
    await direct.aclose()
