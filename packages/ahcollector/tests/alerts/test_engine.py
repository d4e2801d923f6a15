"""Threshold rules over the stream: what opens, is told again, is silenced and resolves."""

import anyio
import pytest
from alert_world import START, World, batch, rule, silence

from ahcollector.alerts import AlertSettings, ObservingWriter
from ahcollector.bus import shard_for
from ahcollector.errors import AlertStateError, PermanentStoreError, TemporaryStoreError
from ahcollector.store import MemoryStore
from ahrules import FlapSettings

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


async def test_alert_opens_is_told_again_and_resolves():
    world = World(rule(for_seconds=20, reminder_seconds=60, labels={"team": "ops"}))
    await world.feed([40, 60, 60, 61, 62, 60, 60, 60, 60, 60, 49])
    events = await world.events()
    assert [(event.type.value, event.occurred_at.timestamp() - START) for event in events] == [
        ("alert.opened", 40),
        ("alert.reminder", 100),
        ("alert.resolved", 110),
    ]
    opened, reminder, resolved = events
    assert (opened.company_id, opened.server_id, opened.rule_id) == ("acme", "web-1", "hot")
    assert (opened.series_key, opened.rule_version) == ("ah_heat", 1)
    assert (opened.value, opened.threshold, opened.severity) == (61.0, 50.0, "warning")
    assert opened.labels == {"team": "ops"}
    assert (opened.reason, opened.duration_seconds) == ("condition", None)
    assert (reminder.duration_seconds, reminder.peak_value) == (60.0, 62.0)
    assert (resolved.duration_seconds, resolved.peak_value) == (70.0, 62.0)
    assert not any(event.suppressed for event in events)
    assert opened.seq < reminder.seq < resolved.seq
    assert len({event.event_id for event in events}) == 3
    assert world.metric('ahc_events_emitted_total{type="alert.opened"}') == 1
    assert world.metric("ahc_rules_events_retry") == 0
    assert world.metric('ahc_events_lost_total{type="alert.opened"}') == 0


async def test_companies_and_their_rules_are_apart():
    world = World(rule("a", company_id="acme"), rule("all", threshold=70))
    for company in ("acme", "blue"):
        world.clock.advance(1)
        await world.show(batch(world.now, 80, company=company))
    told = [(event.company_id, event.rule_id) for event in await world.events()]
    assert told == [("acme", "a"), ("acme", "all"), ("blue", "all")]


async def test_metric_may_be_named_as_it_was_sent_or_as_it_is_stored():
    world = World(rule("sent", metric="disk.used"), rule("stored", metric="ah_disk_used"))
    await world.show(batch(0, ah_disk_used=80))
    assert [event.rule_id for event in await world.events()] == ["sent", "stored"]


async def test_points_that_nobody_asked_for_cost_no_unit():
    world = World(rule("a", company_id="blue"))
    await world.show(batch(0, 80))
    assert world.engine._slots == {}
    world.put()
    await world.show(batch(0, 80, company="blue"))
    assert world.engine._slots == {}


@pytest.mark.fault
async def test_points_of_one_batch_are_judged_in_the_order_of_their_time():
    """A3: a sender that mixes the points of a batch opens and resolves what it really had."""
    world = World(rule(for_seconds=10))
    mixed = batch(30, 60)
    (series,) = mixed.series
    points = [(int((START + at) * 1000), value) for at, value in [(30, 40), (10, 60), (20, 60)]]
    mixed = type(mixed)(
        **{name: getattr(mixed, name) for name in mixed.__slots__ if name[0] != "_"}
        | {"series": (type(series)(labels=series.labels, points=tuple(points)),)}
    )
    await world.show(mixed)
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved"]


async def test_flapping_is_told_once_and_settled_once():
    """4 changes within 30 minutes enter, 30 minutes of quiet leave; in between all is marked."""
    world = World(rule())
    await world.feed([60, 40, 60, 40, 60, 40, 60])
    assert await world.told() == [
        ("opened", "condition"),
        ("resolved", "condition"),
        ("opened", "condition"),
        ("resolved", "flapping"),
        ("flapping", None),
        ("opened", "flapping"),
        ("resolved", "flapping"),
        ("opened", "flapping"),
    ]
    await world.feed([60] * 31, every=60)
    events = (await world.events())[8:]
    assert [event.type.value for event in events] == ["alert.settled"]
    assert events[0].labels["alert_state"] == "firing"
    seqs = [event.seq for event in await world.events()]
    assert seqs == sorted(set(seqs))


async def test_settled_comes_before_what_happened_after_it():
    world = World(rule())
    await world.feed([60, 40, 60, 40, 60])
    world.clock.advance(1900)
    await world.show(batch(world.now, 40))
    events = await world.events()
    assert [event.type.value for event in events[-2:]] == ["alert.settled", "alert.resolved"]
    assert events[-2].seq < events[-1].seq


async def test_flapping_can_be_off():
    world = World(rule(), settings=AlertSettings(flapping=None))
    await world.feed([60, 40] * 5)
    assert len(await world.told()) == 10
    other = World(rule(), settings=AlertSettings(flapping=FlapSettings(changes=2)))
    await other.feed([60, 40])
    assert ("flapping", None) in await other.told()


