"""What was deleted does not come back from the bus, from dead letters or from a write again."""

import random

import anyio
import pytest
from forgetful_world import settle

from ahcollector.bus import InProcessBus
from ahcollector.departures import Departure, MemoryDepartures, Sieve, SparingWriter
from ahcollector.errors import PermanentStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.store import MemoryStore
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import MemoryDeadBatches, Worker, replay_dead_batches

pytestmark = [pytest.mark.anyio, pytest.mark.fault]
START = 1_790_000_000.0


class Forgetful:
    """A memory store that may be killed, and that refuses what it is told to."""

    def __init__(self, clock):
        self.clock = clock
        self.lives = 0
        self.refuses = False
        self.kill()

    def kill(self):
        self.lives += 1
        self.store = MemoryStore(clock=self.clock)

    async def epoch(self):
        return str(self.lives)

    async def write(self, batches):
        if self.refuses:
            raise PermanentStoreError("400")
        await self.store.write(batches)

    async def delete_server(self, company_id, server_id):
        return await self.store.delete_server(company_id, server_id)

    async def delete_company(self, company_id):
        return await self.store.delete_company(company_id)

    async def servers(self):
        return {dict(one.labels)["server_id"] for one in await self.store.series("acme")}


class World:
    def __init__(self):
        self.clock = FakeClock(START)
        self.bus = InProcessBus(clock=self.clock)
        self.store = Forgetful(self.clock)
        self.dead = MemoryDeadBatches()
        self.metrics = PrometheusMetrics()
        self.departures = MemoryDepartures()
        self.sieve = Sieve(departures=self.departures, is_known=self.is_known, clock=self.clock)

    async def is_known(self, batch):
        return False

    async def __aenter__(self):
        worker = Worker(
            bus=self.bus,
            store=SparingWriter(
                writer=self.store, deleter=self.store, sieve=self.sieve, metrics=self.metrics
            ),
            restarts=self.store,
            clock=self.clock,
            rng=random.Random(1),
            dead_batches=self.dead,
            metrics=self.metrics,
            shutdown_flush_seconds=0.1,
        )
        self._tasks = anyio.create_task_group()
        tasks = await self._tasks.__aenter__()
        tasks.start_soon(worker.run)
        return self

    async def __aexit__(self, *error):
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(*error)

    async def publish(self, number, *, server="web-1"):
        """Publish what is received now."""
        now_ms = int(self.clock.time() * 1000)
        one = batch_of(number, server_id=server)
        series = tuple(
            type(each)(labels=each.labels, points=((now_ms, 1.0),)) for each in one.series
        )
        fields = {name: getattr(one, name) for name in ("company_id", "agent_id", "request_id")}
        await self.bus.publish(
            type(one)(server_id=server, received_at_ms=now_ms, series=series, **fields)
        )

    async def delete(self, server="web-1"):
        await self.departures.note(
            Departure(company_id="acme", server_id=server, at=self.clock.time(), keeps_series=False)
        )
        await self.store.delete_server("acme", server)

    async def wait(self, seconds):
        for _ in range(round(seconds * 2)):
            await settle()
            self.clock.advance(0.5)
        await settle()

    @property
    def dropped(self):
        return (
            self.metrics.registry.get_sample_value(
                "ahc_tsdb_batches_dropped_total", {"reason": "deleted"}
            )
            or 0
        )


async def test_batches_that_wait_on_the_bus_are_dropped_and_acknowledged():
    """C18: accepted before the deletion, and taken up after it."""
    world = World()
    await world.publish(1)
    await world.publish(2, server="web-2")
    world.clock.advance(1)
    await world.delete()
    async with world:
        await world.wait(2)
        assert await world.store.servers() == {"web-2"}
        assert world.dropped == 1
        await world.wait(30)
        world.clock.advance(60)
        await world.publish(3)
        await world.wait(30)
        assert await world.store.servers() == {"web-1", "web-2"}
        assert sum(world.bus.depth().values()) == 0
    assert world.dropped == 1


async def test_what_is_written_again_after_the_store_was_started_again_is_dropped():
    """C18: written, held until durable, deleted, and then the store loses its last seconds."""
    world = World()
    async with world:
        await world.publish(1)
        await world.publish(2, server="web-2")
        await world.wait(2)
        assert await world.store.servers() == {"web-1", "web-2"}
        await world.delete()
        world.store.kill()
        await world.wait(10)
        assert await world.store.servers() == {"web-2"}
        assert world.dropped == 1


async def test_dead_letters_of_who_was_deleted_do_not_come_back_when_they_are_replayed():
    """C18: a letter keeps the time at which its batch was received."""
    world = World()
    async with world:
        world.store.refuses = True
        await world.publish(1)
        await world.publish(2, server="web-2")
        await world.wait(2)
        assert await world.dead.count() == 2
        world.store.refuses = False
        await world.delete()
        world.clock.advance(29 * 86_400)
        assert await replay_dead_batches(world.dead, world.bus.publish) == 2
        await world.wait(2)
        assert world.dropped == 1
        assert await world.dead.count() == 0
