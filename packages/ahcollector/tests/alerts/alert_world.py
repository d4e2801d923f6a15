"""A collector's alerts from the stream to the hub, and its death at any step."""

import json
import random

from lit_fuse import Crash, Fuse, InjectedError, Wired

from ahcollector.alerts import (
    AlertEngine,
    AlertSettings,
    MemoryAlertStateStore,
    rules_in_force,
    silences_in_force,
)
from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.errors import AlertStateError, OutboxError, TemporaryHubError, TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import MemoryOutbox, OutboxSender
from ahcollector.testing import FakeClock, FakeHub
from ahwire import UUID7Generator
from ahwire.hub import Silence, ThresholdRule

START = 1_800_000_000.0


def rule(rule_id="hot", **fields):
    known = {"version": 1, "metric": "ah_heat", "op": "gt", "threshold": 50, "severity": "warning"}
    return ThresholdRule.from_json(json.dumps({"rule_id": rule_id, **known, **fields}).encode())


def patient(**fields):
    return rule(for_seconds=20, keep_firing_seconds=20, resolve_threshold=45, **fields)


def silence(silence_id="s1", *, starts=0, ends=None, **fields):
    known = {"company_id": "acme", "matchers": [], "all": True, "starts_at": moment(starts)}
    if ends is not None:
        known["ends_at"] = moment(ends)
    return Silence.from_json(json.dumps({"silence_id": silence_id, **known, **fields}).encode())


def moment(offset):
    from datetime import UTC, datetime

    return datetime.fromtimestamp(START + offset, UTC).isoformat()


def batch(at, value=None, *, server="web-1", company="acme", metric="ah_heat", **points):
    """A batch of one point of a metric, or of several metrics by name."""
    values = points if value is None else {metric: value, **points}
    return SampleBatch(
        company_id=company,
        server_id=server,
        agent_id=f"agent-{server}",
        request_id=f"r{at}",
        received_at_ms=int((START + at) * 1000),
        series=tuple(
            StoredSeries(
                labels=(("__name__", name), ("company_id", company), ("server_id", server)),
                points=((int((START + at) * 1000), float(number)),),
            )
            for name, number in values.items()
        ),
    )


class World:
    """One company's alerts; `start` is a new process over the same store and outbox."""

    def __init__(self, *rules, store=None, outbox=None, **options):
        self.clock = FakeClock(START)
        self.rng = random.Random(5)
        self.ids = UUID7Generator(self.clock, self.rng)
        self.fuse = Fuse()
        self.hub = FakeHub()
        self.store = store if store is not None else MemoryAlertStateStore()
        self.outbox = outbox if outbox is not None else MemoryOutbox()
        self.settings = options.pop("settings", AlertSettings())
        self.options = options
        self.rules = rules_in_force(rules)
        self.silences = silences_in_force(())
        self.shown = []
        self.start()

    def start(self):
        self.metrics = PrometheusMetrics()
        outbox = Wired(self.outbox, self.fuse, OutboxError("injected"))
        self.engine = AlertEngine(
            rules=lambda: self.rules,
            silences=lambda: self.silences,
            store=Wired(self.store, self.fuse, AlertStateError("injected")),
            outbox=outbox,
            clock=self.clock,
            event_ids=self.ids.next,
            settings=self.settings,
            metrics=self.metrics,
            **self.options,
        )
        self.sender = OutboxSender(
            outbox=outbox,
            hub=Wired(self.hub, self.fuse, TemporaryHubError("injected")),
            clock=self.clock,
            rng=self.rng,
            batch_max=3,
        )

    @property
    def now(self):
        return self.clock.time() - START

    def put(self, *rules):
        self.rules = rules_in_force(rules)

    def hush(self, *silences):
        self.silences = silences_in_force(silences)

    async def show(self, *batches):
        await self.engine.observed(batches)

    async def feed(self, values, *, every=10, **where):
        """Show a point each so many seconds, with a tick behind each."""
        for value in values:
            self.clock.advance(every)
            if value is not None:
                await self.show(batch(self.now, value, **where))
            await self.engine.tick()

    async def events(self):
        return [entry.event for entry in await self.outbox.peek(100_000)]

    async def told(self):
        """What the outbox has: (type, reason or why it is suppressed) of each."""
        return [
            (event.type.value.partition(".")[2], event.suppress_reason or event.reason)
            for event in await self.events()
        ]

    def metric(self, line):
        return value_of(self.metrics, line)


def owner(world, tenures, *, metrics=None, **options):
    """Another process over the same store and outbox, with shards and what it has each by."""
    lists = {"rules": lambda: world.rules, "silences": lambda: world.silences}
    return AlertEngine(
        store=world.store,
        outbox=world.outbox,
        clock=world.clock,
        event_ids=world.ids.next,
        tenures=lambda: tenures,
        settings=world.settings,
        metrics=metrics if metrics is not None else PrometheusMetrics(),
        **(lists | options),
    )


def value_of(metrics, line):
    """The value of a line of the exposition; None: it is not there."""
    found = [
        text.rpartition(" ")[2]
        for text in metrics.exposition().decode().splitlines()
        if text.startswith(f"{line} ")
    ]
    return float(found[0]) if found else None


__all__ = [
    "START",
    "Crash",
    "Fuse",
    "InjectedError",
    "TemporaryStoreError",
    "Wired",
    "World",
    "batch",
    "moment",
    "owner",
    "patient",
    "rule",
    "silence",
    "value_of",
]
