"""C18: a fault at every await between a point and the hub, and a restart at every point.

The world of `alert_world` is led through one story of batches, ticks, changes of rules and of
silences, once without a fault and then with one: the process is killed, a call of store, outbox or
hub fails before or after it was carried out, or the task is cancelled. As the bus does, the world
shows a batch again that was not acknowledged, and after a crash also some that were. What must hold
at the end: the hub has the same events in the same order as without the fault, each under one id.

`stored`: what is only counted (the newest value, the peak) is stored with every step, and then a
crash changes nothing that a rule has judged; a point that came while there was no rule left nothing
behind, so such points are not shown again. With the real 30 s a crash may cost a peak, and a point
that came before a change of the rules may be judged by the new ones; every event is still there
once and at its time, also of rules with `for`, with `keep_firing` and over a window.
"""

import asyncio
import contextlib
import random

import anyio
import attrs
import pytest
from alert_world import Crash, InjectedError, World, batch, rule, silence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahcollector.alerts import AlertSettings, FileAlertStateStore
from ahcollector.errors import TemporaryStoreError
from ahcollector.outbox import FileOutbox
from ahwire import EventType

KINDS = ["killed", "call fails", "cancelled"]
RULES = (rule("hot", reminder_seconds=25), rule("low", op="lt", threshold=45, metric="ah_level"))
PATIENT = (
    rule("for", for_seconds=15, keep_firing_seconds=15, resolve_threshold=45),
    rule("mean", agg="avg", agg_seconds=30),
    rule("least", agg="min", agg_seconds=20, keep_firing_seconds=10),
    rule("most", agg="max", agg_seconds=30, for_seconds=10, threshold=80),
    rule("all", agg="sum", agg_seconds=15, op="lt", threshold=130, metric="ah_level"),
)


@attrs.frozen
class Points:
    server: str
    heat: float
    level: float


@attrs.frozen
class Wait:
    seconds: float


@attrs.frozen
class NewRules:
    threshold: float | None


@attrs.frozen
class NewSilence:
    server: str | None


def signature(event, stored):
    """Everything of an event but what names it, and what a crash may cost."""
    event = attrs.evolve(event, event_id="0190b6f2-0000-7000-8000-000000000001", seq=0)
    if stored:
        return event
    value = None if event.type is EventType.ALERT_REMINDER else event.value
    return attrs.evolve(event, peak_value=None, value=value)


class Story:
    """Leads a world through steps, whatever happens to it."""

    def __init__(self, rules, *, stored, **options):
        self.base_rules = rules
        self.stored = stored
        interval = {"state_interval_seconds": 1e-9} if stored else {}
        self.world = World(*rules, **interval, **options)
        self.shown = []
        self.restarts = 0
        self.scope = None
        self.unruled = False

    def what(self, kind):
        def killed():
            raise Crash

        def fails():
            raise InjectedError

        def cancelled():
            self.scope.cancel()

        return {"killed": killed, "call fails": fails, "cancelled": cancelled}[kind]

    async def until_done(self, act):
        """Do it again until it was done once: after a crash by the next process."""
        while True:
            done = False
            try:
                with anyio.CancelScope() as self.scope:
                    await act()
                    done = True
            except Crash:
                self.restarts += 1
                self.world.start()
                # Entries that were acknowledged and not durable come again, in order.
                for old in self.shown[-3:]:
                    with contextlib.suppress(TemporaryStoreError):
                        await self.world.show(old)
            except TemporaryStoreError:
                pass
            if done:
                return

    async def step(self, step):
        world = self.world
        if isinstance(step, Points):
            world.clock.advance(5)
            one = batch(world.now, server=step.server, ah_heat=step.heat, ah_level=step.level)
            await self.until_done(lambda: world.show(one))
            self.shown.append(one)
        elif isinstance(step, Wait):
            world.clock.advance(step.seconds)
        elif isinstance(step, NewSilence):
            if step.server is None:
                world.hush()
            else:
                matchers = [{"label": "server_id", "op": "eq", "value": step.server}]
                world.hush(silence(matchers=matchers, all=False))
        elif step.threshold is None:
            world.put()
            self.unruled = True
        else:
            if self.unruled:
                self.shown.clear()
            version = int(step.threshold)
            changed = attrs.evolve(self.base_rules[0], threshold=step.threshold, version=version)
            world.put(changed, *self.base_rules[1:])
            self.unruled = False
        await self.until_done(lambda: self.world.engine.tick())
        await self.until_done(lambda: self.world.sender.send_once())

    async def end(self):
        """Let everything settle without another fault, and return what the hub has."""
        self.world.fuse.light(None, None)
        for _ in range(3):
            await self.world.engine.tick()
        while (await self.world.outbox.stats(self.world.clock.time())).depth:
            await self.world.sender.send_once()
        for key in await self.world.store.units(range(64)):
            assert (await self.world.store.claim(key)).intents == ()
        events = self.world.hub.events
        assert len({event.event_id for event in events}) == len(events)
        keys = {}
        for event in events:
            keys.setdefault((event.server_id, event.rule_id, event.series_key), []).append(event)
        for mine in keys.values():
            assert [event.seq for event in mine] == sorted({event.seq for event in mine})
        # Units are apart, and a fault may hold one up; within a unit nothing overtakes.
        return {
            server: [signature(event, self.stored) for event in events if event.server_id == server]
            for server in sorted({event.server_id for event in events})
        }


