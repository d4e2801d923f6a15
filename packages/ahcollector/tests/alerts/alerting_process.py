"""A process that takes batches from the bus in Redis and judges a rule; run by the tests.

python alerting_process.py PORT PREFIX
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
from ahcollector.outbox.redis import RedisOutbox
from ahcollector.redis import RedisClient, RedisConfig
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


async def main(port, prefix):
    clock = SystemClock()
    client = RedisClient(config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=5))
    bus = RedisBus(client=client, lease_seconds=1.5, block_seconds=0.1, claim_idle_seconds=1.0)
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
        settings=AlertSettings(flapping=None),
        tick_interval_seconds=0.3,
        state_interval_seconds=0.5,
    )
    worker = Worker(
        bus=bus,
        store=ObservingWriter(writer=MemoryStore(clock=clock), observer=engine),
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
