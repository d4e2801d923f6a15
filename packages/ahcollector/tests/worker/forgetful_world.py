"""A worker, an in-process bus, and a store that forgets its last seconds when it is killed."""

import random

import anyio
import anyio.lowlevel

from ahcollector.bus import InProcessBus, shard_for
from ahcollector.errors import PermanentStoreError, TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import MemoryDeadBatches, Worker

AFTER = 15.0
DURABLE = {"durable_after_seconds": AFTER, "shutdown_flush_seconds": 0}
SERVERS = [f"server-{n}" for n in range(3)]


class QuickClock(FakeClock):
    """Lets tasks run for some turns of the loop after each step, and not until all of them wait.

    What is not done by then sees the clock go on meanwhile, as on a busy machine.
    """

    async def run_for(self, seconds):
        end = self.monotonic() + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.advance(max(0.0, self._sleepers[0][0] - self.monotonic()))
            await settle()
        self.advance(max(0.0, end - self.monotonic()))
        await settle()


async def settle():
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


class ForgetfulStore:
    """Takes samples, and at its end loses those of its last 15 seconds.

    A write takes time, and its parts arrive at the beginning and at the end of that: a restart in
    between costs the first part, and the whole succeeds. An answer about the epoch is as of the
    middle of the time that it takes.
    """

    def __init__(self, clock, *, write_seconds=0.0, ask_seconds=0.0):
        self.clock = clock
        self.write_seconds = write_seconds
        self.ask_seconds = ask_seconds
        self.life = 1
        self.is_up = True
        self.tells = True
        self.kept = set()
        self.fresh = []
        self.writes = []
        self.poison = set()
        self.asked = 0

    def age(self):
        """Keep what is old enough."""
        limit = self.clock.monotonic() - AFTER
        self.kept |= {number for at, number in self.fresh if at <= limit}
        self.fresh = [(at, number) for at, number in self.fresh if at > limit]

    def kill(self):
        self.age()
        self.fresh = []
        self.is_up = False

    def start(self):
        if not self.is_up:
            self.life += 1
            self.is_up = True

    def has(self):
        self.age()
        return self.kept | {number for _, number in self.fresh}

    def _take(self, numbers):
        if not self.is_up:
            raise TemporaryStoreError("connection refused")
        self.fresh += [(self.clock.monotonic(), number) for number in numbers]

    async def write(self, batches):
        numbers = [int(batch.request_id, 16) for batch in batches]
        if self.poison & set(numbers):
            raise PermanentStoreError("refused")
        self._take(numbers[::2])
        await self.clock.sleep(self.write_seconds)
        self._take(numbers[1::2])
        self.writes.append(numbers)

    async def epoch(self):
        self.asked += 1
        await self.clock.sleep(self.ask_seconds / 2)
        life, told = self.life, self.is_up and self.tells
        await self.clock.sleep(self.ask_seconds / 2)
        if not told:
            raise TemporaryStoreError("no answer")
        return str(life)


class World:
    def __init__(self, *, write_seconds=0.0, ask_seconds=0.0, wrap=lambda store: store, **settings):
        self.wrap = wrap
        self.clock = QuickClock()
        self.bus = InProcessBus(clock=self.clock, queue_batches_max=100_000)
        self.store = ForgetfulStore(
            self.clock, write_seconds=write_seconds, ask_seconds=ask_seconds
        )
        self.dead = MemoryDeadBatches()
        self.metrics = PrometheusMetrics()
        self.settings = settings
        self.published = []
        self.tasks = None
        self.new_worker()

    def new_worker(self):
        self.worker = Worker(
            bus=self.bus,
            store=self.wrap(self.store),
            clock=self.clock,
            rng=random.Random(1),
            dead_batches=self.dead,
            metrics=self.metrics,
            shards={shard_for(server) for server in SERVERS},
            **DURABLE | {"restarts": self.store} | self.settings,
        )

    async def __aenter__(self):
        self.tasks = anyio.create_task_group()
        await self.tasks.__aenter__()
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.tasks.start_soon(self._work)
        await settle()
        return self

    async def __aexit__(self, *error):
        self.tasks.cancel_scope.cancel()
        return await self.tasks.__aexit__(*error)

    async def _work(self):
        with self.scope:
            await self.worker.run()
        self.ended.set()

    async def replace_worker(self):
        """Cancel it wherever it is, and start another one."""
        self.scope.cancel()
        await self.ended.wait()
        self.new_worker()
        self.scope, self.ended = anyio.CancelScope(), anyio.Event()
        self.tasks.start_soon(self._work)
        await settle()

    async def publish(self, count=1):
        for _ in range(count):
            number = len(self.published)
            self.published.append(number)
            await self.bus.publish(batch_of(number, server_id=SERVERS[number % len(SERVERS)]))

    async def wait(self, seconds):
        await self.clock.run_for(seconds)

    def unacknowledged(self):
        entries = [
            entry
            for shard in self.bus._shards
            for entry in [*shard.waiting, *shard.again, *shard.held.values()]
        ]
        return {int(entry.batch.request_id, 16) for entry in entries}

    def acknowledged(self):
        return set(self.published) - self.unacknowledged()

    def check(self):
        """What is acknowledged survives a kill at this very moment."""
        self.store.age()
        assert self.acknowledged() <= self.store.kept

    def sample(self, name, labels=None):
        return self.metrics.registry.get_sample_value(name, labels or {})
