"""A key of presence that holds something else: the error names it, and only its own agents fail."""

import anyio
import pytest

from ahcollector.errors import PresenceDamagedError
from ahcollector.ingest import IngestLimits
from ahcollector.ingest._gate import Gate
from ahcollector.presence import AgentRef, PresenceCounts
from ahcollector.registry import CompanySettingsCache
from ahcollector.testing import FakeClock

pytestmark = [pytest.mark.anyio, pytest.mark.service]
T0 = 1_700_000_000.0
A = AgentRef(agent_id="agent-a", company_id="acme", server_id="web-1")
B = AgentRef(agent_id="agent-b", company_id="bolt", server_id="db-1")
C = AgentRef(agent_id="agent-c", company_id="acme", server_id="web-2")
NO_JSON = ("noise", "[]]", '"17"')


async def touch_all(presence, refs, now):
    """Touch at once, and return the errors by agent."""
    errors = {}

    async def touch(ref):
        try:
            await presence.touch(ref, now, None)
        except PresenceDamagedError as error:
            errors[ref.agent_id] = str(error)

    async with anyio.create_task_group() as tasks:
        # The first one is written alone, the others gather meanwhile.
        for ref in (refs[0], *refs):
            tasks.start_soon(touch, ref)
    return errors


async def damage(client, name):
    key = client.key("pres", name)
    await client.call("DEL", key)
    await client.call("SET", key, "noise")
    return key


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("up:bolt", True),
        ("a:agent-b", True),
        ("up:bolt", False),
        ("a:agent-b", False),
        # A contact of a known agent does not come to this one.
        ("ids:bolt", False),
    ],
)
async def test_a_damaged_key_of_one_company_fails_its_own_contacts_only(shared, name, known):
    presence = shared()
    if known:
        await touch_all(presence, [A, B, C], T0)
    client = shared.client(presence)
    key = await damage(client, name)
    lease = await presence.drain_seen(500)
    await presence.confirm_seen(lease)
    for second in range(1, 4):
        errors = await touch_all(presence, [A, B, C], T0 + second)
        assert set(errors) == {B.agent_id}
        for word in (key, "agent agent-b of company bolt", "RENAME", client.key("pres", "*")):
            assert word in errors[B.agent_id]
    rows = await presence.agents(company_id="acme")
    assert [(row.agent, row.last_seen) for row in rows] == [(A, T0 + 3), (C, T0 + 3)]
    told = {seen.agent_id for seen in (await presence.drain_seen(500)).seen}
    assert told - {B.agent_id} == {A.agent_id, C.agent_id}
    # As the error says: moved away, all is as before.
    await client.call("RENAME", key, client.key("away"))
    assert await touch_all(presence, [A, B, C], T0 + 5) == {}
    assert await presence.counts() == PresenceCounts(agents=3, down=0)
    assert [row.agent for row in await presence.agents(company_id="bolt")] == [B]
    assert len(await presence.expire(T0 + 1_000, 500)) == 3


@pytest.mark.parametrize("field", ["interval", "min", "due", "grace", "seq", "seen", "down"])
async def test_a_field_that_is_no_number_fails_its_own_contacts_only(shared, field):
    presence = shared()
    await touch_all(presence, [A, B, C], T0)
    client = shared.client(presence)
    key = client.key("pres", "a:agent-b")
    await client.call("HSET", key, field, "noise")
    for second in range(1, 3):
        errors = await touch_all(presence, [A, B, C], T0 + second)
        assert set(errors) == {B.agent_id}
        for word in (key, "agent agent-b of company bolt", "RENAME"):
            assert word in errors[B.agent_id]
    told = {seen.agent_id: seen.last_seen for seen in (await presence.drain_seen(500)).seen}
    before = {} if field == "seen" else {B.agent_id: T0}
    assert told == {A.agent_id: T0 + 2, C.agent_id: T0 + 2, **before}
    for call in (presence.agents(), presence.expire(T0 + 1_000, 500)):
        with pytest.raises(PresenceDamagedError, match=key):
            await call


@pytest.mark.parametrize("text", [*NO_JSON, '[["an id"]]', "[17]", '{"a": 1}'])
async def test_intents_leases_and_counts_that_make_no_sense_are_told_as_damage(shared, text):
    presence = shared()
    await presence.touch(A, T0, None)
    await presence.expire(T0 + 100, 500)
    client = shared.client(presence)
    for key, call in (
        (client.key("pres", "tx"), lambda: presence.pending(500)),
        (client.key("pres", "n"), presence.pending_count),
        (client.key("pres", "unrep:lease"), lambda: presence.drain_seen(500)),
    ):
        await client.call("HSET", key, A.agent_id if key.endswith("pres:tx") else "tx", text)
        # JSON of another shape shows only where it is used.
        with pytest.raises(PresenceDamagedError, match=key if text in NO_JSON else "RENAME"):
            await call()


async def test_a_contact_that_ends_a_silence_is_decided_once_though_a_key_is_damaged(shared):
    presence = shared()
    await touch_all(presence, [A, B, C], T0)
    assert len(await presence.expire(T0 + 100, 500)) == 3
    await damage(shared.client(presence), "up:bolt")
    assert set(await touch_all(presence, [A, B, C], T0 + 110)) == {B.agent_id}
    kinds = [(one.agent.agent_id, one.kind.value) for one in await presence.pending(500)]
    assert sorted(kinds) == sorted(
        (ref.agent_id, kind) for ref in (A, B, C) for kind in ("down", "up")
    )


@pytest.mark.parametrize(
    "name", ["due", "tx", "tx:order", "unrep", "grace", "n", "ids", "companies", "epoch", "ingest"]
)
async def test_whatever_key_is_damaged_some_error_names_it(shared, name):
    presence = shared()
    await touch_all(presence, [A, B], T0)
    await presence.expire(T0 + 100, 500)
    await presence.ingest_sight()
    client = shared.client(presence)
    key = client.key("pres", name)
    await client.call("DEL", key)
    await client.call("LPUSH", key, "noise")
    errors = []
    for call in (
        presence.touch(A, T0 + 101, None),
        presence.ensure(C, T0 + 101, None),
        presence.expire(T0 + 500, 500),
        presence.pending_count(),
        presence.drain_seen(5),
        presence.counts(),
        presence.company_counts(),
        presence.agents(),
        presence.beacon(T0 + 101),
        presence.ingest_sight(),
    ):
        try:
            await call
        except PresenceDamagedError as error:
            errors.append(str(error))
    assert errors
    assert all(key in error for error in errors)


async def test_the_door_tells_of_a_damaged_key_once_a_minute(shared, caplog):
    caplog.set_level("INFO", "ahcollector.ingest")
    clock = FakeClock()
    presence = shared(clock=clock)
    settings = CompanySettingsCache(hub=None, clock=clock)
    gate = Gate(
        resolver=None, presence=presence, settings=settings, clock=clock, limits=IngestLimits()
    )
    await gate.touch(B, None)
    key = await damage(shared.client(presence), "up:bolt")
    for _ in range(60):
        for ref in (A, B):
            await gate.touch(ref, None)
        clock.advance(1)
    kept = [line.getMessage() for line in caplog.records]
    assert kept.count("signs of life cannot be kept") == 1
    assert kept.count("signs of life are kept again") == 1
    assert key in caplog.records[0].error
    await gate.touch(B, None)
    assert [line.levelname for line in caplog.records] == ["ERROR", "INFO", "ERROR"]
