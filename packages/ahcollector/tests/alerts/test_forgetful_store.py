"""C18: a store of states that forgets everything with the shards' leases, and shards that leave.

`Forgetful` is a Redis that was emptied: nothing that was stored is there, and epochs begin above
those of before.
"""

import pytest
from alert_world import World, batch, rule, value_of
from alert_world import owner as engine_of

from ahcollector.alerts import AlertSettings, MemoryAlertStateStore, StoreGlance
from ahcollector.bus import shard_for
from ahcollector.errors import AlertStateError, TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics

pytestmark = [pytest.mark.anyio, pytest.mark.fault]

SHARD = shard_for("web-1")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Forgetful(MemoryAlertStateStore):
    births = 0
    fails = False

    def forget(self):
        self.births += 1
        self._images.clear()
        # The time goes on, and the first epoch of a unit is the time.
        self._epochs = {key: epoch + 1_000 for key, epoch in self._epochs.items()}

    async def look(self, keys):
        return StoreGlance(birth=str(self.births), epochs=(await super().look(keys)).epochs)

    async def commit(self, key, epoch, change):
        if self.fails:
            raise AlertStateError("commit fails")
        await super().commit(key, epoch, change)

    async def claim(self, key):
        if self.fails:
            raise AlertStateError("claim fails")
        return await super().claim(key)


class Processes:
    """Engines over one store, of which one has the shard of web-1 at a time."""

    def __init__(self, *rules, count=2, **options):
        self.world = World(*rules, store=Forgetful(), **options)
        self.tenures = [{} for _ in range(count)]
        self.metrics = [PrometheusMetrics() for _ in range(count)]
        self.engines = [
            engine_of(self.world, mine, metrics=metrics)
            for mine, metrics in zip(self.tenures, self.metrics, strict=True)
        ]
        self.given = 0

    def give(self, number):
        """Give the shard to one process; None: nobody has it."""
        for mine in self.tenures:
            mine.clear()
        self.given += 1
        if number is not None:
            self.tenures[number][SHARD] = f"tenure {self.given}"

    async def tick(self, seconds=10):
        self.world.clock.advance(seconds)
        for engine in self.engines:
            await engine.tick()

    async def show(self, number, value):
        await self.engines[number].observed([batch(self.world.now, value)])

    def metric(self, number, line):
        return value_of(self.metrics[number], line)


async def test_lease_lost_with_the_states_opens_nothing_twice_and_tells_each_end():
    """B2-1, one process: the tick in which nobody has the shard takes nothing from memory."""
    there = Processes(rule(), count=1)
    there.give(0)
    await there.tick()
    await there.show(0, 60)
    there.world.store.forget()
    there.give(None)
    await there.tick()
    await there.tick()
    there.give(0)
    await there.tick()
    there.world.clock.advance(1)
    await there.show(0, 60)
    assert await there.world.told() == [("opened", "condition")]
    there.world.clock.advance(1)
    await there.show(0, 40)
    opened, resolved = await there.world.events()
    assert (resolved.type.value, opened.seq < resolved.seq) == ("alert.resolved", True)
    assert resolved.duration_seconds > 30
    assert there.metric(0, "ahc_rules_states_lost_total") == 1
    assert there.metric(0, 'ahc_rules_units_forgotten_total{outcome="given_back"}') == 1
    # It is stored again at once: a kill now opens nothing again.
    (key,) = await there.world.store.units([SHARD])
    assert (await there.world.store.claim(key)).base


async def test_states_that_another_process_begins_anew_are_counted(caplog):
    """B2-1, two processes: the other one wins the shard, and has no memory of it."""
    there = Processes(rule())
    there.give(0)
    await there.tick()
    await there.show(0, 60)
    await there.tick()
    there.world.store.forget()
    there.give(1)
    await there.show(1, 60)
    await there.tick()
    await there.tick()
    assert there.metric(0, "ahc_rules_states_lost_total") == 1
    assert there.metric(1, "ahc_rules_states_lost_total") == 1
    assert there.metric(0, 'ahc_rules_units_forgotten_total{outcome="lost"}') == 1
    assert "begun anew by another process" in caplog.text
    assert there.engines[0]._slots == {}


async def test_unit_stays_in_memory_until_another_process_has_claimed_it():
    there = Processes(rule())
    there.give(0)
    await there.tick()
    await there.show(0, 60)
    there.give(None)
    for _ in range(5):
        await there.tick()
    assert len(there.engines[0]._slots) == 1
    there.give(1)
    await there.tick()
    await there.tick()
    assert there.engines[0]._slots == {}
    assert len(there.engines[1]._slots) == 1
    await there.show(1, 40)
    assert [kind for kind, _ in await there.world.told()] == ["opened", "resolved"]


async def test_unit_that_nobody_claims_leaves_memory_after_a_time():
    there = Processes(rule(), settings=AlertSettings(left_seconds=100))
    there.give(0)
    await there.tick()
    await there.show(0, 60)
    there.give(None)
    for _ in range(10):
        await there.tick()
        assert there.engines[0]._slots
    await there.tick()
    assert there.engines[0]._slots == {}


@pytest.mark.parametrize("bounds", [{"left_units_max": 2}, {"left_series_max": 2}])
async def test_units_that_were_left_are_bounded_and_the_oldest_go(bounds):
    there = Processes(rule(), settings=AlertSettings(**bounds))
    there.give(0)
    for number in range(4):
        await there.engines[0].observed([batch(1, 60, company=f"co-{number}")])
    there.give(None)
    await there.tick()
    assert [key.company_id for key in there.engines[0]._slots] == ["co-2", "co-3"]


async def one_unstored():
    """Processes of which the first one acknowledged what opens an alert, and could not store it."""
    there = Processes(rule())
    there.give(0)
    await there.tick()
    await there.show(0, 40)
    there.world.store.fails = True
    there.world.clock.advance(1)
    with pytest.raises(TemporaryStoreError):
        await there.show(0, 60)
    there.world.clock.advance(60)
    await there.show(0, 60)
    return there


async def test_decision_that_was_not_stored_outlives_the_lease():
    """The store fails beyond patience, batches pass, and the shard is lost and won again."""
    there = await one_unstored()
    there.give(None)
    await there.tick()
    await there.tick(1_000)
    assert await there.world.told() == []
    assert there.engines[0]._slots, "a decision is in memory only"
    there.world.store.fails = False
    await there.tick()
    there.give(1)
    await there.tick()
    assert await there.world.told() == [("opened", "condition")]
    assert there.metric(0, 'ahc_events_lost_total{type="alert.opened"}') == 0


@pytest.mark.parametrize("is_stop", [False, True])
async def test_decision_that_another_owner_makes_void_is_counted(caplog, is_stop):
    """It was acknowledged, never stored, and another process owns the alert by now."""
    there = await one_unstored()
    there.give(1)
    there.world.store.fails = False
    await there.engines[1].tick()
    if is_stop:
        await there.engines[0].save()
        await there.engines[0].save()
    else:
        await there.tick()
        await there.tick()
        assert there.engines[0]._slots == {}
    assert there.metric(0, 'ahc_events_lost_total{type="alert.opened"}') == 1
    assert "events of rules are lost" in caplog.text