@pytest.mark.fault
async def test_when_a_silence_ends_and_the_condition_holds_one_event_follows_at_once():
    """A5: also when it resolved in the silence and is true again."""
    world = World(rule(), settings=AlertSettings(flapping=None))
    world.hush(silence(ends=45))
    await world.feed([60, 40, 60, 60])
    assert await world.told() == [
        ("opened", "silence:s1"),
        ("resolved", "silence:s1"),
        ("opened", "silence:s1"),
    ]
    await world.feed([60, 60])
    events = await world.events()
    assert [(event.type.value, event.reason) for event in events[3:]] == [
        ("alert.opened", "silence_ended")
    ]
    assert events[3].occurred_at.timestamp() == START + 50
    assert not events[3].suppressed
    assert len({event.event_id for event in events}) == 4
    await world.feed([40])
    assert (await world.told())[4:] == [("resolved", "condition")]


@pytest.mark.fault
async def test_silence_that_is_taken_away_lets_out_what_it_held_back():
    """A5: the set is replaced between two ticks."""
    world = World(rule())
    world.hush(silence())
    await world.feed([60, 60])
    world.hush()
    await world.feed([60])
    assert await world.told() == [("opened", "silence:s1"), ("opened", "silence_ended")]


@pytest.mark.fault
async def test_series_missing_on_a_server_that_is_there_is_no_data():
    """A11: the host is up, and one of its series is missing: no_data only."""
    world = World(rule(no_data="alert", no_data_after_seconds=60))
    await world.feed([40, 40])
    for _ in range(8):
        world.clock.advance(10)
        await world.show(batch(world.now, ah_other=1))
        await world.engine.tick()
    assert await world.told() == [("opened", "no_data")]
    await world.feed([40])
    assert await world.told() == [("opened", "no_data"), ("resolved", "data_returned")]


@pytest.mark.fault
async def test_series_missing_on_a_server_that_is_down_is_nothing():
    """A11: the host is down with its series; `agent.down` tells of that, and no rule does."""
    world = World(rule(no_data="alert", no_data_after_seconds=60))
    await world.feed([40, 40])
    for _ in range(60):
        world.clock.advance(10)
        await world.engine.tick()
    assert await world.told() == []


async def test_rule_that_changes_or_goes_resolves_its_alerts():
    world = World(rule())
    await world.feed([60])
    world.put(rule(version=2, threshold=55))
    await world.feed([60])
    assert await world.told() == [("opened", "condition")]
    world.put(rule(version=3, threshold=90))
    await world.engine.tick()
    world.put(rule(version=3, threshold=90), rule("other"))
    await world.feed([60])
    world.put()
    await world.engine.tick()
    assert await world.told() == [
        ("opened", "condition"),
        ("resolved", "rule_changed"),
        ("opened", "condition"),
        ("resolved", "rule_removed"),
    ]
    versions = [event.rule_version for event in await world.events()]
    assert versions == [1, 3, 1, 1]


async def test_alerts_of_a_server_that_was_taken_away_end():
    """Also where another process owns them, which goes on with the other servers."""
    world = World(rule(), rule("mem", metric="ah_mem"), settings=AlertSettings(flapping=None))
    twin = next(f"s{n}" for n in range(10_000) if shard_for(f"s{n}") == shard_for("web-1"))
    for server in ("web-1", twin):
        await world.show(batch(0, 60, server=server, ah_mem=60))
    owner = world.engine
    world.start()
    await world.engine.forget_server("acme", "web-1")
    await world.engine.forget_server("acme", "web-1")
    await world.engine.forget_server("blue", "web-1")
    assert (await world.told())[4:] == [("resolved", "forgotten")] * 2
    await owner.observed([batch(10, 40, server=twin, ah_mem=60), batch(10, 60, ah_mem=60)])
    await owner.observed([batch(20, 40, ah_mem=60)])
    events = (await world.events())[6:]
    assert [(one.server_id, one.rule_id, one.type.value) for one in events] == [
        (twin, "hot", "alert.resolved"),
        ("web-1", "hot", "alert.opened"),
        ("web-1", "mem", "alert.opened"),
        ("web-1", "hot", "alert.resolved"),
    ]
    world.rules = None
    with pytest.raises(AlertStateError, match="server web-1 cannot be ended"):
        await world.engine.forget_server("acme", "web-1")
    await world.engine.forget_server("blue", "web-1")


