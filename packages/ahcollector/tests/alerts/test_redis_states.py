"""The states of alerts in a real Redis: killed, a reply lost, damaged by others."""

from functools import partial

import anyio
import pytest
from alert_world import World, batch, owner, rule, value_of

from ahcollector.alerts import AlertChange, RulePuller, UnitKey
from ahcollector.bus import shard_for
from ahcollector.errors import AlertStateError, TemporaryHubError, TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing import FakeClock, FakeHub
from ahcollector.testing._contracts.alerts import _event

pytestmark = [pytest.mark.service, pytest.mark.anyio]

KEY = UnitKey(shard=3, company_id="acme")


@pytest.fixture
def store(client):
    from ahcollector.alerts.redis import RedisAlertStateStore

    return RedisAlertStateStore(client=client)


async def test_keys_are_those_of_the_specification_and_none_is_left(client, store, keys_of):
    epoch = (await store.claim(KEY)).epoch
    change = AlertChange(seq=1, base={"rules": "r"}, pieces={"a": "x"}, intents=(_event(1),))
    await store.commit(KEY, epoch, change)
    assert await keys_of(client) == {
        "rules:state:3:acme",
        "rules:tx:3:acme",
        "rules:units:3",
    }
    await store.told(KEY, [_event(1).event_id])
    await store.remove(KEY, epoch)
    assert await keys_of(client) == {"rules:state:3:acme"}, "its epoch, for a day"
    assert 86_000 < await client.call("TTL", client.key("rules:state:3:acme")) <= 86_400
    await store.claim(KEY)
    assert await client.call("TTL", client.key("rules:state:3:acme")) == -1


async def test_a_long_snapshot_is_kept_and_the_loop_goes_on_meanwhile(client, store):
    """It is deflated in a thread: a company of 100,000 agents has tens of MB."""
    epoch = (await store.claim(KEY)).epoch
    text = "".join(f'["agent-{number:06}",{{"seq":{number}}}],' for number in range(100_000))
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await anyio.sleep(0)
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await store.commit(KEY, epoch, AlertChange(seq=1, base={"members": text}))
        tasks.cancel_scope.cancel()
    assert turns > 10
    assert dict((await store.claim(KEY)).base) == {"members": text}


async def test_fields_that_cannot_be_read_are_counted_and_kept_aside(client, store, caplog):
    epoch = (await store.claim(KEY)).epoch
    change = AlertChange(seq=4, base={"rules": "r"}, pieces={"a": "x"}, intents=(_event(4),))
    await store.commit(KEY, epoch, change)
    state, tx = client.key("rules:state:3:acme"), client.key("rules:tx:3:acme")
    await client.call("HSET", state, "p:b", "junk", "p:c", "zjunk", "what", "x", "q:y", "z")
    await client.call("HSET", tx, "id", "{}")
    image = await store.claim(KEY)
    assert image.damaged == 5
    assert (image.seq, dict(image.base), dict(image.pieces)) == (4, {"rules": "r"}, {"a": "x"})
    assert image.intents == (_event(4),)
    assert "cannot be read" in caplog.text
    assert await client.call("HGET", client.key("rules:aside:3:acme"), "p:b") == b"junk"
    await store.commit(KEY, image.epoch, AlertChange(seq=5, base={"rules": "s"}))
    assert (await store.claim(KEY)).damaged == 1, "the event stays, to be looked at"


async def test_key_of_another_type_is_an_error(client, store):
    await client.call("SET", client.key("rules:state:3:acme"), "x")
    with pytest.raises(AlertStateError, match="states of alerts: cannot take over"):
        await store.claim(KEY)


async def test_large_change_is_one_step(store):
    epoch = (await store.claim(KEY)).epoch
    events = tuple(_event(number) for number in range(1, 1001))
    pieces = {f"piece {number}": "x" * 100 for number in range(5000)}
    await store.commit(KEY, epoch, AlertChange(seq=1000, pieces=pieces, intents=events))
    await store.commit(KEY, epoch, AlertChange(seq=1000, pieces=dict.fromkeys(pieces)))
    image = await store.claim(KEY)
    assert image.intents == events
    assert image.pieces == {}


