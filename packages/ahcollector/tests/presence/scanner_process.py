"""A process that scans the shared presence and appends events to a ledger; run by the tests.

    python scanner_process.py PORT PREFIX NAME LEDGER [stall]

With `stall` it hangs after its first append, before it could confirm anything.
"""

import json
import os
import random
import sys

import anyio

from ahcollector.clock import SystemClock
from ahcollector.detector import Detector
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig
from ahwire import UUID7Generator


class Ledger:
    """An outbox that is a file: one line an event, appended in one write."""

    def __init__(self, path, name, *, stalls):
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._name = name
        self._stalls = stalls

    async def append(self, events, now):
        lines = [
            json.dumps(
                {
                    "by": self._name,
                    "event_id": event.event_id,
                    "agent_id": event.agent_id,
                    "type": event.type.value,
                    "seq": event.seq,
                }
            )
            for event in events
        ]
        os.write(self._fd, "".join(f"{line}\n" for line in lines).encode())
        if self._stalls:
            await anyio.sleep_forever()


async def main(port, prefix, name, ledger, *, stalls):
    clock = SystemClock()
    presence = RedisPresence(
        client=RedisClient(
            config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=10), clock=clock
        ),
        event_ids=UUID7Generator(clock, random.SystemRandom()).next,
        name=name,
        clock=clock,
        down_min_seconds=5.0,
        default_interval_seconds=1.0,
        intent_lease_seconds=2.0,
    )
    detector = Detector(
        presence=presence,
        outbox=Ledger(ledger, name, stalls=stalls),
        clock=clock,
        agent_interval_seconds=1.5,
        scan_interval_seconds=0.05,
        blind_grace_max_seconds=0.1,
    )
    await detector.run()


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[1:5], stalls=sys.argv[5:] == ["stall"]))
