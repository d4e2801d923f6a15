"""Registry, presence and a hub in memory."""

import random

import pytest

from ahcollector.departures import MemoryDepartures
from ahcollector.metrics import PrometheusMetrics
from ahcollector.presence.memory import MemoryPresence
from ahcollector.registry import (
    Directory,
    MemoryRegistry,
    NegativeCache,
    Resolver,
    Syncer,
)
from ahcollector.testing import FakeClock, FakeHub
from ahwire import UUID7Generator


class Known:
    def __init__(self):
        self.clock = FakeClock(1_790_000_000.0)
        self.hub = FakeHub()
        self.metrics = PrometheusMetrics()
        self.registry = MemoryRegistry()
        self.negative = NegativeCache()
        self.presence = MemoryPresence(event_ids=UUID7Generator(self.clock, random.Random(1)).next)
        self.departures = MemoryDepartures()
        self.directory = Directory(
            registry=self.registry,
            presence=self.presence,
            negative=self.negative,
            clock=self.clock,
            departures=self.departures,
        )
        self.resolver = self.make_resolver()
        self.syncer = Syncer(
            hub=self.hub,
            registry=self.registry,
            directory=self.directory,
            clock=self.clock,
            metrics=self.metrics,
        )

    def make_resolver(self, **options):
        return Resolver(
            **{
                "registry": self.registry,
                "directory": self.directory,
                "hub": self.hub,
                "negative": self.negative,
                "clock": self.clock,
                "metrics": self.metrics,
                **options,
            }
        )

    def lookups(self, result):
        value = self.metrics.registry.get_sample_value(
            "ahc_registry_lookups_total", {"result": result}
        )
        return value or 0.0


@pytest.fixture
def known():
    return Known()