@pytest.mark.fault
async def test_reply_that_is_lost_tells_nothing_twice(line, client_of):
    """C18: Redis did it and its answer never came, at each of the calls."""
    from ahcollector.alerts.redis import RedisAlertStateStore

    client = client_of(line.port)
    for lost_at in range(1, 9):
        world = World(rule(f"r{lost_at}"), store=RedisAlertStateStore(client=client))
        calls = 0
        real = client._settled

        async def counting(what, send, real=real, lost_at=lost_at):
            nonlocal calls
            calls += 1
            line.loses = calls == lost_at
            return await real(what, send)

        client._settled = counting
        for at, value in enumerate([60, 40, 60]):
            for _ in range(5):
                try:
                    await world.show(batch(10_000 * lost_at + at, value))
                except TemporaryStoreError:
                    world.start()
                else:
                    break
            await world.engine.tick()
        client._settled = real
        kinds = [kind.type.value for kind in await world.events() if kind.rule_id == f"r{lost_at}"]
        assert kinds == ["alert.opened", "alert.resolved", "alert.opened"], lost_at
    assert line.lost >= 5
    await client.aclose()


@pytest.mark.fault
async def test_redis_that_is_killed_in_the_middle_tells_each_alert_once(private_redis, client_of):
    """C18: kill -9 and a restart, with what it kept, between any two batches."""
    from ahcollector.alerts.redis import RedisAlertStateStore

    client = client_of(private_redis.port, timeout_seconds=2.0)
    world = World(rule(), store=RedisAlertStateStore(client=client))
    for at, value in enumerate([60, 40, 60]):
        world.clock.advance(10)
        private_redis.kill()
        with pytest.raises(TemporaryStoreError):
            await world.show(batch(at, value))
        private_redis.start()
        if at == 1:
            world.start()
        await world.show(batch(at, value))
        await world.engine.tick()
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved", "opened"]
    await client.aclose()


async def test_rules_that_one_process_pulled_are_there_for_all(client):
    from ahcollector.alerts.redis import RedisKeptLists

    hub = FakeHub()
    hub.threshold_rules = (rule("a"),)
    kept = RedisKeptLists(client=client)
    await RulePuller(hub=hub, kept=kept, clock=FakeClock()).pull()
    other = RulePuller(hub=hub, kept=RedisKeptLists(client=client), clock=FakeClock())
    await other.recall()
    assert other.current.of("acme") == (rule("a"),)
    await client.call("SET", client.key("rules:kept:rules"), "junk")
    assert await kept.load("rules") is None
    await client.call("DEL", client.key("rules:kept:rules"))
    assert await kept.load("rules") is None
    await client.call("HSET", client.key("rules:kept:rules"), "a", "b")
    with pytest.raises(AlertStateError, match="the hub's last rules"):
        await kept.load("rules")


