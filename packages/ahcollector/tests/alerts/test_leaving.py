"""Who left has no alerts: what was open ends, what comes late opens nothing, who returns is new."""

import pytest
from alert_world import START, Crash, TemporaryStoreError, World, batch, rule
from lit_fuse import Wired

from ahcollector.alerts import AlertSettings, MemoryAlertStateStore
from ahcollector.alerts._returned import Returned
from ahcollector.bus import shard_for
from ahcollector.departures import Departure, MemoryDepartures, Sieve
from ahcollector.errors import DeparturesError

pytestmark = pytest.mark.anyio
TWIN = next(f"s{n}" for n in range(10_000) if shard_for(f"s{n}") == shard_for("web-1"))
DEPARTED = 'ahc_rules_points_dropped_total{reason="departed"}'


class Place:
    """A world whose engine is told who left; `known` are the agents of the registry."""

    def __init__(self, *rules, **options):
        self.departures = MemoryDepartures()
        self.known = set()
        self.world = World(*(rules or [rule()]), **options)
        self.world.options["sieve"] = Sieve(
            departures=Wired(self.departures, self.world.fuse, DeparturesError("injected")),
            is_known=self.is_known,
            clock=self.world.clock,
        )
        self.world.start()

    async def is_known(self, one):
        return one.agent_id in self.known

    async def leave(self, server="web-1", *, at=None, keeps_series=True):
        await self.departures.note(
            Departure(
                company_id="acme",
                server_id=server,
                at=self.world.clock.time() if at is None else START + at,
                keeps_series=keeps_series,
            )
        )


@pytest.fixture
def place():
    return Place(settings=AlertSettings(flapping=None))


@pytest.mark.fault
@pytest.mark.parametrize("keeps_series", [True, False])
async def test_batch_that_waited_while_its_server_left_opens_nothing(place, keeps_series):
    """C18: it would be an alert that nothing ever ends."""
    world = place.world
    world.clock.advance(10)
    await place.leave(keeps_series=keeps_series)
    world.clock.advance(10)
    await world.show(batch(5, 60), batch(6, 60, server=TWIN))
    await world.show(batch(10, 60), batch(15, 60))
    await world.engine.tick()
    assert [(one.server_id, one.type.value) for one in await world.events()] == [
        (TWIN, "alert.opened")
    ]
    assert world.metric(DEPARTED) == 3


@pytest.mark.parametrize("whole", [False, True], ids=["server", "company"])
async def test_open_alerts_of_who_left_end_with_the_next_tick(place, whole):
    """Whoever noted it, and only theirs."""
    world = place.world
    await world.show(batch(0, 60), batch(0, 60, server=TWIN), batch(0, 60, company="blue"))
    await world.engine.tick()
    world.clock.advance(10)
    await place.leave(None if whole else "web-1")
    for _ in range(3):
        await world.engine.tick()
    ended = [(one.company_id, one.server_id, one.reason) for one in (await world.events())[3:]]
    expected = [("acme", "web-1", "forgotten")]
    if whole:
        expected.append(("acme", TWIN, "forgotten"))
    assert sorted(ended) == sorted(expected)


async def test_who_left_while_nobody_looked_has_no_alerts_behind_the_start(place):
    world = place.world
    await world.show(batch(0, 60), batch(0, 60, server=TWIN))
    world.clock.advance(10)
    await place.leave()
    world.start()
    await world.engine.tick()
    assert [(one.server_id, one.reason) for one in (await world.events())[2:]] == [
        ("web-1", "forgotten")
    ]


@pytest.mark.fault
async def test_server_that_comes_back_begins_anew_and_stays():
    """C18: what it was before ends first, and no later look or start ends what it is now."""
    place = Place(settings=AlertSettings(flapping=None))
    world = place.world
    await world.show(batch(0, 60))
    world.clock.advance(10)
    await place.leave()
    place.known.add("agent-web-1")
    world.clock.advance(10)
    await world.show(batch(20, 61))
    assert await world.told() == [
        ("opened", "condition"),
        ("resolved", "forgotten"),
        ("opened", "condition"),
    ]
    seqs = [event.seq for event in await world.events()]
    assert seqs == sorted(set(seqs))
    for _ in range(2):
        await world.engine.tick()
        await place.leave("somebody-else")
        world.start()
        await world.engine.tick()
    world.clock.advance(100)
    await world.show(batch(120, 40))
    assert (await world.told())[3:] == [("resolved", "condition")]
    await world.show(batch(121, 60))
    await place.leave()
    await world.engine.tick()
    assert (await world.told())[4:] == [("opened", "condition"), ("resolved", "forgotten")]


