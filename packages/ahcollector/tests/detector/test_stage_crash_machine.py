"""C18, C19: a fault at every await between a transition and the hub, silences and groups included.

A story of silence and sound, silences, settings and time is led through presence, stage, outbox,
sender and hub, once without a fault and then with some: the process is killed, a call fails before
or after it was carried out, the task is cancelled, or another process does all the work in between.
Presence, states, outbox and hub stay, as they do in Redis. What must hold at the end: the hub has
what it has without a fault, in the same order and under the same seqs, each under one id; and each
transition that presence decided under presence's id.
"""

import asyncio
import itertools
import random

import anyio
import attrs
import pytest
from agents_world import START, agent, group_settings, silence
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from lit_fuse import Crash, Fuse, InjectedError, Wired

from ahcollector.alerts import FileAlertStateStore, MemoryAlertStateStore, silences_in_force
from ahcollector.detector import AgentEventStage
from ahcollector.errors import AlertStateError, OutboxError, PresenceError, TemporaryHubError
from ahcollector.outbox import MemoryOutbox, OutboxSender
from ahcollector.presence import MemoryPresence
from ahcollector.testing import FakeClock, FakeHub
from ahrules import event_key

KINDS = ["killed", "call fails", "cancelled", "overtaken"]
AGENTS = [*(agent(number) for number in range(6)), agent(6, "beta"), agent(7, "beta")]
THRESHOLD = 9.0
ANY_ID = "0190b6f2-0000-7000-8000-000000000001"


@attrs.frozen
class Silent:
    numbers: tuple


@attrs.frozen
class Heard:
    numbers: tuple


@attrs.frozen
class Wait:
    seconds: float


@attrs.frozen
class Hush:
    servers: tuple | None


@attrs.frozen
class Grouping:
    least: int | None


class Story:
    """Leads agents through steps, whatever happens to the process."""

    def __init__(self, *, store=None, outbox=None):
        self.clock = FakeClock(START)
        self.rng = random.Random(5)
        numbers = itertools.count(1)
        self.ids = lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"
        self.fuse = Fuse()
        self.hub = FakeHub()
        self.store = store if store is not None else MemoryAlertStateStore()
        self.outbox = outbox if outbox is not None else MemoryOutbox()
        self.presence = MemoryPresence(
            event_ids=self.ids, down_min_seconds=THRESHOLD, default_interval_seconds=3.0
        )
        self.silences = silences_in_force(())
        self.grouping = group_settings()
        self.deaf = set()
        self.scope = None
        self.restarts = 0
        self.tenure = 1
        self.start()

    def start(self):
        presence = Wired(self.presence, self.fuse, PresenceError("injected"))
        outbox = Wired(self.outbox, self.fuse, OutboxError("injected"))
        store = Wired(self.store, self.fuse, AlertStateError("injected"))
        self.process = self.stage(presence, store, outbox, turn=self), presence
        self.sender = OutboxSender(
            outbox=outbox,
            hub=Wired(self.hub, self.fuse, TemporaryHubError("injected")),
            clock=self.clock,
            rng=self.rng,
            batch_max=3,
        )

    async def hold(self):
        """The turn of the process that is told of; another one takes it without asking."""
        return self.tenure

    def stage(self, presence, store, outbox, *, turn=None):
        return AgentEventStage(
            presence=presence,
            store=store,
            outbox=outbox,
            clock=self.clock,
            event_ids=self.ids,
            silences=lambda: self.silences,
            settings=lambda _: self.grouping,
            held_max=3,
            turn=turn,
        )

    async def carry(self, process):
        stage, presence = process
        now, tenure = self.clock.time(), self.tenure
        assert await stage.is_mine()
        carried = await stage.carry(lambda limit: presence.expire(now, limit), now)
        if not carried.complete or tenure != self.tenure:
            raise InjectedError("not all was carried")

    def what(self, kind):
        async def killed():
            raise Crash

        async def fails():
            raise InjectedError

        async def cancelled():
            self.scope.cancel()

        async def overtaken():
            other = self.stage(self.presence, self.store, self.outbox), self.presence
            await self.carry(other)
            self.tenure += 1

        return {"killed": killed, "call fails": fails, "cancelled": cancelled}.get(kind, overtaken)

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
                self.start()
            except (InjectedError, PresenceError):
                pass
            if done:
                return

    async def step(self, step):
        if isinstance(step, Silent):
            self.deaf |= set(step.numbers)
            await self.pass_by(THRESHOLD + 0.5)
        elif isinstance(step, Heard):
            self.deaf -= set(step.numbers)
            await self.pass_by(0.25)
        elif isinstance(step, Wait):
            await self.pass_by(step.seconds)
        elif isinstance(step, Hush):
            names = None if step.servers is None else [f"s{number}" for number in step.servers]
            self.silences = silences_in_force([] if names is None else [silence(*names)])
        elif step.least is None:
            self.grouping = group_settings(enabled=False)
        else:
            self.grouping = group_settings(step.least, 0.2)
        await self.until_done(lambda: self.carry(self.process))
        await self.until_done(lambda: self.sender.send_once())

    async def pass_by(self, seconds):
        self.clock.advance(seconds)
        for number, ref in enumerate(AGENTS):
            if number not in self.deaf:
                await self.presence.touch(ref, self.clock.time(), None)

    async def end(self):
        """Let everything settle without another fault, and return what the hub has."""
        self.fuse.light(None, None)
        await self.carry(self.process)
        while (await self.outbox.stats(self.clock.time())).depth:
            await self.sender.send_once()
        assert await self.presence.pending_count() == 0
        for key in await self.store.units([64]):
            assert (await self.store.claim(key)).intents == ()
        events = self.hub.events
        assert len({event.event_id for event in events}) == len(events)
        newest = {}
        for event in events:
            assert event.seq > newest.get(event_key(event), 0)
            newest[event_key(event)] = event.seq
        return {
            company: [attrs.evolve(e, event_id=ANY_ID) for e in events if e.company_id == company]
            for company in ("acme", "beta")
        }


