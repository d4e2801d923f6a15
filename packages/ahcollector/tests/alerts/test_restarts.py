"""A restart in each state, a takeover by another process, and a store of states that fails."""

import logging

import anyio
import pytest
from alert_world import START, World, batch, patient, rule, silence

from ahcollector.alerts import AlertSettings, MemoryAlertStateStore
from ahcollector.bus.base import SHARDS
from ahcollector.errors import AlertStateError, OutboxError, TemporaryStoreError
from ahcollector.outbox import MemoryOutbox
from ahrules import FlapSettings

pytestmark = [pytest.mark.anyio, pytest.mark.fault]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


async def restart(world):
    """End the process as it should be ended, and begin the next one."""
    await world.engine.save()
    world.start()


COURSE = [40, 60, 60, 60, 60, 60, 48, 48, 60, 48, 40, 40, 40, 40]
"""With the rule below: pending at 20, opened at 40, keep-firing from 110, resolved at 130."""


@pytest.mark.parametrize("at", range(len(COURSE)))
async def test_restart_in_any_state_changes_nothing(at):
    """A4: in pending, firing and keep-firing: the same state, the same start, no extra event."""
    calm = World(patient(reminder_seconds=30))
    await calm.feed(COURSE)
    world = World(patient(reminder_seconds=30))
    await world.feed(COURSE[:at])
    await restart(world)
    await world.feed(COURSE[at:])
    parts = [
        [(one.type, one.occurred_at, one.duration_seconds, one.peak_value) for one in events]
        for events in (await world.events(), await calm.events())
    ]
    assert parts[0] == parts[1]
    assert [kind for kind, _ in await calm.told()] == [
        "opened",
        *["reminder"] * 2,
        "resolved",
    ]


async def test_kill_costs_no_time_of_a_wait():
    """A4: killed while pending and while kept: the same times, for when it began is stored."""
    world = World(patient())
    await world.feed([40, 60, 60])
    world.start()
    await world.feed([60, 60, 60, 60])
    (opened,) = await world.events()
    assert opened.occurred_at.timestamp() - START == 40
    killed_while_firing = World(patient())
    await killed_while_firing.feed([60, 60, 60])
    killed_while_firing.start()
    await killed_while_firing.feed([60, 60, 40, 40, 40])
    assert [kind for kind, _ in await killed_while_firing.told()] == ["opened", "resolved"]
    duration = (await killed_while_firing.events())[1].duration_seconds
    assert duration == 50.0, "from the first start"


@pytest.mark.parametrize("agg", ["avg", "min", "max", "sum"])
@pytest.mark.parametrize("at", range(1, 9))
async def test_kill_makes_no_alert_of_half_a_window(agg, at):
    """A4: the points of the window since the last whole snapshot are stored with their batch."""
    rules = rule(agg=agg, agg_seconds=30, threshold=55)
    course = [50, 20, 60, 10, 90, 54, 56, 70, 80]
    calm, killed = World(rules), World(rules)
    for world in (calm, killed):
        for number, value in enumerate(course):
            world.clock.advance(5)
            await world.show(batch(world.now, value))
            if world is killed and number == at:
                world.start()
    assert await killed.told() == await calm.told()
    assert [one.value for one in await killed.events()] == [
        one.value for one in await calm.events()
    ]


async def test_points_of_windows_that_cannot_be_stored_are_bounded(monkeypatch):
    """Too many: a whole snapshot goes in their place."""
    monkeypatch.setattr("ahcollector.alerts._journal._POINTS_MAX", 3)
    world = World(rule(agg="avg", agg_seconds=300, threshold=60), store=Failing())
    await world.feed([40])
    world.store.fails = {"commit"}
    for at in range(20, 100, 10):
        with pytest.raises(TemporaryStoreError):
            await world.show(batch(at, 45))
    world.store.fails = set()
    await world.show(batch(100, 90))
    image = await world.store.claim((await world.store.units(range(64)))[0])
    assert (bool(image.base), dict(image.pieces)) == (True, {})
    world.start()
    await world.show(batch(110, 90))
    assert await world.told() == []
    await world.show(batch(120, 200))
    (opened,) = await world.events()
    assert round(opened.value, 6) == round((40 + 45 * 8 + 90 + 90 + 200) / 12, 6)


