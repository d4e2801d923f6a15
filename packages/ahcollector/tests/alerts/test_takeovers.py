"""A shard that goes from one process to another, and back, with what each has in memory."""

import pytest
from alert_world import START, World, batch, owner, patient, rule

from ahcollector.alerts import AlertSettings
from ahcollector.bus import shard_for

pytestmark = [pytest.mark.anyio, pytest.mark.fault]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


async def test_new_owner_of_a_shard_goes_on_where_the_old_one_was():
    """What the old one counted is handed over with the shard."""
    world = World(patient())
    mine, theirs = {shard_for("web-1"): "1"}, {}
    first, second = owner(world, mine), owner(world, theirs)
    await first.observed([batch(10, 60)])
    await first.tick()
    await second.tick()
    theirs.update(mine)
    mine.clear()
    await first.tick()
    await second.observed([batch(20, 60)])
    await first.tick()
    assert first._slots == {}
    await second.observed([batch(30, 60)])
    (opened,) = await world.events()
    assert opened.occurred_at.timestamp() == START + 30


async def test_new_owner_tells_reminders_though_no_batch_comes():
    world = World(rule(reminder_seconds=30))
    await world.feed([60])
    second = owner(world, dict.fromkeys(range(64), 1))
    world.clock.advance(60)
    await second.tick()
    assert [kind for kind, _ in await world.told()] == ["opened", "reminder"]


async def test_owner_that_was_asleep_moves_nothing():
    """It wakes beyond its lease, with a batch in its hands, and another one has the shard."""
    world = World(rule())
    first, second = (
        owner(world, dict.fromkeys(range(64), 1)),
        owner(world, dict.fromkeys(range(64), 1)),
    )
    await first.observed([batch(10, 60)])
    await second.tick()
    await second.observed([batch(20, 40)])
    await first.observed([batch(15, 61), batch(20, 40)])
    await first.tick()
    await second.tick()
    assert await world.told() == [("opened", "condition"), ("resolved", "condition")]
    await second.observed([batch(30, 60)])
    await first.observed([batch(30, 60)])
    assert len(await world.told()) == 3


async def test_shard_that_goes_round_between_two_looks_tells_each_alert_once():
    """Each owner has a state of before in memory when the shard comes back to it."""
    world = World(rule(), settings=AlertSettings(flapping=None))
    shard = shard_for("web-1")
    tenures = [{}, {}, {}]
    engines = [owner(world, mine) for mine in tenures]
    for at, value in enumerate([60, 60, 40, 40] * 9):
        for number, mine in enumerate(tenures):
            mine.clear()
            if number == at % 3:
                mine[shard] = f"tenure {at}"
        world.clock.advance(1)
        await engines[at % 3].observed([batch(at * 10, value)])
        if at % 7 == 0:
            for engine in engines:
                await engine.tick()
    events = await world.events()
    assert [one.type.value for one in events] == ["alert.opened", "alert.resolved"] * 9
    assert [one.occurred_at.timestamp() - START for one in events] == list(range(0, 360, 20))
    assert [one.seq for one in events] == sorted({one.seq for one in events})


async def test_unit_that_another_owner_began_between_two_looks_is_found():
    """The shard was away and is back; nothing of a company that began meanwhile comes by itself."""
    world = World(rule(reminder_seconds=30))
    shard = shard_for("web-1")
    mine, theirs = {shard: "1"}, {}
    first, second = owner(world, mine), owner(world, theirs)
    await first.tick()
    theirs[shard] = "2"
    mine.clear()
    await second.observed([batch(0, 60)])
    theirs.clear()
    mine[shard] = "3"
    world.clock.advance(60)
    await first.tick()
    assert [kind for kind, _ in await world.told()] == ["opened", "reminder"]


async def test_stop_of_who_lost_a_shard_is_no_trouble(caplog):
    """Its states are the other one's to keep."""
    world = World(rule())
    first, second = (owner(world, dict.fromkeys(range(64), 1)) for _ in range(2))
    await first.observed([batch(0, 40)])
    await second.tick()
    await second.observed([batch(10, 60)])
    await first.save()
    assert "cannot be kept" not in caplog.text
    await second.observed([batch(20, 40)])
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved"]


async def test_new_tenure_that_nobody_else_had_meanwhile_forgets_no_counter():
    world = World(patient())
    tenures = {shard_for("web-1"): "first"}
    engine = owner(world, tenures)
    await engine.observed([batch(0, 40)])
    await engine.save()
    await engine.observed([batch(10, 60)])
    await engine.observed([batch(20, 60)])
    tenures[shard_for("web-1")] = "second"
    await engine.observed([batch(30, 60)])
    assert len(await world.told()) == 1, "pending since 10"