async def told_by(steps, rules, *, at=None, kind="killed", **options):
    """Tell the story; return what the hub has, and how many steps there were to fail at."""
    story = Story(rules, **options)
    if at is not None:
        story.world.fuse.light(at, story.what(kind))
    for step in steps:
        await story.step(step)
    return await story.end(), story.world.fuse.steps


STORY = [
    *(Points("web-1", heat, 50) for heat in (40, 60, 60)),
    Points("web-2", 60, 40),
    Wait(30),
    NewSilence("web-1"),
    *(Points("web-1", heat, 50) for heat in (40, 60)),
    Wait(40),  # a whole snapshot, which holds back what is owed at the next step
    NewSilence(None),
    Points("web-1", 61, 50),
    NewRules(90.0),
    Points("web-2", 60, 50),
    NewRules(50.0),
    *(Points("web-1", heat, 50) for heat in (60, 40, 60, 40, 60)),
    Wait(1900),
    Points("web-1", 40, 50),
    NewRules(None),
    Wait(1),
]
STEADY_STORY = [step for step in STORY if not isinstance(step, NewRules)]
PATIENT_STORY = [
    *(Points("web-1", heat, 50) for heat in (40, 60, 60, 60, 60, 60)),
    *(Points("web-1", heat, 50) for heat in (40, 40, 55, 40, 40, 40, 40, 40, 90)),
    Wait(5),
]


@pytest.mark.fault
@pytest.mark.parametrize(
    "stride", [9, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "every"]
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rules", "steps", "options"),
    [
        (RULES, STORY, {"stored": True}),
        (RULES, STEADY_STORY, {"stored": False}),
        (RULES, STEADY_STORY, {"stored": False, "settings": AlertSettings(flapping=None)}),
        (PATIENT, PATIENT_STORY, {"stored": True}),
        (PATIENT, PATIENT_STORY, {"stored": False}),
    ],
    ids=["all", "steady", "unflapped", "patient", "patient, 30 s"],
)
def test_every_single_step_can_go_wrong(kind, rules, steps, options, stride):
    """C18: process killed, call failed or task cancelled at every await: one event each."""

    async def run():
        calm, count = await told_by(steps, rules, **options)
        assert sum(map(len, calm.values())) >= (4 if rules is PATIENT else 14)
        assert count > 80
        # Of one kind other steps than of the next, so that a run of all three sees a third.
        for at in range(3 * KINDS.index(kind) % stride, count, stride):
            told, _ = await told_by(steps, rules, at=at, kind=kind, **options)
            assert told == calm, at

    asyncio.run(run())


steady_steps = (
    st.builds(
        Points,
        st.sampled_from(["web-1", "web-2", "web-3"]),
        st.sampled_from([40.0, 60.0, 80.0]),
        st.sampled_from([40.0, 50.0]),
    ),
    st.builds(Wait, st.sampled_from([1.0, 20.0, 40.0, 1900.0])),
    st.builds(NewSilence, st.sampled_from([None, "web-1", "web-2"])),
)
new_rules = st.builds(NewRules, st.sampled_from([None, 50.0, 70.0]))
stories = st.one_of(
    st.tuples(
        st.sampled_from([RULES, PATIENT]),
        st.lists(st.one_of(*steady_steps), max_size=40),
        st.just(False),
    ),
    st.tuples(
        st.sampled_from([RULES, PATIENT]),
        st.lists(st.one_of(*steady_steps, new_rules), max_size=40),
        st.just(True),
    ),
)


@pytest.mark.fault
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    story=stories,
    faults=st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(KINDS)),
        max_size=25,
    ),
)
def test_any_story_with_any_faults_tells_the_same(story, faults):
    """C18: faults one behind the other, at any step of any story."""
    rules, steps, stored = story

    async def run():
        calm, _ = await told_by(steps, rules, stored=stored)
        told = Story(rules, stored=stored)
        left = list(faults)
        for step in steps:
            if left and told.world.fuse.left is None:
                at, kind = left.pop()
                told.world.fuse.light(at, told.what(kind))
            await told.step(step)
        assert await told.end() == calm

    asyncio.run(run())


@pytest.mark.fault
@pytest.mark.parametrize(
    ("rules", "steps", "stored"),
    [(RULES, STORY, True), (PATIENT, PATIENT_STORY, False)],
    ids=["all", "patient, 30 s"],
)
def test_killed_at_steps_over_real_files(tmp_path, rules, steps, stored):
    """C18: the same with states and outbox in files, at some of the steps."""

    async def run():
        calm, count = await told_by(steps, rules, stored=stored)
        for number, at in enumerate(random.Random(3).sample(range(count), 4)):
            store = await FileAlertStateStore.open(tmp_path / f"rules{number}")
            outbox = await FileOutbox.open(tmp_path / f"outbox{number}", now=0.0)
            told, _ = await told_by(steps, rules, stored=stored, at=at, store=store, outbox=outbox)
            assert told == calm, at
            await store.close()
            await outbox.close()

    asyncio.run(run())
