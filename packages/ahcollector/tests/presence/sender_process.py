"""A door that lets agents in as fast as it can, in a process of its own; run by the tests.

    python sender_process.py PORT PREFIX COUNT

It hears of no revocation, and believes a token for a second after it was looked up: each agent goes
on until it is refused. It prints "on" when each was let in once, and at the end how many contacts
came too late.
"""

import sys
from datetime import UTC, datetime

import anyio

from ahcollector.clock import SystemClock
from ahcollector.metrics import PRESENCE_LATE_CONTACTS, NullMetrics
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry import CachedRegistry, NegativeCache
from ahcollector.registry.base import Verdict
from ahcollector.registry.redis import RedisRegistry


class Late(NullMetrics):
    """Counts contacts that came too late."""

    count = 0

    def inc(self, metric, amount=1.0, /, **labels):
        if metric is PRESENCE_LATE_CONTACTS:
            self.count += int(amount)


async def main(port, prefix, count):
    client = RedisClient(config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=10))
    registry = CachedRegistry(
        registry=RedisRegistry(client=client),
        negative=NegativeCache(),
        clock=SystemClock(),
        ttl_seconds=1.0,
    )
    late = Late()
    presence = RedisPresence(client=client, event_ids=str, name="door", metrics=late)
    let_in = set()

    async def agent(number):
        while True:
            entry = await registry.lookup(f"{number:064x}")
            if entry is None or entry.verdict(datetime.now(UTC)) is not Verdict.VALID:
                return
            # The contact is noted when the change may be there already.
            await presence.touch(entry.agent, SystemClock().time(), 1.0)
            let_in.add(number)
            if len(let_in) == int(count):
                print("on", flush=True)
                let_in.add(None)

    async with anyio.create_task_group() as tasks:
        for number in range(int(count)):
            tasks.start_soon(agent, number)
    print(late.count, flush=True)
    await client.aclose()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:4])