async def test_reminders_stay_on_their_grid_over_a_restart():
    """A8: every 20 minutes for 24 hours, looks that come late, one restart: k-th at k x 20 min."""
    world = World(rule(reminder_seconds=1200))
    await world.show(batch(0, 60))
    for tick in range(24 * 3600 // 15):
        world.clock.advance(15)
        await world.engine.tick()
        if tick == 3000:
            world.start()
    reminders = [one for one in await world.events() if one.type.value == "alert.reminder"]
    assert len(reminders) == 72
    for number, event in enumerate(reminders, 1):
        late = event.occurred_at.timestamp() - START - number * 1200
        assert 0 <= late <= 15, number


async def test_silenced_alert_is_owed_after_a_restart():
    world = World(rule())
    world.hush(silence(ends=100))
    await world.feed([60])
    world.start()
    world.clock.advance(100)
    await world.engine.tick()
    world.start()
    await world.engine.tick()
    assert await world.told() == [("opened", "silence:s1"), ("opened", "silence_ended")]


@pytest.mark.parametrize("flapping", [None, FlapSettings()])
async def test_silenced_alert_that_was_told_is_owed_no_more_after_a_kill(flapping):
    """A5: the whole snapshot from before still holds it back."""
    world = World(rule(), settings=AlertSettings(flapping=flapping))
    world.hush(silence())
    await world.feed([60] * 5)
    world.hush()
    await world.feed([60])
    told = [("opened", "silence:s1"), ("opened", "silence_ended")]
    assert await world.told() == told
    world.start()
    await world.feed([60, 60])
    assert await world.told() == told


async def test_alert_that_flaps_goes_on_flapping_after_a_restart():
    world = World(rule())
    await world.feed([60, 40, 60, 40])
    world.start()
    await world.feed([60, 40])
    assert (await world.told())[-2:] == [("opened", "flapping"), ("resolved", "flapping")]
    world.start()
    world.clock.advance(1800)
    await world.engine.tick()
    assert (await world.told())[-1] == ("settled", None)


async def test_alert_whose_rule_went_while_the_process_was_away_is_resolved():
    world = World(rule())
    await world.feed([60])
    world.put()
    world.start()
    await world.engine.tick()
    assert await world.told() == [("opened", "condition"), ("resolved", "rule_removed")]


async def test_seq_rises_though_the_clock_went_back_between_two_processes():
    world = World(rule())
    await world.feed([60])
    world.clock.step_wall(-3600)
    world.start()
    await world.show(batch(20, 40))
    opened, resolved = await world.events()
    assert opened.seq < resolved.seq


# --- what fails


class Failing(MemoryAlertStateStore):
    """Raises for the calls that are named."""

    def __init__(self):
        super().__init__()
        self.fails = set()

    def __getattribute__(self, name):
        if not name.startswith("_") and name != "fails" and name in self.fails:

            async def fail(*args):
                raise AlertStateError(f"{name} fails")

            return fail
        return super().__getattribute__(name)


async def test_batch_whose_decision_is_not_stored_is_refused_and_comes_again(caplog):
    """A crash then loses nothing: the batch was not acknowledged."""
    world = World(rule(), store=Failing())
    world.store.fails = {"commit"}
    with pytest.raises(TemporaryStoreError, match=r"company acme in shard \d+: commit fails"):
        await world.show(batch(0, 60))
    await world.engine.tick()
    assert await world.told() == []
    assert world.metric("ahc_rules_events_retry") == 1
    assert world.metric('ahc_rules_state_failures_total{call="commit"}') == 2
    assert "cannot be kept" in caplog.text
    world.start()
    world.store.fails = set()
    await world.show(batch(0, 60), batch(10, 40))
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved"]


async def test_batches_pass_after_a_minute_and_decisions_are_stored_later(caplog):
    """Samples must not wait for ever for the states of alerts."""
    world = World(rule(), store=Failing())
    await world.feed([40])
    world.store.fails = {"commit"}
    with pytest.raises(TemporaryStoreError):
        await world.show(batch(20, 60))
    world.clock.advance(60)
    await world.show(batch(20, 60), batch(70, 60))
    await world.show(batch(80, 40))
    assert await world.told() == []
    world.store.fails = set()
    with caplog.at_level(logging.INFO):
        await world.engine.tick()
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved"]
    assert world.metric("ahc_rules_events_retry") == 0
    world.store.fails = {"commit"}
    with pytest.raises(TemporaryStoreError):
        await world.show(batch(90, 60))


async def test_nothing_is_judged_while_the_states_cannot_be_read():
    """To begin with empty ones would open alerts a second time."""
    world = World(rule(), store=Failing())
    await world.feed([60])
    world.start()
    world.store.fails = {"claim", "units"}
    with pytest.raises(TemporaryStoreError, match="claim fails"):
        await world.show(batch(20, 60))
    await world.engine.tick()
    world.clock.advance(60)
    await world.show(batch(70, 60))
    assert world.metric('ahc_rules_points_dropped_total{reason="state_unavailable"}') == 1
    world.store.fails = set()
    await world.show(batch(80, 60))
    await world.engine.tick()
    assert await world.told() == [("opened", "condition")]


async def test_unit_that_is_of_no_use_leaves_the_store_when_that_answers():
    world = World(rule(), store=Failing())
    await world.feed([40])
    world.put()
    world.clock.advance(7_200)
    world.store.fails = {"remove"}
    await world.engine.tick()
    assert world.metric('ahc_rules_state_failures_total{call="remove"}') == 1
    assert await world.store.units(range(SHARDS))
    world.store.fails = set()
    await world.engine.tick()
    assert await world.store.units(range(SHARDS)) == []


async def test_unit_that_another_took_over_is_claimed_before_it_leaves(caplog):
    world = World(rule(), store=Failing())
    await world.feed([40])
    world.put()
    world.clock.advance(7_200)
    world.store.fails = {"remove"}
    await world.engine.tick()
    world.store.fails = set()
    [key] = await world.store.units(range(SHARDS))
    await world.store.claim(key)
    caplog.clear()
    await world.engine.tick()
    assert await world.store.units(range(SHARDS)) == [key]
    await world.engine.tick()
    assert await world.store.units(range(SHARDS)) == []
    assert world.metric('ahc_rules_state_failures_total{call="remove"}') == 1
    assert "cannot be kept" not in caplog.text


class FullOutbox(MemoryOutbox):
    full = True

    async def append(self, events, now):
        if self.full:
            raise OutboxError("full")
        return await super().append(events, now)


async def test_outbox_that_fails_holds_nothing_up_and_loses_nothing(caplog):
    world = World(rule(), outbox=FullOutbox())
    await world.feed([60, 40])
    assert world.metric("ahc_rules_events_retry") == 2
    assert "events of rules wait for the outbox" in caplog.text
    world.start()
    await world.feed([60])
    assert world.metric("ahc_rules_events_retry") == 3
    world.outbox.full = False
    await world.engine.tick()
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved", "opened"]
    assert world.metric("ahc_rules_events_retry") == 0


async def test_events_that_wait_are_bounded_and_points_beyond_are_counted():
    world = World(rule(), outbox=FullOutbox(), settings=AlertSettings(flapping=None, waiting_max=4))
    await world.feed([60, 40] * 5)
    assert world.metric("ahc_rules_events_retry") == 4
    assert world.metric('ahc_rules_points_dropped_total{reason="events_waiting"}') == 6
    world.outbox.full = False
    await world.engine.tick()
    await world.feed([60])
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved"] * 2 + ["opened"]


async def test_store_that_has_the_outboxes_events_still_is_told_later():
    world = World(rule(), store=Failing())
    world.store.fails = {"told"}
    await world.feed([60])
    assert await world.told() == [("opened", "condition")]
    assert world.metric('ahc_events_emitted_total{type="alert.opened"}') == 1
    await world.engine.tick()
    assert world.metric('ahc_events_emitted_total{type="alert.opened"}') == 1
    world.store.fails = set()
    await world.engine.tick()
    (key,) = await world.store.units(range(64))
    assert (await world.store.claim(key)).intents == ()
    assert len(await world.told()) == 1


async def test_store_that_has_lost_everything_is_given_it_again():
    """A Redis that was emptied: memory has it all, and no alert opens twice."""
    world = World(rule())
    await world.feed([60])
    world.store._images.clear()
    await world.feed([40, 60])
    world.start()
    await world.feed([60])
    assert [kind for kind, _ in await world.told()] == ["opened", "resolved", "opened"]


async def test_state_that_cannot_be_used_is_kept_aside_and_begun_anew(caplog):
    """Another version's: its alert opens again, under its old seq and above."""

    class Aside(MemoryAlertStateStore):
        aside = 0

        async def set_aside(self, key, epoch):
            await super().set_aside(key, epoch)
            self.aside += 1

    world = World(rule(), store=Aside())
    await world.feed([60])
    await world.engine.save()
    (key, image) = next(iter(world.store._images.items()))
    world.store._images[key] = type(image)(
        epoch=image.epoch,
        seq=image.seq,
        base={
            part: text.replace('"version":1', '"version":9') for part, text in image.base.items()
        },
        pieces={"[]": "x", "7": "y", '["a","b"]': "{}", '["s","web-1","ah_heat"]': "cut"},
    )
    world.start()
    await world.feed([60])
    assert world.store.aside == 1
    assert world.metric('ahc_rules_state_failures_total{call="damaged"}') == 7
    assert "kept aside" in caplog.text
    first, second = await world.events()
    assert first.seq < second.seq
    await world.engine.save()
    world.start()
    await world.feed([60])
    assert len(await world.told()) == 2, "what was stored since can be used"


async def test_observed_beside_ticks_and_saves_is_one_after_the_other():
    world = World(rule(), settings=AlertSettings(flapping=None))

    async def feed(server):
        for at in range(30):
            await world.show(batch(at, 60 if at % 2 else 40, server=server))

    async def tick():
        for _ in range(20):
            await world.engine.tick()
            await world.engine.save()

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(feed, f"web-{number}")
        tasks.start_soon(tick)
    events = await world.events()
    for number in range(5):
        mine = [one for one in events if one.server_id == f"web-{number}"]
        assert len(mine) == 29
        assert [one.seq for one in mine] == sorted({one.seq for one in mine})
