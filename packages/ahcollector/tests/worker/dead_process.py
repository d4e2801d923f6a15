"""A process that puts dead batches, or replays them to a bus in Redis; run by the tests.

    python dead_process.py PORT PREFIX put FIRST COUNT
    python dead_process.py PORT PREFIX replay

It prints the number of each batch whose put returned, and `done`.
"""

import sys

import anyio
from dead_stage import T0, client_of

from ahcollector.bus.redis import RedisBus
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.worker import replay_dead_batches
from ahcollector.worker.redis import RedisDeadBatches


async def main(port, prefix, what, first="0", count="0"):
    client = client_of(int(port), prefix)
    dead = RedisDeadBatches(client=client, letters_max=100_000)
    if what == "replay":
        bus = RedisBus(client=client, queue_batches_max=100_000)
        await replay_dead_batches(dead, bus.publish)
    for number in range(int(first), int(first) + int(count)):
        await dead.put(batch_of(number), "no", T0)
        print(number, flush=True)
    print("done", flush=True)
    await client.aclose()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
