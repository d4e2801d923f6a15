"""A process that takes batches from the bus in Redis and judges a rule; run by the tests.

python alerting_process.py PORT PREFIX

What it writes it also notes in the list `written` of that Redis, as SERVER/REQUEST.
"""

import json
import sys
from random import SystemRandom

import anyio

from ahcollector.alerts import (
    AlertEngine,
    AlertSettings,
    ObservingWriter,
    rules_in_force,
    silences_in_force,
)
from ahcollector.alerts.redis import RedisAlertStateStore
from ahcollector.bus.redis import RedisBus
from ahcollector.clock import SystemClock
from ahcollector.departures import Sieve, SparingWriter
from ahcollector.departures.redis import RedisDepartures
from ahcollector.outbox.redis import RedisOutbox
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry.redis import RedisRegistry
from ahcollector.store import MemoryStore
from ahcollector.worker import Worker
from ahwire import UUID7Generator
from ahwire.hub import ThresholdRule

RULE = {
    "rule_id": "hot",
    "version": 1,
    "metric": "ah_heat",
    "op": "gt",
    "threshold": 50,
    "severity": "warning",
}


class NotedStore(MemoryStore):
    """Tells in Redis what it was given."""

    def __init__(self, client, **options):
        super().__init__(**options)
        self._client = client

    async def write(self, batches):
        words = [f"{batch.server_id}/{batch.request_id}" for batch in batches]
        await self._client.call("RPUSH", self._client.key("written"), *words)
        await super().write(batches)


async def main(port, prefix):
    clock = SystemClock()
    client = RedisClient(config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=5))
    bus = RedisBus(client=client, lease_seconds=1.5, block_seconds=0.1, claim_idle_seconds=1.0)
    registry = RedisRegistry(client=client)

    async def is_known(batch):
        return await registry.get(batch.agent_id) is not None

    sieve = Sieve(departures=RedisDepartures(client=client), is_known=is_known, clock=clock)
    rules = rules_in_force([ThresholdRule.from_json(json.dumps(RULE).encode())])
    silences = silences_in_force([])
    engine = AlertEngine(
        rules=lambda: rules,
        silences=lambda: silences,
        store=RedisAlertStateStore(client=client),
        outbox=RedisOutbox(client=client),
        clock=clock,
        event_ids=UUID7Generator(clock, SystemRandom()).next,
        tenures=bus.tenures,
        sieve=sieve,
        settings=AlertSettings(flapping=None),
        tick_interval_seconds=0.3,
        state_interval_seconds=0.5,
    )
    store = NotedStore(client, clock=clock)
    worker = Worker(
        bus=bus,
        store=SparingWriter(
            writer=ObservingWriter(writer=store, observer=engine), deleter=store, sieve=sieve
        ),
        clock=clock,
        rng=SystemRandom(),
        flush_seconds=0.05,
        retry_max_seconds=1.0,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run)
        tasks.start_soon(worker.run)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
