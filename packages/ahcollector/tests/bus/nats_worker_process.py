"""A process that takes entries from the bus on NATS and notes them in a file; run by the tests.

    python nats_worker_process.py URL PREFIX LEDGER NAME SETTINGS [hold | die NUMBER]

With `hold` nothing is acknowledged; with `die` the batch of that number kills the process. Each
line is one write at the end of the file, so that lines are in the order in which they happened.
"""

import json
import os
import signal
import sys

import anyio

from ahcollector.bus import SHARDS
from ahcollector.bus.jetstream import BufferSize, JetStreamBus
from ahcollector.nats import NatsClient, NatsConfig


async def main(url, prefix, ledger, name, settings, what="take", number="-1"):
    client = NatsClient(config=NatsConfig(servers=(url,), prefix=prefix, timeout_seconds=2))
    size = BufferSize(bytes_max=64 << 20, batches_max=20_000, shard_batches_max=10_000)
    bus = JetStreamBus(client=client, size=size, dead_bytes_max=8 << 20, **json.loads(settings))
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
            "fence": delivery._tenure.fence,
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
