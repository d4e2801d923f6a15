"""One node of several, as a process: looks tokens up and revokes agents as its input says.

Arguments: port, prefix, seconds a look-up is remembered, and whether changes are heard. Each line
of the input is answered by one line.
"""

import sys
import time
from datetime import UTC, datetime

import anyio

from ahcollector.clock import SystemClock
from ahcollector.errors import RegistryError
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry import CachedRegistry, NegativeCache
from ahcollector.registry.redis import RedisRegistry
from ahwire import AgentRecord
from ahwire.hub import AgentState


async def answer(node, line):
    word, *rest = line.split()
    if word == "put":
        number = int(rest[0])
        record = AgentRecord(
            agent_id=f"a{number}",
            company_id="acme",
            server_id="s",
            state=AgentState.ACTIVE,
            token_hash=f"{number:064x}",
            version=1,
        )
        await node.put(record, now=time.time())
        return "done"
    if word == "revoke":
        await node.revoke(f"a{rest[0]}", now=time.time())
        return "done"
    entry = await node.lookup(f"{int(rest[0]):064x}")
    return "unknown" if entry is None else entry.verdict(datetime.now(UTC)).value


async def main(port, prefix, ttl_seconds, hears):
    client = RedisClient(config=RedisConfig(port=int(port), prefix=prefix, timeout_seconds=5))
    shared = RedisRegistry(client=client)
    node = CachedRegistry(
        registry=shared,
        negative=NegativeCache(),
        clock=SystemClock(),
        feed=shared if hears == "hears" else None,
        ttl_seconds=float(ttl_seconds),
    )
    async with anyio.create_task_group() as group:
        group.start_soon(node.run)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            try:
                print(await answer(node, line), flush=True)
            except RegistryError:
                print("no answer", flush=True)
        group.cancel_scope.cancel()
    await client.aclose()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
