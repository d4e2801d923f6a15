"""A worker whose store ends its process at a marked batch, and is started again; run by the tests.

    python deadly_process.py KIND PLACE PREFIX LEDGER MARKED DURABLE_AFTER_SECONDS WRITE_SECONDS

The batch of the number MARKED ends the process in its write, as a crash in a library does: nobody
hears of it. The ledger has one line for each life and each write. Each life is a child that is
forked when all is imported, so that a new one costs nothing. A write takes up to WRITE_SECONDS for
each of its batches. While there is a file LEDGER.away, the store answers nobody.
"""

import os
import random
import sys
from pathlib import Path

import anyio
from deadly_stage import bus_of, number_of

from ahcollector.clock import SystemClock
from ahcollector.worker import Worker


class DeadlyStore:
    def __init__(self, ledger, marked, write_seconds):
        self.ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.away = Path(f"{ledger}.away")
        self.marked = marked
        self.write_seconds = write_seconds
        self.rng = random.Random(os.getpid())
        os.write(self.ledger, f"life {os.getpid()}\n".encode())

    async def write(self, batches):
        numbers = [number_of(batch) for batch in batches]
        await self.answer()
        await anyio.sleep(self.rng.random() * self.write_seconds * len(batches))
        if self.marked in numbers:
            os.write(self.ledger, f"died {' '.join(map(str, numbers))}\n".encode())
            os._exit(9)
        os.write(self.ledger, f"wrote {' '.join(map(str, numbers))}\n".encode())

    async def answer(self):
        while self.away.exists():
            await anyio.sleep(0.01)

    async def epoch(self):
        await self.answer()
        return "always the same"


async def main(kind, place, prefix, ledger, marked, durable_after_seconds, write_seconds):
    store = DeadlyStore(ledger, int(marked), float(write_seconds))
    async with bus_of(kind, place, prefix) as bus:
        worker = Worker(
            bus=bus,
            store=store,
            restarts=store,
            clock=SystemClock(),
            rng=random.Random(0),
            flush_seconds=0.05,
            durable_after_seconds=float(durable_after_seconds),
        )
        await worker.run()


def live_until_killed():
    while True:
        child = os.fork()
        if child == 0:
            anyio.run(main, *sys.argv[1:])
        os.waitpid(child, 0)


if __name__ == "__main__":
    live_until_killed()
