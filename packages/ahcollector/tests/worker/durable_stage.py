"""What the tests of a worker between real services share with the processes they start."""

import json
import random

import anyio
import attrs

from ahcollector.bus.redis import RedisBus
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.store import Aggregate
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import Worker

SERVERS = [f"server-{n}" for n in range(20)]
# Real times, shortened. VictoriaMetrics keeps its own: a kill costs what is younger than 12 s.
BUS = {
    "block_seconds": 0.05,
    "lease_seconds": 1.5,
    "claim_idle_seconds": 1.0,
    "sample_seconds": 0.05,
    "retry_seconds": 0.02,
    "queue_batches_max": 100_000,
}
WORKER = {"flush_seconds": 0.05, "retry_max_seconds": 0.5, "shutdown_flush_seconds": 2.0}


def client_of(port, prefix):
    return RedisClient(config=RedisConfig(port=port, prefix=prefix, timeout_seconds=5.0))


def store_of(url):
    return VictoriaMetricsStore(url=url, step_seconds_min=1, timeout_seconds=3.0)


class LedgerWriter:
    """Writes to a store, and notes in Redis what it took."""

    def __init__(self, store, client, name):
        self.store = store
        self.client = client
        self.name = name

    async def write(self, batches):
        await self.store.write(batches)
        lines = [
            json.dumps(
                {"by": self.name, "server": one.server_id, "number": int(one.request_id, 16)}
            )
            for one in batches
        ]
        await self.client.call("RPUSH", self.client.key("ledger"), *lines)


def worker_of(client, store, *, name, durable_after_seconds):
    return Worker(
        bus=RedisBus(client=client, **BUS),
        store=LedgerWriter(store, client, name),
        restarts=store,
        durable_after_seconds=durable_after_seconds,
        clock=store._clock,
        rng=random.Random(name),
        **WORKER,
    )


class Stage:
    """One who publishes, and asks what became of it.

    Sample n is of the n-th second after `t0` and has the value n; its server is one in turn.
    """

    def __init__(self, *, client, store, company_id, t0_ms):
        self.client = client
        self.company_id = company_id
        self.store = store
        self.t0_ms = t0_ms
        self.bus = RedisBus(client=client, **BUS)
        self.published = 0

    async def publish(self, count):
        for number in range(self.published, self.published + count):
            server_id = SERVERS[number % len(SERVERS)]
            batch = batch_of(number, server_id=server_id, company_id=self.company_id)
            [series] = batch.series
            points = ((self.t0_ms + number * 1_000, float(number)),)
            with anyio.CancelScope(shield=True):
                await self.bus.publish(
                    attrs.evolve(batch, series=(attrs.evolve(series, points=points),))
                )
                self.published += 1

    async def readable(self):
        """Return number and how often it is stored, of all samples."""
        await self.store.flush()
        found = {}
        for server in SERVERS:
            for series in await self.store.range(
                self.company_id,
                server,
                "cpu_percent",
                start_ms=self.t0_ms,
                end_ms=self.t0_ms + self.published * 1_000,
                step_ms=1_000,
                aggregate=Aggregate.COUNT,
            ):
                found |= {(at - self.t0_ms) // 1_000: count for at, count in series.points}
        return found

    def everything_once(self):
        return dict.fromkeys(range(self.published), 1.0)

    async def on_the_bus(self):
        keys = [self.client.key("bus", "s", str(shard)) for shard in range(64)]
        return sum(await self.client.pipeline([("XLEN", key) for key in keys]))

    async def ledger(self):
        rows = await self.client.call("LRANGE", self.client.key("ledger"), 0, -1)
        return [json.loads(row) for row in rows]

    async def all_written(self, seconds=20):
        with anyio.fail_after(seconds):
            while {line["number"] for line in await self.ledger()} < set(range(self.published)):
                await anyio.sleep(0.02)

    async def all_acknowledged(self, seconds=40):
        with anyio.fail_after(seconds):
            while await self.on_the_bus():
                await anyio.sleep(0.05)
