"""A hub that asks to wait for ever: whoever asks it in a loop comes back at its usual pace.

The sender, whose waits are a backoff, has its own tests (outbox/test_sender.py).
"""

import itertools

import anyio
import pytest

from ahcollector.alerts import RulePuller, SilencePuller
from ahcollector.alerts.kept import MemoryKeptLists
from ahcollector.detector import Reporter
from ahcollector.errors import HubUnavailableError, TemporaryHubError
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import MemoryPresence
from ahcollector.registry import (
    CompanySettingsCache,
    Directory,
    FullSync,
    MemoryRegistry,
    NegativeCache,
    Resolver,
    Syncer,
)
from ahcollector.testing import FakeClock, FakeHub

pytestmark = pytest.mark.anyio

ROUNDS = 10


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.hub = FakeHub()
        numbers = itertools.count(1)
        self.presence = MemoryPresence(
            event_ids=lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"
        )
        self.registry = MemoryRegistry()
        self.negative = NegativeCache()
        self.directory = Directory(
            registry=self.registry,
            presence=self.presence,
            clock=self.clock,
            negative=self.negative,
        )
        self.hub.fails = TemporaryHubError("503", status=503, retry_after_seconds=3600.0)

    def rules(self):
        return RulePuller(hub=self.hub, kept=MemoryKeptLists(), clock=self.clock).run

    def silences(self):
        return SilencePuller(hub=self.hub, kept=MemoryKeptLists(), clock=self.clock).run

    def sync(self):
        return Syncer(
            hub=self.hub, registry=self.registry, directory=self.directory, clock=self.clock
        ).run

    def full_sync(self):
        return FullSync(
            hub=self.hub,
            registry=self.registry,
            directory=self.directory,
            clock=self.clock,
            claim_seconds=50,
        ).run

    def reporter(self):
        return Reporter(
            presence=self.presence,
            hub=self.hub,
            outbox=MemoryOutbox(),
            clock=self.clock,
            collector_id="c",
            version="1",
        ).run

    def company_settings(self):
        cache = CompanySettingsCache(hub=self.hub, clock=self.clock)
        cache.current("acme")
        return cache.run


@pytest.mark.parametrize(
    "who", ["rules", "silences", "sync", "full_sync", "reporter", "company_settings"]
)
async def test_whoever_asks_in_a_loop_comes_back_at_its_usual_pace(who):
    world = World()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(getattr(world, who)())
        await world.clock.run_for(60.0 * ROUNDS)
        tasks.cancel_scope.cancel()
    assert ROUNDS - 1 <= len(world.hub.calls) <= 2 * ROUNDS + 2


async def test_a_token_that_cannot_be_judged_is_tried_again_in_half_a_minute():
    world = World()
    resolver = Resolver(
        registry=world.registry,
        directory=world.directory,
        hub=world.hub,
        negative=world.negative,
        clock=world.clock,
    )
    with pytest.raises(HubUnavailableError) as caught:
        await resolver.resolve("0" * 64)
    assert caught.value.retry_after_seconds == 30.0
    world.hub.fails = None
    assert await resolver.resolve("0" * 64) is None
