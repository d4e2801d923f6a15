"""A process that takes entries from a shared bus and notes them in a file; run by the tests.

    python worker_process.py {redis PORT | nats URL} PREFIX LEDGER NAME SETTINGS [WHAT [NUMBER]]

WHAT is `hold`: nothing is acknowledged; `die`: the batch of that number kills the process; `slow`:
each batch takes so many seconds. Each line is one write at the end of the file, so that lines are
in the order in which they happened.
"""

import json
import os
import signal
import sys

import anyio

from ahcollector.bus import SHARDS
from ahcollector.bus.jetstream import BufferSize, JetStreamBus
from ahcollector.bus.redis import RedisBus
from ahcollector.nats import NatsClient, NatsConfig
from ahcollector.redis import RedisClient, RedisConfig


def bus_on(kind, address, prefix, settings):
    if kind == "redis":
        config = RedisConfig(port=int(address), prefix=prefix, timeout_seconds=5)
        return RedisBus(client=RedisClient(config=config), **settings)
    client = NatsClient(config=NatsConfig(servers=(address,), prefix=prefix, timeout_seconds=2))
    size = BufferSize(bytes_max=64 << 20, batches_max=20_000, shard_batches_max=10_000)
    return JetStreamBus(client=client, size=size, dead_bytes_max=8 << 20, **settings)


async def main(kind, address, prefix, ledger, name, settings, what="take", number="-1"):
    bus = bus_on(kind, address, prefix, json.loads(settings))
    ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handler(delivery):
        batch = delivery.batch
        found = int(batch.request_id, 16)
        line = {
            "by": name,
            "server": batch.server_id,
            "shard": delivery.shard,
            "number": found,
            "try": delivery.attempt,
            # Both begin their leases with the fence.
            "fence": int(delivery._tenure.lease.split()[0]),
        }
        os.write(ledger, json.dumps(line).encode() + b"\n")
        if what == "die" and found == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "slow":
            await anyio.sleep(float(number))
        if what != "hold":
            await delivery.ack()

    await bus.subscribe(range(SHARDS), handler)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
