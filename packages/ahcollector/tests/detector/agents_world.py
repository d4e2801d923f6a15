"""A company's agents from their contacts to the outbox, through silences and groups."""

import json
import random
from datetime import UTC, datetime

from ahcollector.alerts import MemoryAlertStateStore, silences_in_force
from ahcollector.detector import AgentEventStage, Detector
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.testing import FakeClock
from ahwire import UUID7Generator
from ahwire.hub import GroupDownSettings, Silence

START = 1_800_000_000.0
THRESHOLD = 9.0


def agent(number, company="acme"):
    return AgentRef(agent_id=f"a{number}", company_id=company, server_id=f"s{number}")


def group_settings(least=3, ratio=0.3, window_seconds=60.0, *, enabled=True):
    return GroupDownSettings(enabled=enabled, min=least, ratio=ratio, window_seconds=window_seconds)


def moment(offset):
    return datetime.fromtimestamp(START + offset, UTC).isoformat()


def silence(*servers, silence_id="s1", starts=0, ends=None, **fields):
    """A silence of some servers; of all when none is named."""
    matchers = [{"label": "server_id", "op": "re", "value": "|".join(servers)}] if servers else []
    known = {
        "silence_id": silence_id,
        "company_id": "acme",
        "matchers": matchers,
        "all": not servers,
        "starts_at": moment(starts),
    }
    if ends is not None:
        known["ends_at"] = moment(ends)
    return Silence.from_json(json.dumps(known | fields).encode())


def words(event):
    """What is told of an event, shortly: a1.down, a1.up:silence:s1, group.down, a1.down!reason."""
    name = event.type.value if event.type.is_group else f"{event.agent_id}.{event.type.value[6:]}"
    if event.suppressed:
        return f"{name}:{event.suppress_reason}"
    return name if event.reason in (None, "never_reported") else f"{name}!{event.reason}"


class World:
    """`start` is a new process over the same presence, store and outbox."""

    def __init__(self, agents=10, *, store=None, **options):
        self.clock = FakeClock(START)
        self.ids = UUID7Generator(self.clock, random.Random(5))
        self.agents = [agent(number) for number in range(agents)]
        self.store = store if store is not None else MemoryAlertStateStore()
        self.outbox = MemoryOutbox()
        self.silences = silences_in_force(())
        self.settings = group_settings()
        self.options = options
        self.deaf = set()
        self.presence = MemoryPresence(
            event_ids=self.ids.next, down_min_seconds=THRESHOLD, default_interval_seconds=3.0
        )
        self.start()

    def start(self):
        self.metrics = PrometheusMetrics()
        self.stage, self.detector = self.process()

    def process(self, **options):
        stage = AgentEventStage(
            presence=self.presence,
            store=self.store,
            outbox=self.outbox,
            clock=self.clock,
            event_ids=self.ids.next,
            silences=lambda: self.silences,
            settings=lambda _: self.settings,
            metrics=self.metrics,
            **self.options | options,
        )
        detector = Detector(
            presence=self.presence,
            outbox=self.outbox,
            clock=self.clock,
            metrics=self.metrics,
            agent_interval_seconds=3.0,
            scan_interval_seconds=1.0,
            blind_grace_max_seconds=1.0,
            stage=stage,
        )
        return stage, detector

    @property
    def now(self):
        return self.clock.time() - START

    def hush(self, *silences):
        self.silences = silences_in_force(silences)

    async def wait(self, seconds):
        """Let seconds pass; whoever is not deaf speaks each second, and there is a scan."""
        for _ in range(seconds):
            self.clock.advance(1)
            await self.presence.beacon(self.clock.time())
            for ref in self.agents:
                if ref.agent_id not in self.deaf:
                    await self.presence.touch(ref, self.clock.time(), None)
            await self.detector.scan()

    async def lose(self, *numbers):
        """These fall silent, and are found to be."""
        self.deaf |= {f"a{number}" for number in numbers}
        await self.wait(11)

    async def find(self, *numbers):
        """These are heard again."""
        self.deaf -= {f"a{number}" for number in numbers}
        await self.wait(1)

    async def events(self):
        return [entry.event for entry in await self.outbox.peek(100_000)]

    async def told(self):
        """What is in the outbox, which is emptied."""
        events = await self.events()
        await self.outbox.ack([event.event_id for event in events], None)
        return [words(event) for event in events]

    def metric(self, line):
        found = [
            text.rpartition(" ")[2]
            for text in self.metrics.exposition().decode().splitlines()
            if text.startswith(f"{line} ")
        ]
        return float(found[0]) if found else None
