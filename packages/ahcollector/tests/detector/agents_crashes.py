"""A crash at every step between "decided" and "sent", for the tests of the crash machines.

The machine drives presence, detector, outbox and sender over real files. Before and after every
call from one part to another, and inside the writing of the snapshot, the process can die:
everything in memory is thrown away and a new process opens the files. What must hold at the end:
the hub got every transition, each under one event id, an agent's in order.
"""

import asyncio
import contextlib
import itertools
import random
import shutil
import tempfile
import threading
from pathlib import Path

import anyio
import attrs
from agents_world import group_settings, silence
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from lit_fuse import Crash, Fuse, InjectedError, Wired, raiser

from ahcollector.alerts import FileAlertStateStore, silences_in_force
from ahcollector.detector import AgentEventStage, Detector
from ahcollector.errors import AlertStateError, OutboxError, PresenceError, TemporaryHubError
from ahcollector.outbox import FileOutbox, OutboxSender
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.presence._snapshot import SnapshotFile, decode
from ahcollector.testing import FakeClock
from ahrules import event_key
from ahwire import EventType
from ahwire.hub import EventsReply

REPEATS = {"silence_ended", "group_ended"}
AGENTS = [AgentRef(agent_id=f"a{n}", company_id="acme", server_id=f"s{n}") for n in range(3)]


class WiredFile(SnapshotFile):
    """A snapshot file whose process can die while it is written, or just after."""

    fuse = None

    def save(self, chunks):
        try:
            self.fuse.burn()
            super().save(chunks)
            self.fuse.burn()
        except InjectedError as fault:
            raise OSError("no space") from fault


class Hub:
    """Takes each event id once, and can die before its answer is out."""

    def __init__(self):
        self.events = []
        self.ids = set()

    async def send_events(self, events, fence=None):
        for event in events:
            if event.event_id not in self.ids:
                self.ids.add(event.event_id)
                self.events.append(event)
        return EventsReply(accepted=tuple(event.event_id for event in events), rejected=())


class CrashMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.fuse = Fuse()
        self.hub = Hub()
        self.numbers = itertools.count(1)
        self.outbox = None
        self.start()

    def start(self):
        """A new process: only the files are there."""
        if self.outbox is not None:
            self.runner.run(self.outbox.close())
        self.fuse.light(None, None)
        self.runner.run(self._start())

    async def _start(self):
        file = WiredFile(self.directory / "presence.jsonl")
        file.fuse = self.fuse
        ids = self.numbers
        self.presence = MemoryPresence(
            event_ids=lambda: f"018bcfe5-6800-7000-8000-{next(ids):012x}",
            down_min_seconds=9,
            default_interval_seconds=3,
            **self.saved(file),
        )
        self.outbox = await FileOutbox.open(self.directory / "outbox", now=self.clock.time())
        outbox = Wired(self.outbox, self.fuse, OutboxError("injected"))
        self.detector = Detector(
            presence=Wired(self.presence, self.fuse, PresenceError("injected")),
            outbox=outbox,
            clock=self.clock,
            agent_interval_seconds=3,
            scan_interval_seconds=1,
            beacon_max_age_seconds=1_000,
            blind_grace_max_seconds=1,
            stage=await self.stage(outbox),
        )
        self.sender = OutboxSender(
            outbox=outbox,
            hub=Wired(self.hub, self.fuse, TemporaryHubError("injected")),
            clock=self.clock,
            rng=random.Random(1),
            batch_max=2,
        )

    def saved(self, file):
        """Where presence is saved, and what was."""
        data = file.load()
        return {"snapshot": file, "image": decode(data)[0] if data is not None else None}

    async def stage(self, outbox):
        """What stands between the detector and the outbox: nothing."""

    def act(self, coroutine):
        async def in_a_scope():
            with anyio.CancelScope() as self.scope:
                await coroutine

        try:
            self.runner.run(in_a_scope())
        except Crash:
            self.start()

    def cancel(self):
        """Cancel what runs now; it ends at its next await. A thread cannot cancel its own task."""
        if threading.current_thread() is threading.main_thread():
            self.scope.cancel()

    @rule(steps=st.integers(0, 25), fault=st.booleans())
    def light_the_fuse(self, steps, fault):
        self.fuse.light(steps, raiser(InjectedError() if fault else Crash()))

    @rule(steps=st.integers(0, 60), fault=st.booleans(), speaks=st.sampled_from([None, *AGENTS]))
    def half_a_minute_under_a_lit_fuse(self, steps, fault, speaks):
        self.fuse.light(steps, raiser(InjectedError() if fault else Crash()))
        for _ in range(5):
            self.clock.advance(6.0)
            if speaks is not None:
                self.hear(speaks)
            self.scan()
            self.send()

    @rule(seconds=st.sampled_from([0.001, 1.0, 5.0, 9.0, 30.0]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule(agent=st.sampled_from(AGENTS))
    def hear(self, agent):
        self.act(self._hear(agent))

    async def _hear(self, agent):
        now = self.clock.time()
        await self.presence.beacon(now)
        await self.presence.touch(agent, now, None)

    @rule(agent=st.sampled_from(AGENTS))
    def remove(self, agent):
        self.act(self.presence.remove(agent.agent_id, self.clock.time(), "removed"))

    @rule()
    def scan(self):
        self.act(self._scan())

    async def _scan(self):
        await self.presence.beacon(self.clock.time())
        await self.detector.scan()

    @rule()
    def send(self):
        self.act(self.sender.send_once())

    @rule()
    def save(self):
        self.act(self._save())

    async def _save(self):
        with contextlib.suppress(PresenceError):
            await self.presence.save()

    @rule()
    def die(self):
        self.start()

    @invariant()
    def each_agents_events_alternate_with_rising_seq(self):
        for agent in AGENTS:
            mine = [event for event in self.hub.events if event.agent_id == agent.agent_id]
            kinds = [event.type for event in mine if event.reason not in REPEATS]
            expected = itertools.cycle([EventType.AGENT_DOWN, EventType.AGENT_UP])
            assert kinds == list(itertools.islice(expected, len(kinds)))
            assert all(a.seq < b.seq for a, b in itertools.pairwise(mine))

    def teardown(self):
        self.fuse.light(None, None)
        for _ in range(4):
            self.clock.advance(1.0)
            self.runner.run(self._scan())
            while self.runner.run(self.outbox.stats(0.0)).depth:
                self.runner.run(self.sender.send_once())
        assert self.runner.run(self.presence.pending_count()) == 0
        assert self.runner.run(self.outbox.dead_letters()) == []
        down = sum(row.state == "down" for row in self.runner.run(self.presence.agents()))
        assert self.runner.run(self.presence.counts()).down == down
        shown = {row.agent.agent_id: row.state for row in self.runner.run(self.presence.agents())}
        for agent in AGENTS:
            mine = [event for event in self.hub.events if event.agent_id == agent.agent_id]
            down = bool(mine) and mine[-1].type is EventType.AGENT_DOWN
            assert down == (shown.get(agent.agent_id) == "down"), "a transition was lost"
        self.runner.run(self.outbox.close())
        self.runner.close()
        shutil.rmtree(self.directory)


class StagedCrashMachine(CrashMachine):
    """The same with silences and groups in between, their states in a file too."""

    store = None
    silences = silences_in_force(())

    async def stage(self, outbox):
        if self.store is not None:
            await self.store.close()
        self.store = await FileAlertStateStore.open(self.directory / "states")
        ids = self.numbers
        return AgentEventStage(
            presence=Wired(self.presence, self.fuse, PresenceError("injected")),
            store=Wired(self.store, self.fuse, AlertStateError("injected")),
            outbox=outbox,
            clock=self.clock,
            event_ids=lambda: f"018bcfe5-6800-7000-8000-{next(ids):012x}",
            silences=lambda: self.silences,
            settings=lambda _: group_settings(2, 0.5, 20.0),
        )

    @rule(servers=st.sampled_from([None, ("s0",), ("s0", "s1")]))
    def hush(self, servers):
        found = [] if servers is None else [silence(*servers)]
        self.silences = silences_in_force(found)

    @invariant()
    def each_id_comes_once_and_each_group_rises(self):
        newest = {}
        for event in self.hub.events:
            assert event.seq > newest.get(event_key(event), 0)
            newest[event_key(event)] = event.seq

    def teardown(self):
        self.silences = silences_in_force(())
        super().teardown()
        asyncio.run(self.store.close())
        heard = {e.agent_id: e for e in self.hub.events if not e.suppressed}
        groups = {e.group_key: e for e in self.hub.events if e.type.is_group and not e.suppressed}
        members = {
            agent_id
            for group in groups.values()
            if group.type is EventType.GROUP_DOWN
            for agent_id in group.labels["members"]
        }
        for agent in AGENTS:
            mine = [event for event in self.hub.events if event.agent_id == agent.agent_id]
            if mine and mine[-1].type is EventType.AGENT_DOWN:
                told = heard.get(agent.agent_id)
                is_told = told is not None and told.type is EventType.AGENT_DOWN
                assert is_told or agent.agent_id in members, "is down, and nobody was told"


BOUNDS = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@attrs.frozen(kw_only=True)
class Outcome:
    """What the hub has at the end, and how many steps there were to die at."""

    events: tuple
    steps: int


def life(at, what, kind):
    """One agent goes down and comes up; at one step of it something happens."""
    machine = kind()
    steps = itertools.count()

    def burn():
        if next(steps) != at:
            return
        if what == "cancelled":
            machine.cancel()
        else:
            raise Crash if what == "killed" else InjectedError

    # The agent itself is no part of this: the registry would make it known again.
    machine.hear(AGENTS[0])
    machine.save()
    machine.fuse.burn = burn
    for _ in range(7):
        machine.clock.advance(6.0)
        machine.scan()
        if machine.runner.run(machine.outbox.stats(0.0)).depth:
            machine.send()
    machine.save()
    machine.hear(AGENTS[0])
    for _ in range(3):
        machine.clock.advance(1.0)
        machine.scan()
        machine.send()
    count = next(steps)
    machine.fuse.burn = lambda: None
    # A crash may have forgotten the contact itself: the agent's next batch comes.
    machine.hear(AGENTS[0])
    machine.teardown()
    return Outcome(events=tuple(machine.hub.events), steps=count)