async def test_alerts_of_a_company_that_was_taken_away_end():
    """Of all its shards, whoever owns them, and of no other company."""
    world = World(rule(), settings=AlertSettings(flapping=None))
    servers = [f"s{n}" for n in range(200)]
    for server in servers:
        await world.show(batch(0, 60, server=server))
    await world.show(batch(0, 60, company="blue"))
    owner = world.engine
    world.start()
    await world.engine.forget_company("acme")
    await world.engine.forget_company("acme")
    await world.engine.forget_company("nobody")
    events = (await world.events())[201:]
    assert sorted(one.server_id for one in events) == sorted(servers)
    assert {(one.company_id, one.reason) for one in events} == {("acme", "forgotten")}
    await owner.observed([batch(10, 40, server="s0"), batch(20, 60, server="s0")])
    await owner.observed([batch(10, 40, company="blue")])
    assert await world.told() == [
        *[("opened", "condition")] * 201,
        *[("resolved", "forgotten")] * 200,
        ("opened", "condition"),
        ("resolved", "condition"),
    ]
    world.rules = None
    with pytest.raises(AlertStateError, match="company acme cannot be ended"):
        await world.engine.forget_company("acme")
    await world.engine.forget_company("nobody")


@pytest.mark.fault
@pytest.mark.parametrize("op", ["gt", "gte", "lt", "lte", "eq", "ne"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
async def test_what_is_no_number_neither_opens_nor_resolves(op, value):
    """A1: against every operator, as the last value and in every aggregate."""
    world = World(
        rule("last", op=op),
        *(rule(agg, op=op, agg=agg, agg_seconds=60) for agg in ("avg", "min", "max", "sum")),
    )
    await world.feed([value] * 3)
    assert await world.told() == []
    opens = {"gt": 60, "gte": 60, "lt": 40, "lte": 40, "eq": 50, "ne": 60}[op]
    await world.feed([opens])
    opened = len(await world.told())
    assert opened == 5
    await world.feed([value] * 3)
    assert len(await world.told()) == opened


@pytest.mark.fault
async def test_breach_with_half_of_its_samples_missing_opens():
    """A2: `for` 5 minutes; what is missing is not false."""
    world = World(rule(for_seconds=300))
    await world.feed([60, None] * 20)
    (opened,) = await world.events()
    assert opened.occurred_at.timestamp() - START == 310


async def test_unit_that_has_nothing_left_is_forgotten_everywhere():
    world = World(rule())
    await world.feed([60])
    world.put()
    await world.engine.tick()
    assert await world.store.units(range(64)) != [], "it may flap yet"
    world.clock.advance(1801)
    await world.engine.tick()
    assert await world.store.units(range(64)) == []
    assert world.engine._slots == {}


async def test_nothing_is_judged_before_the_rules_are_known():
    """An empty set would resolve every alert of the process before."""
    world = World(rule())
    await world.feed([60])
    rules, world.rules = world.rules, None
    world.start()
    await world.feed([60, 40])
    assert await world.told() == [("opened", "condition")]
    assert world.metric('ahc_rules_points_dropped_total{reason="rules_unknown"}') == 2
    world.rules = rules
    await world.feed([40])
    assert await world.told() == [("opened", "condition"), ("resolved", "condition")]


async def test_nothing_is_let_out_before_the_silences_are_known():
    world = World(rule())
    world.hush(silence())
    await world.feed([60])
    silences, world.silences = world.silences, None
    world.start()
    await world.feed([60, 60])
    assert await world.told() == [("opened", "silence:s1")]
    world.silences = silences
    await world.feed([60])
    assert await world.told() == [("opened", "silence:s1")]


async def test_points_that_are_not_judged_are_counted():
    world = World(rule())
    await world.feed([40])
    await world.show(batch(world.now, 40), batch(world.now - 5, 60))
    await world.show(batch(world.now + 1, float("nan")))
    await world.engine.tick()
    assert world.metric('ahc_rules_points_dropped_total{reason="late"}') == 2
    assert world.metric('ahc_rules_points_dropped_total{reason="not_finite"}') == 1
    assert world.metric("ahc_rules_series") == 1


async def test_writer_shows_what_was_written_and_nothing_else():
    world = World(rule())
    store = MemoryStore(clock=world.clock)
    writer = ObservingWriter(writer=store, observer=world.engine)
    await writer.write([batch(0, 60)])
    assert len(await store.series("acme")) == 1
    assert await world.told() == [("opened", "condition")]

    class Failing:
        error = TemporaryStoreError("down")

        async def write(self, batches):
            raise self.error

    for error in (TemporaryStoreError("down"), PermanentStoreError("refused")):
        Failing.error = error
        with pytest.raises(type(error)):
            await ObservingWriter(writer=Failing(), observer=world.engine).write([batch(9, 40)])
    assert await world.told() == [("opened", "condition")]


async def test_run_ticks_each_interval_and_stores_at_its_end():
    world = World(rule(reminder_seconds=30))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.engine.run)
        await world.clock.run_for(0)
        await world.show(batch(0, 60))
        await world.clock.run_for(35)
        await world.show(batch(35, 61))
        tasks.cancel_scope.cancel()
    assert await world.told() == [("opened", "condition"), ("reminder", "condition")]
    (key,) = await world.store.units(range(64))
    image = await world.store.claim(key)
    assert str(int(START) + 35) in image.base["rules"], "the newest point is in the last snapshot"
    assert not image.pieces


@pytest.mark.parametrize(
    "name", ["tick_interval_seconds", "state_interval_seconds", "stop_seconds"]
)
async def test_intervals_that_make_no_sense_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        World(rule(), **{name: 0})