async def told_by(steps, faults=(), **options):
    """Tell the story; return it and what the hub has."""
    story = Story(**options)
    left = list(faults)
    for step in steps:
        if left and story.fuse.left is None:
            at, kind = left.pop()
            story.fuse.light(at, story.what(kind))
        await story.step(step)
    return story, await story.end()


STORY = [
    Wait(1.0),
    Silent((1,)),
    Hush((1, 2)),
    Silent((2, 6)),
    Silent((3, 4, 5)),
    Heard((2,)),
    Silent((0, 2)),
    Hush(None),
    Heard((3, 6)),
    Grouping(6),
    Heard((0, 1, 2, 4, 5)),
    Grouping(1),
    Silent((7,)),
    Hush(()),
    Heard((7,)),
    Hush(None),
    Grouping(None),
]


@pytest.mark.fault
@pytest.mark.parametrize(
    "stride", [7, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "every"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_single_step_can_go_wrong(kind, stride):
    """C18, C19: process killed, call failed, task cancelled, work done by another, at any await."""

    async def run():
        story, calm = await told_by(STORY)
        reasons = {each for e in story.hub.events for each in (e.reason, e.suppress_reason)}
        assert {"silence:s1", "silence_ended", "group_down", "group_ended"} <= reasons
        assert len(story.hub.events) > 25
        assert story.fuse.steps > 200
        for at in range(2 * KINDS.index(kind) % stride, story.fuse.steps, stride):
            _, told = await told_by(STORY, [(at, kind)])
            assert told == calm, at

    asyncio.run(run())


numbers = st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True).map(tuple)
stories = st.lists(
    st.one_of(
        st.builds(Silent, numbers),
        st.builds(Heard, numbers),
        st.builds(Wait, st.sampled_from([0.0, 1.0, 70.0])),
        st.builds(Hush, st.one_of(st.none(), st.just(()), numbers)),
        st.builds(Grouping, st.sampled_from([None, 1, 2, 3, 5])),
    ),
    max_size=14,
)
many_faults = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(KINDS)), max_size=14)


def same_as_without(story, faults):
    async def run():
        _, calm = await told_by(story)
        _, told = await told_by(story, faults)
        assert told == calm

    asyncio.run(run())


@pytest.mark.fault
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=stories, faults=many_faults)
def test_any_story_with_any_faults_tells_the_same(story, faults):
    """C18, C19: faults one behind the other, at any await of any story."""
    same_as_without(story, faults)


@pytest.mark.fault
@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_stories_tell_the_same(part):
    """C18, C19: the same, 10,000 histories."""
    bounds = settings(max_examples=500, deadline=None, suppress_health_check=[*HealthCheck])
    seed(part)(bounds(given(story=stories, faults=many_faults)(same_as_without)))()


@pytest.mark.fault
def test_killed_at_steps_over_real_files(tmp_path):
    """C18: the same with states in files, at some of the steps."""

    async def run():
        story, calm = await told_by(STORY)
        for number, at in enumerate(random.Random(3).sample(range(story.fuse.steps), 6)):
            store = await FileAlertStateStore.open(tmp_path / f"states{number}")
            _, told = await told_by(STORY, [(at, "killed")], store=store)
            assert told == calm, at
            await store.close()

    asyncio.run(run())
