"""One ingest application with everything around it, all real but the hub and the bus."""

import random
import sys
from pathlib import Path

import httpx
import pytest

from ahcollector.bus.base import SampleBatch
from ahcollector.enroll import EnrollProxy, Renewal
from ahcollector.errors import BusFull
from ahcollector.ingest import IngestLimits, SeriesBudget, ingest_app
from ahcollector.metrics import PrometheusMetrics
from ahcollector.presence.memory import MemoryPresence
from ahcollector.registry import (
    CompanySettingsCache,
    Directory,
    MemoryRegistry,
    NegativeCache,
    Resolver,
)
from ahcollector.testing import FakeClock, FakeHub
from ahwire import UUID7Generator
from ahwire.agent_pb2 import MetricsAck, MetricsBatch, Point, Series
from ahwire.codec import compress

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the tests

TOKEN = "canary-token-1f9c0a"


class ListBus:
    """Keeps what was published; has room until `full` is set."""

    def __init__(self):
        self.batches: list[SampleBatch] = []
        self.full = False

    async def publish(self, batch):
        if self.full:
            raise BusFull("shard 3 holds 256 batches")
        self.batches.append(batch)

    def depth(self):
        return {3: len(self.batches)}


class World:
    def __init__(self, *, limits=None, hub=True, budget=None, clock=None, **app):
        self.clock = clock or FakeClock(1_790_000_000.0)
        self.hub = FakeHub()
        self.bus = ListBus()
        self.metrics = PrometheusMetrics()
        self.registry = MemoryRegistry()
        self.negative = NegativeCache()
        self.presence = MemoryPresence(event_ids=UUID7Generator(self.clock, random.Random(1)).next)
        limits = limits or IngestLimits()
        if budget is None:  # An empty one is false.
            budget = SeriesBudget(
                per_hour=limits.series_per_hour, first_hour=limits.series_first_hour
            )
        self.directory = Directory(
            registry=self.registry,
            presence=self.presence,
            negative=self.negative,
            clock=self.clock,
            followers=(budget,),
        )
        self.resolver = Resolver(
            registry=self.registry,
            directory=self.directory,
            hub=self.hub if hub else None,
            negative=self.negative,
            clock=self.clock,
            metrics=self.metrics,
        )
        self.settings = CompanySettingsCache(hub=self.hub if hub else None, clock=self.clock)
        self.app = ingest_app(
            resolver=self.resolver,
            presence=self.presence,
            bus=self.bus,
            settings=self.settings,
            hub=self.hub if hub else None,
            enroll=EnrollProxy(hub=self.hub, directory=self.directory, metrics=self.metrics)
            if hub
            else None,
            renewal=Renewal(hub=self.hub, directory=self.directory) if hub else None,
            budget=budget,
            limits=limits,
            clock=self.clock,
            rng=random.Random(2),
            metrics=self.metrics,
            **app,
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app, client=("192.0.2.7", 4000)),
            base_url="http://collector",
        )
        self.token = TOKEN
        self.seq = 0

    @property
    def now_ms(self):
        return round(self.clock.time() * 1000)

    def headers(self, token=TOKEN, **more):
        return {
            "Authorization": f"Bearer {token}",
            "X-AH-Proto": "1",
            "Content-Type": "application/x-protobuf",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }

    def batch(self, *series, **fields):
        self.seq += 1
        return MetricsBatch(seq=self.seq, series=series, **fields)

    def series(self, name="cpu_usage", value=1.0, labels=(), ts_ms=None):
        stamp = self.now_ms if ts_ms is None else ts_ms
        return Series(
            name=name,
            labels=[{"name": key, "value": text} for key, text in labels],
            points=[Point(ts_ms=stamp, value=value)],
        )

    async def send(self, batch, *, token=TOKEN, coding="gzip", **more):
        body = batch if isinstance(batch, bytes) else batch.SerializeToString()
        if coding:
            body = compress(body, coding)
            more["Content_Encoding"] = coding
        return await self.client.post(
            "/agent/v1/metrics", content=body, headers=self.headers(token, **more)
        )


def ack_of(response) -> MetricsAck:
    return MetricsAck.FromString(response.content)


@pytest.fixture
def ack():
    return ack_of


@pytest.fixture
def make_world():
    return World


@pytest.fixture
def world():
    made = World()
    made.hub.active("agent-1", TOKEN)
    return made