def test_who_came_back_last_is_known_however_many_did():
    returned = Returned()
    for number in range(10_000):
        returned.note(f"s{number}", 1)
    returned.note("s0", 2)
    returned.note("another", 1)
    known = Returned()
    known.restore(returned.text())
    for one in (returned, known):
        assert one.knows("s0", 2)
        assert not one.knows("s0", 3)
        assert not one.knows("s1", 1)
        assert one.knows("s2", 1)


async def test_batch_of_before_moves_nothing_of_who_came_back(place):
    world = place.world
    world.clock.advance(10)
    await place.leave()
    world.clock.advance(100)
    await world.show(batch(110, 60))
    await world.show(batch(5, 40), batch(9, 40))
    assert await world.told() == [("opened", "condition")]


async def test_deletions_do_not_make_an_alert_flap():
    place = Place()
    world = place.world
    place.known.add("agent-web-1")
    for _ in range(6):
        world.clock.advance(10)
        await world.show(batch(world.now, 60))
        world.clock.advance(10)
        await place.leave()
        await world.engine.tick()
    assert await world.told() == [("opened", "condition"), ("resolved", "forgotten")] * 6


class Overtaken:
    """A store of states in which something happens before the next commit."""

    def __init__(self, store):
        self.store = store
        self.before = None

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def commit(self, key, epoch, change):
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        await self.store.commit(key, epoch, change)


@pytest.mark.fault
@pytest.mark.parametrize("is_kept", [True, False])
async def test_deletion_by_another_process_between_judging_and_storing_leaves_no_alert(is_kept):
    """C18: that process found no alert to end, so none may stay that is opened here behind it.

    Where nothing of the unit was ever stored, it looks as if the store had lost it, and memory
    counts: what was decided is told then, and ends with the next tick.
    """
    between = Overtaken(MemoryAlertStateStore())
    place = Place(settings=AlertSettings(flapping=None), store=between)
    world = place.world
    await world.show(batch(0, 40))
    owner = world.engine
    if is_kept:
        await owner.save()
    world.start()
    other = world.engine

    async def delete():
        world.clock.advance(10)
        await place.leave()
        await other.forget_server("acme", "web-1")

    between.before = delete
    await owner.observed([batch(5, 60)])
    assert between.before is None
    await owner.tick()
    expected = [] if is_kept else [("opened", "condition"), ("resolved", "forgotten")]
    assert await world.told() == expected


@pytest.mark.fault
async def test_crash_at_any_step_leaves_one_alert_that_ended_once():
    """C18: the departure is noted, and whoever goes on ends what is open."""
    steps = 0
    while True:
        place = Place(settings=AlertSettings(flapping=None))
        world = place.world
        await world.show(batch(0, 60), batch(0, 60, server=TWIN))
        world.clock.advance(10)
        await place.leave()
        world.fuse.light(steps, crash)
        try:
            await world.engine.tick()
            await world.show(batch(5, 60))
        except Crash:
            world.start()
        is_over = world.fuse.left is not None
        world.fuse.left = None
        await world.engine.tick()
        await world.show(batch(5, 60))
        await world.engine.tick()
        told = [(one.server_id, one.reason) for one in await world.events()]
        assert told == [("web-1", "condition"), (TWIN, "condition"), ("web-1", "forgotten")], steps
        if is_over:
            assert steps > 10
            return
        steps += 1


def crash():
    raise Crash


async def test_while_nobody_can_tell_batches_come_again_and_nothing_ends(place, caplog):
    world = place.world
    await world.show(batch(0, 60))

    async def away(*_):
        raise DeparturesError("Redis gave no answer")

    asks = {name: getattr(place.departures, name) for name in ("of", "version")}
    for name in asks:
        setattr(place.departures, name, away)
    await place.leave()
    await world.engine.tick()
    with pytest.raises(TemporaryStoreError, match="because they left: Redis gave no answer"):
        await world.show(batch(5, 61))
    assert "the states of alerts cannot be kept" in caplog.text
    assert await world.told() == [("opened", "condition")]
    for name, ask in asks.items():
        setattr(place.departures, name, ask)
    await world.engine.tick()
    assert await world.told() == [("opened", "condition"), ("resolved", "forgotten")]
