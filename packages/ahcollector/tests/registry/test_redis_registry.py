"""What the registry in Redis does besides the contract: keys, bounded steps, damage, messages."""

import anyio
import attrs
import pytest

from ahcollector.errors import RegistryError
from ahwire import AgentRecord
from ahwire.hub import AgentState

pytestmark = [pytest.mark.service, pytest.mark.anyio]


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


@pytest.fixture
def registry(client):
    from ahcollector.registry.redis import RedisRegistry

    return RedisRegistry(client=client)


async def test_the_keys_are_those_of_the_contract(client, registry, keys_of):
    await registry.put(record(company_id="a:b", server_id="c:d"), now=1.0)
    await registry.set_cursor("c1")
    await registry.end_full_sync(now=2.0)
    assert await keys_of(client) == {
        f"reg:tok:{1:064x}",
        "reg:agent:a1",
        "reg:srv:a%3Ab:c%3Ad",
        "reg:co:a:b",
        "reg:act:a:b",
        "reg:all",
        "reg:cos",
        "reg:cursor",
        "reg:full",
    }


async def test_nothing_is_left_of_what_was_deleted_or_swept(client, registry, keys_of):
    for number in range(250):
        state = AgentState.PENDING if number % 3 else AgentState.ACTIVE
        await registry.put(record(number, state=state, server_id=f"s{number % 2}"), now=1.0)
    for number in range(0, 250, 5):
        await registry.revoke(f"a{number}", now=1.0)
    await registry.delete_server("acme", "s1")
    await registry.sweep(revoked_before=2.0)
    await registry.delete_company("acme")
    assert await keys_of(client) == set()


