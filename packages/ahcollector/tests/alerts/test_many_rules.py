"""Many rules, many series, many silences: everything else in the process has its turns."""

import logging

import anyio
import pytest
from alert_world import START, World, batch, rule, silence

from ahcollector.alerts import AlertSettings
from ahcollector.alerts._unit import AlertUnit
from ahcollector.alerts.base import UnitKey
from ahrules import EvaluatorBounds

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def wide(at, value, series):
    """A batch of so many series of one metric."""
    one = batch(at, value)
    (first,) = one.series
    found = tuple(
        type(first)(labels=(*first.labels, ("core", f"{number:05}")), points=first.points)
        for number in range(series)
    )
    fields = {name: getattr(one, name) for name in one.__slots__ if name[0] != "_"}
    return type(one)(**(fields | {"series": found}))


def many(count, **fields):
    return [rule(f"r{number:05}", **fields) for number in range(count)]


@pytest.fixture(name="unit")
def _unit():
    """A unit of its own, and how much it did in its longest step."""

    def make(rules, silences=(), **bounds):
        world = World(*rules)
        world.hush(*silences)
        unit = AlertUnit(
            key=UnitKey(shard=0, company_id="acme"),
            settings=AlertSettings(bounds=EvaluatorBounds(**bounds)),
            event_ids=world.ids.next,
            lost=lambda kind: None,
        )
        unit.refresh(world.rules, world.silences, START)
        return unit

    return make


def longest(unit, steps):
    """Go all steps; return the most rules judged over series and the most events told in one."""
    work, events, judged, told = unit._evaluator.work, len(unit.new), 0, 0
    while True:
        ended = next(steps, steps) is steps
        judged = max(judged, unit._evaluator.work - work)
        told = max(told, len(unit.new) - events)
        work, events = unit._evaluator.work, len(unit.new)
        if ended:
            return judged, told


def test_a_batch_is_judged_in_steps_of_bounded_work_however_many_rules_there_are(unit):
    one = unit(many(2_000, threshold=1_000))
    for at in range(3):
        judged, _ = longest(one, one.observe(wide(at, 60, 100), START + at))
        assert judged <= 1_000 + 400
    assert one._evaluator.watches_count == 20_000


def test_events_are_told_in_few_at_a_time_and_fewer_where_silences_are_many(unit):
    for silences, most in ((0, 41), (2_000, 6)):
        matchers = [{"label": "server_id", "op": "re", "value": "db-.*"}]
        one = unit(
            many(150),
            [silence(f"s{n}", matchers=matchers, all=False) for n in range(silences)],
        )
        _, told = longest(one, one.observe(wide(0, 60, 3), START))
        assert len(one.new) == 450
        assert told <= most


def test_a_tick_is_done_in_steps_of_bounded_work(unit):
    rules = many(100, threshold=1_000, no_data="alert", no_data_after_seconds=60)
    one = unit(rules)
    longest(one, one.tick(START))
    longest(one, one.observe(wide(0, 60, 100), START))
    for at in (50, 100):
        longest(one, one.observe(wide(at, 60, 0), START + at))
    judged, told = longest(one, one.tick(START + 100))
    assert judged <= 1_000 + 101
    assert told <= 41
    assert len(one.new) == 10_000


async def test_what_was_left_in_the_middle_is_told_once(monkeypatch):
    """Cancelled between two steps, nothing that was judged is lost, and nothing told twice."""
    for steps in range(1, 40, 3):
        world = World(*many(100))
        with anyio.CancelScope() as scope:
            turns = 0

            async def leave_at(scope=scope, steps=steps):
                nonlocal turns
                turns += 1
                if turns == steps:
                    scope.cancel()
                await anyio.sleep(0)

            with monkeypatch.context() as patch:
                patch.setattr(anyio.lowlevel, "checkpoint", leave_at)
                await world.engine.observed([wide(0, 60, 4)])
        assert scope.cancelled_caught == (steps <= turns)
        await world.engine.save()
        world.start()
        await world.engine.observed([wide(0, 60, 4)])
        await world.engine.tick()
        told = [(one.rule_id, one.series_key) for one in await world.events()]
        assert len(told) == len(set(told)) == 400


async def test_a_rule_without_room_is_named_once_with_company_server_and_rule(caplog):
    bounds = EvaluatorBounds(series_watches_max=2)
    world = World(*many(5), settings=AlertSettings(bounds=bounds))
    for at in range(3):
        await world.show(wide(at, 60, 3))
        await world.engine.tick()
    lines = [record for record in caplog.records if record.name == "ahcollector.alerts"]
    (line,) = [one for one in lines if one.message.startswith("a rule does not judge a series")]
    assert (line.levelno, line.company_id, line.server_id) == (logging.ERROR, "acme", "web-1")
    assert (line.rule_id, line.reason, line.bound) == ("r00002", "series_watches_max", 2)
    dropped = 'ahc_rules_points_dropped_total{reason="series_watches_max"}'
    assert world.metric(dropped) == 3
    # Other rules are another matter.
    world.put(*many(6))
    await world.show(wide(4, 60, 4))
    await world.engine.tick()
    lines = [one for one in caplog.records if one.message.startswith("a rule does not judge")]
    assert [one.rule_id for one in lines] == ["r00002", "r00005", "r00002"]


async def test_a_rule_that_fails_is_named_once_and_the_others_are_judged(caplog):
    world = World(*many(3))
    await world.show(batch(0, 40))
    (slot,) = world.engine._slots.values()

    def broken(value, threshold):
        raise OverflowError("no")

    slot.unit._evaluator._registry.book.rules["r00001"].compare = broken
    for at in range(1, 4):
        await world.show(batch(at, 60))
        await world.engine.tick()
    assert [one.rule_id for one in await world.events()] == ["r00000", "r00002"]
    lines = [one for one in caplog.records if one.message.startswith("a rule failed")]
    assert [(one.rule_id, one.server_id, one.error) for one in lines] == [
        ("r00001", "web-1", "OverflowError('no')")
    ]
    assert world.metric('ahc_rules_points_dropped_total{reason="rule_failed"}') == 3


async def test_many_rules_are_put_in_force_beside_the_loop(monkeypatch):
    """A change of many rules asks every series anew: others have their turns meanwhile."""
    world = World(*many(600, servers=["db-1"]))
    threads = []
    real = anyio.to_thread.run_sync

    async def noted(function, *args):
        threads.append(function.__name__)
        return await real(function, *args)

    monkeypatch.setattr(anyio.to_thread, "run_sync", noted)
    await world.show(batch(0, 60))
    assert threads.count("refresh") == 1
    await world.show(batch(1, 60))
    assert threads.count("refresh") == 1
    world.put(rule("hot"))
    await world.show(batch(2, 60))
    assert threads.count("refresh") == 1
    assert [one.rule_id for one in await world.events()] == ["hot"]
