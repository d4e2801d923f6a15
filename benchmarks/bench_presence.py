"""How many signs of life does presence note in Redis, of a bare ZADD's, and what does a scan cost?

A sign of life is one ZADD's worth of news: when an agent was heard. The bare peer sends just that,
200 in a pipeline through the same client, the shortest that is right. Ours comes from 200 tasks at
once, as from the ingest door: it is gathered into script calls that keep the agent's record, its
deadline, its place among the up agents of all and of its company, and its contact to be reported,
and that would notice its return. The agents are known and up, at their usual interval.

A scan looks for agents that fell silent; measured is the common one, in which nobody did. In memory
it must be short, because the event loop stands still for it: every agent speaks each 30 s of
simulated time, for ten minutes, and each 10 s there is a scan. In Redis it is a command.
"""

import asyncio
import itertools
import statistics
import time

from _harness import Options, Row, Times, by_rounds, main

from ahcollector.presence import AgentRef, MemoryPresence
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig
from testkit import RedisServer

AGENTS = 10_000
TASKS = 200
ROUNDS = 15
MEMORY_AGENTS = 100_000
MEMORY_SECONDS = 600
SCANS = 500
T0 = 1_700_000_000.0
INTERVAL_SECONDS = 30.0
SHARE = 0.6
MEMORY_SCAN_MS = 2.0
REDIS_SCAN_MS = 10.0


def fleet(count: int) -> list[AgentRef]:
    """So many agents of 40 companies."""
    return [
        AgentRef(agent_id=f"agent-{n:06}", company_id=f"company-{n % 40}", server_id=f"server-{n}")
        for n in range(count)
    ]


async def touch(presence: RedisPresence, refs: list[AgentRef], now: float) -> float:
    """Signs of life a second, of tasks that wait for each of theirs."""

    async def work(mine: list[AgentRef]) -> None:
        for ref in mine:
            await presence.touch(ref, now, INTERVAL_SECONDS)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(TASKS):
            tasks.create_task(work(refs[number::TASKS]))
    return len(refs) / (time.perf_counter() - began)


async def bare(client: RedisClient, refs: list[AgentRef], now: float) -> float:
    """Bare ZADDs a second, as many in a pipeline as there are tasks."""
    key, score = client.key("bare"), round(now * 1000)
    began = time.perf_counter()
    for begin in range(0, len(refs), TASKS):
        await client.pipeline(
            [("ZADD", key, score, ref.agent_id) for ref in refs[begin : begin + TASKS]]
        )
    return len(refs) / (time.perf_counter() - began)


async def scans(presence: RedisPresence | MemoryPresence, now: float, count: int) -> Times:
    """The seconds of scans in which nobody is due."""
    values = []
    for _ in range(count):
        began = time.perf_counter()
        found = await presence.expire(now, 500)
        values.append(time.perf_counter() - began)
        if found:
            raise RuntimeError(f"{len(found)} agents are due")
    return Times(values=values)


async def in_redis(port: int, options: Options) -> tuple[Times, Times, Times]:
    """Touches and bare ZADDs in turns, then scans."""
    client = RedisClient(config=RedisConfig(port=port, timeout_seconds=10))
    numbers = itertools.count()
    presence = RedisPresence(client=client, event_ids=lambda: str(next(numbers)))
    refs = fleet(AGENTS)
    ours: list[float] = []
    peer: list[float] = []
    await touch(presence, refs, T0)
    await bare(client, refs, T0)
    for number in range(options.rounds(ROUNDS)):
        now = T0 + number + 1
        turns = [(ours, touch(presence, refs, now)), (peer, bare(client, refs, now))]
        for values, turn in turns[:: 1 if number % 2 else -1]:
            values.append(await turn)
    found = await scans(presence, T0 + ROUNDS, options.rounds(SCANS))
    await client.aclose()
    return Times(values=ours), Times(values=peer), found


async def in_memory(options: Options) -> Times:
    """Scans over many agents of one process, all of whom go on speaking."""
    numbers = itertools.count()
    presence = MemoryPresence(event_ids=lambda: str(next(numbers)))
    refs = fleet(MEMORY_AGENTS)
    values: list[float] = []
    for second in range(60 if options.quick else MEMORY_SECONDS):
        for ref in refs[second % 30 :: 30]:
            await presence.touch(ref, T0 + second, INTERVAL_SECONDS)
        if second % 10 == 9:
            values += (await scans(presence, T0 + second, 1)).values
    return Times(values=values)


def scan_row(where: str, agents: int, found: Times, limit_ms: float) -> Row:
    """The answer about scans."""
    median_ms = found.median * 1000
    p99_ms = sorted(found.values)[int(len(found.values) * 0.99)] * 1000
    return Row(
        question=f"a scan of {agents:,} agents in {where}, none expired",
        measured=f"{median_ms:.3f} ms, the 99th of 100 {p99_ms:.3f} ms",
        value=round(median_ms, 4),
        limit=limit_ms,
        less_is_better=True,
        target=f"under {limit_ms:g} ms",
        figures={
            "median_ms": round(median_ms, 4),
            "p99_ms": round(p99_ms, 4),
            "mean_ms": round(statistics.mean(found.values) * 1000, 4),
        },
    )


def measure(options: Options) -> list[Row]:
    """Redis, then memory."""
    with RedisServer() as server:
        ours, peer, shared_scans = asyncio.run(in_redis(server.port, options))
    memory_scans = asyncio.run(in_memory(options))
    share = by_rounds(ours, peer).median
    return [
        Row(
            question="a sign of life in Redis, batched, against a bare pipelined ZADD",
            measured=f"{share:.1%}: {ours.each()} a second against {peer.each()}",
            value=round(share, 3),
            limit=SHARE,
            less_is_better=False,
            target="at least 60 %",
            figures={
                "ours_per_second": round(ours.median),
                "bare_per_second": round(peer.median),
                "agents": AGENTS,
                "tasks": TASKS,
            },
        ),
        scan_row("memory", MEMORY_AGENTS, memory_scans, MEMORY_SCAN_MS),
        scan_row("Redis", AGENTS, shared_scans, REDIS_SCAN_MS),
    ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahcollector", "redis", "hiredis", "anyio"])
