"""A process that appends events to the outbox in Redis and sends from it; run by the tests.

    python sender_process.py PORT PREFIX HUB FIRST COUNT LEASE_SECONDS

It appends COUNT events from FIRST on, from the beginning after each start, as whoever decides them
does; then it only sends, until it is killed. It waits for the hub longer than any lease, so one
that was stopped with a request on its way still hears what became of it.
"""

import random
import sys

import anyio

from ahcollector.clock import SystemClock
from ahcollector.errors import OutboxError
from ahcollector.hub import HttpHub
from ahcollector.outbox import OutboxSender
from ahcollector.outbox.redis import RedisLease, RedisOutbox
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.testing._contracts.outbox import event


async def append(outbox, numbers):
    clock = SystemClock()
    for number in numbers:
        while True:
            try:
                await outbox.append([event(number)], clock.time())
                break
            except OutboxError:
                await anyio.sleep(0.02)
        await anyio.sleep(0.002)


async def main(port, prefix, hub_url, first, count, lease_seconds):
    clock = SystemClock()
    client = RedisClient(config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=1.0))
    outbox = RedisOutbox(client=client, clock=clock)
    async with HttpHub(base_url=hub_url, token="hub-token", timeout_seconds=20.0) as hub:
        sender = OutboxSender(
            outbox=outbox,
            hub=hub,
            clock=clock,
            rng=random.Random(),
            lease=RedisLease(client=client, lease_seconds=float(lease_seconds)),
            batch_max=20,
            poll_seconds=0.02,
            backoff_min_seconds=0.05,
            backoff_max_seconds=0.2,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sender.run)
            tasks.start_soon(append, outbox, range(int(first), int(first) + int(count)))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:7])
