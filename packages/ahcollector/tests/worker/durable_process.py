"""A process with a worker between Redis and VictoriaMetrics; run by the tests.

python durable_process.py PORT PREFIX URL NAME DURABLE_AFTER_SECONDS
"""

import sys

import anyio
from durable_stage import client_of, store_of, worker_of


async def main(port, prefix, url, name, durable_after_seconds):
    client = client_of(int(port), prefix)
    async with store_of(url) as store:
        worker = worker_of(
            client, store, name=name, durable_after_seconds=float(durable_after_seconds)
        )
        await worker.run()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
