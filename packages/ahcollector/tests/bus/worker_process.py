"""A process that takes entries from the bus and notes them in a ledger in Redis; run by the tests.

    python worker_process.py PORT PREFIX NAME SETTINGS [hold | die NUMBER]

With `hold` nothing is acknowledged; with `die` the batch of that number kills the process.
"""

import json
import os
import signal
import sys

import anyio

from ahcollector.bus import SHARDS
from ahcollector.bus.redis import RedisBus
from ahcollector.redis import RedisClient, RedisConfig


async def main(port, prefix, name, settings, what="take", number="-1"):
    client = RedisClient(config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=5))
    bus = RedisBus(client=client, **json.loads(settings))

    async def handler(delivery):
        batch = delivery.batch
        found = int(batch.request_id, 16)
        line = {"by": name, "server": batch.server_id, "number": found, "try": delivery.attempt}
        await client.call("RPUSH", client.key("ledger"), json.dumps(line))
        if what == "die" and found == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        if what != "hold":
            await delivery.ack()

    await bus.subscribe(range(SHARDS), handler)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