async def test_a_large_company_is_forgotten_in_bounded_steps(client, registry):
    """Redis does nothing else while a script runs: no script forgets more than fifty."""
    for first in range(0, 2_000, 100):
        async with anyio.create_task_group() as group:
            for number in range(first, first + 100):
                group.start_soon(lambda number=number: registry.put(record(number), now=1.0))
    steps, original = [], client.run

    async def counted(script, *, keys=(), args=()):
        reply = await original(script, keys=keys, args=args)
        if script.name == "registry forget":
            steps.append((len(reply) - 1) // 3)
        return reply

    client.run = counted
    assert len(await registry.delete_company("acme")) == 2_000
    assert len(steps) == 40
    assert max(steps) == 50


async def test_a_deletion_that_was_cut_short_is_finished_by_the_next_one(client, registry):
    for number in range(250):
        await registry.put(record(number), now=1.0)
    original, calls = client.run, []

    async def fails(script, *, keys=(), args=()):
        calls.append(script.name)
        if len(calls) == 2:
            from ahcollector.errors import RedisError

            raise RedisError("cut")
        return await original(script, keys=keys, args=args)

    client.run = fails
    with pytest.raises(RegistryError, match="cut"):
        await registry.delete_company("acme")
    assert (await registry.count()).active == 200
    assert await registry.company_counts() == {"acme": 200}
    assert len(await registry.delete_company("acme")) == 200
    assert await registry.company_counts() == {}


DAMAGE = [
    ("tok", f"{1:064x}", "exp", "tomorrow"),
    ("tok", f"{1:064x}", "exp", "2027-01-01T00:00:00"),
    ("tok", f"{1:064x}", "ver", "one"),
    ("tok", f"{1:064x}", "state", "asleep"),
    ("tok", f"{1:064x}", "company_id", b"\xff\xfe"),
    ("tok", f"{1:064x}", "agent_id", None),
    ("agent", "a1", "ver", "-"),
    ("agent", "a1", "newest", ""),
    ("agent", "a1", "newest", "1e9"),
    ("agent", "a1", "state", ""),
    ("agent", "a1", "company_id", None),
    ("agent", "a1", "server_id", "not an id"),
    ("agent", "a1", "token", "short"),
    ("agent", "a1", "exp", "\x00"),
    ("agent", "a1", "revoked", "yesterday"),
    ("agent", "a1", "tokens", b"\x80 \x81"),
]


@pytest.mark.parametrize(
    ("kind", "name", "field", "value"),
    DAMAGE,
    ids=[f"{d[0]}.{d[2]}.{i}" for i, d in enumerate(DAMAGE)],
)
async def test_damaged_fields_are_told_and_the_hubs_next_word_repairs_them(
    client, registry, caplog, kind, name, field, value
):
    await registry.put(record(), now=1.0)
    key = client.key("reg", kind, name)
    if value is None:
        await client.call("HDEL", key, field)
    else:
        await client.call("HSET", key, field, value)
    entries = (await registry.get("a1"), await registry.lookup(f"{1:064x}"))
    await registry.by_server("acme", "s")
    await registry.scan()
    if None in entries:
        assert "damaged" in caplog.text
        assert f"{1:064x}" not in caplog.text
    put = await registry.put(record(version=2), now=2.0)
    assert put.applied
    assert (await registry.get("a1")).record == record(version=2)
    assert (await registry.lookup(f"{1:064x}")).version == 2
    assert await registry.company_counts() == {"acme": 1}
    assert (await registry.count()).active == 1
    assert [one.agent_id for one in await registry.delete_company("acme")] == ["a1"]


async def test_damage_newer_than_the_hubs_word_names_the_key_to_delete(client, registry):
    await registry.put(record(version=5), now=1.0)
    await client.call("HSET", client.key("reg", "agent", "a1"), "state", "asleep")
    with pytest.raises(RegistryError, match=r"delete the key .*reg:agent:a1"):
        await registry.put(record(version=2), now=1.0)


async def test_a_damaged_agent_that_is_revoked_is_not_called_unknown(client, registry):
    await registry.put(record(), now=1.0)
    await client.call("HDEL", client.key("reg", "agent", "a1"), "company_id")
    with pytest.raises(RegistryError, match=r"delete the key .*reg:agent:a1"):
        await registry.revoke("a1", now=2.0)
    assert (await registry.lookup(f"{1:064x}")).state is AgentState.REVOKED


@pytest.mark.parametrize("kind", ["tok", "agent", "all", "co", "srv", "cos"])
async def test_a_key_of_another_type_is_a_registry_error(client, registry, kind):
    parts = {
        "tok": ("tok", f"{1:064x}"),
        "agent": ("agent", "a1"),
        "all": ("all",),
        "co": ("co", "acme"),
        "srv": ("srv", "acme", "s"),
        "cos": ("cos",),
    }
    await client.call("LPUSH", client.key("reg", *parts[kind]), "x")
    with pytest.raises(RegistryError):
        await registry.put(record(), now=1.0)


async def test_members_without_an_agent_end_with_their_company(client, registry):
    """Else deleting a company whose agent's hash was deleted by hand would never end."""
    await registry.put(record(), now=1.0)
    await client.call("DEL", client.key("reg", "agent", "a1"))
    assert await registry.by_server("acme", "s") == ()
    assert (await registry.scan()).entries == ()
    assert len(await registry.delete_company("acme")) == 1
    assert await registry.delete_company("acme") == ()
    assert await registry.company_counts() == {}
    assert (await registry.count()).active == 0


async def told_by(registry, act):
    """What the channel says while `act` runs."""
    told, stands = [], anyio.Event()
    async with anyio.create_task_group() as group:

        async def hear():
            await registry.changes(changed=told.append, doubt=stands.set)

        group.start_soon(hear)
        await stands.wait()
        await act()
        await registry.put(record(9, company_id="last"), now=1.0)
        with anyio.fail_after(10):
            while not told or told[-1].agents != {"a9"}:
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    return told[:-1]


async def test_every_change_is_told_in_the_same_step_and_no_repetition_is(registry):
    async def act():
        await registry.put(record(), now=1.0)
        await registry.put(record(), now=2.0)
        await registry.put(record(version=0), now=2.0)
        await registry.revoke("a1", now=3.0)
        await registry.revoke("a1", now=4.0)
        await registry.put(record(), now=5.0)

    told = await told_by(registry, act)
    # The third one is version 0 in the place of version 1: the record is not the same.
    assert [sorted(change.agents) for change in told] == [["a1"]] * 3
    assert told[0].hashes == {f"{1:064x}"}


async def test_what_is_forgotten_is_told(registry):
    for number in range(3):
        await registry.put(record(number), now=1.0)

    async def act():
        await registry.delete_agent("a0", newest_version=1)
        await registry.revoke("a1", now=1.0)
        await registry.sweep(revoked_before=2.0)
        await registry.delete_company("acme")

    told = await told_by(registry, act)
    assert [sorted(change.agents) for change in told] == [["a0"], ["a1"], ["a1"], ["a2"]]


async def test_a_message_that_is_not_ours_makes_everything_doubtful(client, registry):
    doubts, told = [], []
    async with anyio.create_task_group() as group:

        async def hear():
            await registry.changes(changed=told.append, doubt=lambda: doubts.append(1))

        group.start_soon(hear)
        with anyio.fail_after(10):
            while not doubts:
                await anyio.sleep(0.005)
            await client.publish("reg:changes", "v2 something else")
            while len(doubts) < 2:
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()
    assert told == []


async def test_a_shared_registry_makes_an_enrolment_known_at_every_node(client, registry):
    from ahcollector.registry import CachedRegistry, NegativeCache
    from ahcollector.testing import FakeClock

    clock, negative = FakeClock(), NegativeCache()
    node = CachedRegistry(registry=registry, negative=negative, clock=clock, feed=registry)
    negative.add(f"{1:064x}", now=clock.monotonic())
    async with anyio.create_task_group() as group:
        group.start_soon(node.run)
        with anyio.fail_after(10):
            while negative.holds(f"{1:064x}", now=clock.monotonic()):
                await anyio.sleep(0.005)
            negative.add(f"{1:064x}", now=clock.monotonic())
            await registry.put(attrs.evolve(record()), now=1.0)
            while negative.holds(f"{1:064x}", now=clock.monotonic()):
                await anyio.sleep(0.005)
        group.cancel_scope.cancel()


async def test_company_settings_outlive_a_process_and_damage_counts_as_nothing(client, keys_of):
    from ahcollector.registry import KeptSettings
    from ahcollector.registry.redis import RedisCompanySettings, RedisRegistry
    from ahwire.hub import AgentSettings, CompanySettings

    store = RedisCompanySettings(client=client)
    assert await store.load("acme") is None
    kept = KeptSettings(
        settings=CompanySettings(agent=AgentSettings(interval_seconds=77)), etag='"e1"'
    )
    await store.save("acme", kept)
    assert await store.load("acme") == kept
    ttl = await client.call("TTL", client.key("reg", "cfg", "acme"))
    assert 0 < ttl <= 30 * 86_400
    await store.save("acme", attrs.evolve(kept, etag=None))
    assert (await store.load("acme")).etag is None
    await client.call("HSET", client.key("reg", "cfg", "acme"), "settings", "{")
    assert await store.load("acme") is None
    await RedisRegistry(client=client).delete_company("acme")
    assert await keys_of(client) == set()


@pytest.mark.parametrize(
    "damage",
    [("HSET", "a", "b"), ("SADD", "a"), ("SET", b"\xff\xfe")],
    ids=["hash", "set", "bytes"],
)
async def test_a_damaged_cursor_is_set_aside_and_the_hub_followed_from_the_start(
    client, registry, caplog, keys_of, damage
):
    command, *values = damage
    key = client.key("reg", "cursor")
    for _ in range(2):
        await client.call("DEL", key)
        await client.call(command, key, *values)
        assert await registry.cursor() == ""
    [first, _] = [one for one in caplog.records if "cursor in Redis is damaged" in one.message]
    assert (first.levelname, first.aside) == ("ERROR", f"{key}:damaged")
    assert await keys_of(client) == {"reg:cursor:damaged"}
    await registry.set_cursor("7")
    assert await registry.cursor() == "7"


async def test_a_cursor_that_cannot_be_read_for_another_reason_stays(client, registry, caplog):
    await registry.set_cursor("7")
    original = client.call

    async def refuses(*command):
        from ahcollector.errors import RedisRefusedError

        raise RedisRefusedError("no", code="NOPERM")

    client.call = refuses
    with pytest.raises(RegistryError, match="cannot read the cursor: no"):
        await registry.cursor()
    client.call = original
    assert await registry.cursor() == "7"
    assert "damaged" not in caplog.text
