"""A publisher, workers in processes of their own, and the ledger of what they were handed."""

import json
import subprocess
import sys
from pathlib import Path

import anyio

from ahcollector.errors import BusError
from ahcollector.testing._contracts.bus import batch_of

SCRIPT = Path(__file__).with_name("worker_process.py")
SERVERS = [f"server-{n}" for n in range(40)]
LEASE_SECONDS = 1.5
# A lease, and the time in which the other one looks; thrice, for this machine has others to serve.
TAKE_OVER_SECONDS = 3 * (LEASE_SECONDS + 0.5)


class Stage:
    """Publishes from this process, and starts workers on the same bus.

    Args:
        kind: Which bus the worker process makes: `redis` or `nats`.
        address: Where it finds the service.
        bus: What this process publishes to.
        left: Says how many entries are in all shards, held or not.
        settings: Of a worker's bus.
        ledger: The file that workers write.
    """

    def __init__(self, *, kind, address, prefix, bus, left, settings, ledger, stack):
        self.bus = bus
        self.left = left
        self.settings = settings
        self.stack = stack
        self.path = ledger
        self.accepted = []
        self.pause_seconds = 0.0
        self._where = [kind, str(address), prefix, str(ledger)]

    def start(self, name, *options, **more):
        settings = json.dumps(self.settings | more)
        arguments = [*self._where, name, settings, *map(str, options)]
        process = subprocess.Popen([sys.executable, str(SCRIPT), *arguments])

        def end():
            process.kill()
            process.wait()

        self.stack.callback(end)
        return process

    async def publish(self, numbers):
        """Publish until each is accepted: what was refused is sent again, as by an agent."""
        for number in numbers:
            batch = batch_of(number, server_id=SERVERS[number % len(SERVERS)])
            while True:
                try:
                    await self.bus.publish(batch)
                except BusError:
                    await anyio.sleep(0.02)
                else:
                    break
            await anyio.sleep(self.pause_seconds)
            self.accepted.append(number)

    def ledger(self):
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    async def until(self, condition, seconds=60):
        with anyio.move_on_after(seconds) as scope:
            while not condition(self.ledger()):
                await anyio.sleep(0.05)
        assert not scope.cancelled_caught, f"the ledger: {self.ledger()[-20:]}"

    async def until_all_came(self, seconds=60):
        expected = set(self.accepted)
        await self.until(lambda lines: {line["number"] for line in lines} >= expected, seconds)

    async def until_empty(self):
        with anyio.fail_after(20):
            while await self.left():
                await anyio.sleep(0.02)


def in_order(lines):
    """Of each server, what is seen for the first time comes in the order of publishing."""
    for server in SERVERS:
        numbers = list(dict.fromkeys(line["number"] for line in lines if line["server"] == server))
        assert numbers == sorted(numbers), [line for line in lines if line["server"] == server]


def one_owner(lines, *, pauses=0):
    """Whoever took a shard, nobody handed over under an older lease after that.

    But what a process was about to hand over as it was stopped, it hands over when it wakes: no
    look at the time helps against that. So there may be one such line for each pause.
    """
    fences = {}
    stale = []
    for line in lines:
        if line["fence"] < fences.get(line["shard"], 0):
            stale.append(line)
        else:
            fences[line["shard"]] = line["fence"]
    assert len(stale) <= pauses, stale