@pytest.mark.fault
async def test_redis_that_was_emptied_with_the_leases_in_it_opens_nothing_twice(
    client_of, private_redis
):
    """C18: FLUSHALL under two engines; who has a unit in memory gives it back, or it is counted."""
    from ahcollector.alerts.redis import RedisAlertStateStore

    emptied = client_of(private_redis.port)
    world = World(rule(), store=RedisAlertStateStore(client=emptied))
    shards = {shard_for(server): "1" for server in ("web-1", "web-2", "web-3", "web-4")}
    mine, theirs = dict(shards), {}
    counted = [PrometheusMetrics() for _ in range(2)]
    first, second = (
        owner(world, shards_of, metrics=metrics)
        for shards_of, metrics in zip((mine, theirs), counted, strict=True)
    )
    servers = ["web-1", "web-2", "web-3", "web-4"]
    await first.observed([batch(1, 60, server=server) for server in servers])
    await first.tick()
    await second.tick()
    await emptied.call("FLUSHALL")
    mine.clear()
    await first.tick()
    lost = shard_for("web-4")
    assert len({*map(shard_for, servers)}) == 4
    mine.update({shard: "2" for shard in shards if shard != lost})
    theirs[lost] = "1"
    await second.observed([batch(2, 60, server="web-4")])
    for _ in range(2):
        await first.tick()
        await second.tick()
    await first.observed([batch(3, 40, server=server) for server in servers[:3]])
    await second.observed([batch(3, 40, server="web-4")])
    told = {server: [] for server in servers}
    for event in await world.events():
        told[event.server_id].append(event.type.value.partition(".")[2])
    assert told == {
        **{server: ["opened", "resolved"] for server in servers[:3]},
        "web-4": ["opened", "opened", "resolved"],
    }
    value = partial(value_of, counted[0])
    assert value("ahc_rules_states_lost_total") == 1
    assert value('ahc_rules_units_forgotten_total{outcome="given_back"}') == 3
    assert value('ahc_rules_units_forgotten_total{outcome="lost"}') == 1
    assert value_of(counted[1], "ahc_rules_states_lost_total") == 1
    await emptied.aclose()


async def test_epoch_of_a_unit_comes_never_twice_though_redis_forgot_it(client, store):
    first = (await store.claim(KEY)).epoch
    await client.call("DEL", client.key("rules:state:3:acme"))
    assert (await store.claim(KEY)).epoch > first
    await client.call("HSET", client.key("rules:state:3:acme"), "epoch", "x")
    with pytest.raises(AlertStateError, match="an epoch in Redis is no number"):
        await store.look([KEY])


@pytest.mark.fault
async def test_process_that_is_killed_leaves_whole_windows_in_redis(client):
    """C18: the points since the last whole snapshot are there for the next owner."""
    from ahcollector.alerts.redis import RedisAlertStateStore

    mean = rule(agg="avg", agg_seconds=30, threshold=55, for_seconds=5)
    calm = World(mean)
    killed = World(mean, store=RedisAlertStateStore(client=client))
    for value in [50, 20, 60, 10, 90, 54, 56, 70, 80, 90, 10, 10, 90, 90]:
        for world in (calm, killed):
            world.clock.advance(5)
            await world.show(batch(world.now, value))
        killed.start()
    told = [
        [(one.type, one.occurred_at, one.value) for one in await world.events()]
        for world in (killed, calm)
    ]
    assert told[0] == told[1]
    assert len(told[1]) >= 3


@pytest.mark.fault
async def test_process_whose_hub_fails_has_what_another_one_kept_in_redis(client):
    """C18: the list that is newer by Redis' time, and never an older one."""
    from ahcollector.alerts.redis import RedisKeptLists

    hubs = [FakeHub(), FakeHub()]
    well, failing = (
        RulePuller(hub=hub, kept=RedisKeptLists(client=client), clock=FakeClock(skewed))
        for hub, skewed in zip(hubs, (0.0, 1e9), strict=True)
    )
    for hub in hubs:
        hub.threshold_rules = (rule("a"),)
    await well.pull()
    await failing.pull()
    hubs[0].threshold_rules = (rule("a"), rule("b"))
    hubs[1].fails = TemporaryHubError("no")
    await well.pull()
    await failing.catch_up()
    assert [one.rule_id for one in failing.current.of("acme")] == ["a", "b"]
    assert failing.listed_at == well.listed_at
    hubs[1].fails, hubs[1].threshold_rules = None, (rule("c"),)
    await failing.pull()
    await failing.catch_up()
    assert [one.rule_id for one in failing.current.of("acme")] == ["c"]
    await client.call("DEL", client.key("rules:kept:rules"), client.key("rules:kept:rules:as_of"))
    await failing.pull()
    await well.catch_up()
    assert [one.rule_id for one in well.current.of("acme")] == ["c"]
