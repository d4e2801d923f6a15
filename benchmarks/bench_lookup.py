"""How much cheaper is a warm token look-up than asking Redis?

100,000 agents are in the registry and remembered at the node. The tokens of 1,000 of them are
looked up through the resolver, as the ingest door does, with metrics on. Beside it, in the same
event loop, redis-py's asyncio client GETs values of the same size under the same 1,000 names, in
the same order, from a private Redis over loopback, one after the other; its blocking client does
the same without a loop. All 100,000 in a scattered order are slower to look up, because the
processor's caches do not hold them: that is the third row.

Then what a look-up costs that is not remembered (our registry over its own client, against a bare
HMGET of the same fields), what a remembered token costs in memory, and how long Redis does nothing
else while a script forgets fifty agents.
"""

import asyncio
import random
import time
import tracemalloc
from collections.abc import Awaitable, Callable

import redis
import redis.asyncio
from _harness import Options, Row, Times, in_turns, main

from ahcollector.clock import SystemClock
from ahcollector.metrics import PrometheusMetrics
from ahcollector.presence import MemoryPresence
from ahcollector.redis import RedisClient, RedisConfig
from ahcollector.registry import (
    CachedRegistry,
    Directory,
    MemoryRegistry,
    NegativeCache,
    Resolver,
)
from ahcollector.registry.redis import RedisRegistry
from ahwire import AgentRecord, UUID7Generator
from ahwire.hub import AgentState
from testkit import RedisServer

AGENTS = 100_000
WARM_A_ROUND = 20_000
ASKED_A_ROUND = 1_000
ROUNDS = 15
FIELDS = ("agent_id", "company_id", "server_id", "state", "exp", "ver")
FORGOTTEN = 2_000


def record(number: int) -> AgentRecord:
    """One active agent."""
    return AgentRecord(
        agent_id=f"agent-{number}",
        company_id=f"company-{number % 100}",
        server_id=f"server-{number}",
        state=AgentState.ACTIVE,
        token_hash=f"{number:064x}",
        version=1,
    )


def scattered(count: int) -> list[str]:
    """Hashes in the order in which agents happen to send."""
    rng = random.Random(1)
    return [f"{rng.randrange(count):064x}" for _ in range(WARM_A_ROUND)]


async def filled(count: int) -> tuple[Resolver, CachedRegistry]:
    """A resolver over a node that remembers everybody, for longer than the benchmark takes."""
    clock, negative = SystemClock(), NegativeCache()
    store = MemoryRegistry()
    for number in range(count):
        await store.put(record(number), now=0.0)
    cached = CachedRegistry(registry=store, negative=negative, clock=clock, ttl_seconds=3_600.0)
    directory = Directory(
        registry=cached,
        presence=MemoryPresence(event_ids=UUID7Generator(clock, random.Random(1)).next),
        negative=negative,
        clock=clock,
    )
    resolver = Resolver(
        registry=cached,
        directory=directory,
        hub=None,
        negative=negative,
        clock=clock,
        metrics=PrometheusMetrics(),
    )
    for number in range(count):
        await resolver.resolve(f"{number:064x}")
    return resolver, cached


async def each(ask: Callable[[str], Awaitable[object]], asked: list[str]) -> float:
    """Seconds a question, one after the other."""
    began = time.perf_counter()
    for one in asked:
        if await ask(one) is None:
            raise RuntimeError("nothing was found")
    return (time.perf_counter() - began) / len(asked)


def blocking(ask: Callable[[str], object], asked: list[str]) -> float:
    """The same without an event loop."""
    began = time.perf_counter()
    for one in asked:
        if ask(one) is None:
            raise RuntimeError("nothing was found")
    return (time.perf_counter() - began) / len(asked)


def look_ups(options: Options, runner: asyncio.Runner, port: int) -> list[Row]:
    """Warm and not, beside what redis-py alone takes."""
    count = 2_000 if options.quick else AGENTS
    asked, few = scattered(count), scattered(1_000)[:ASKED_A_ROUND]
    warm = few * (WARM_A_ROUND // ASKED_A_ROUND)
    resolver, _ = runner.run(filled(count))
    client = RedisClient(config=RedisConfig(port=port, prefix="", timeout_seconds=5))
    shared = RedisRegistry(client=client)
    bare = redis.asyncio.Redis(port=port)
    simple = redis.Redis(port=port)
    for number in range(1_000):
        runner.run(shared.put(record(number), now=0.0))
        simple.set(f"{number:064x}", "x" * 120)
    found = in_turns(
        {
            "warm": lambda: runner.run(each(resolver.resolve, warm)),
            "scattered": lambda: runner.run(each(resolver.resolve, asked)),
            "get": lambda: runner.run(each(bare.get, few)),
            "blocking get": lambda: blocking(simple.get, few),
            "cold": lambda: runner.run(each(shared.lookup, few)),
            "hmget": lambda: runner.run(
                each(lambda one: bare.hmget(f"reg:tok:{one}", FIELDS), few)
            ),
        },
        rounds=options.rounds(ROUNDS),
    )
    runner.run(client.aclose())
    runner.run(bare.aclose())
    simple.close()
    return [
        warm_row("warm token look-up", "redis.asyncio", found["get"], found["warm"]),
        warm_row(
            "warm token look-up", "the blocking redis-py", found["blocking get"], found["warm"]
        ),
        warm_row(
            "warm look-up scattered over 100,000 tokens",
            "redis.asyncio",
            found["get"],
            found["scattered"],
        ),
        cold_row(found["cold"], found["hmget"]),
    ]


def warm_row(what: str, peer: str, theirs: Times, ours: Times) -> Row:
    """How many look-ups fit in one GET."""
    ratio = theirs.median / ours.median
    return Row(
        question=f"{what} against a GET by {peer}",
        measured=f"{ratio:.0f} x: {ours.median * 1e6:.2f} µs against {theirs.micros()}",
        value=ratio,
        limit=50,
        less_is_better=False,
        target="at least 50 x",
        figures={"ours_seconds": ours.median, "get_seconds": theirs.median},
    )


def cold_row(ours: Times, theirs: Times) -> Row:
    """What our client and the reading of fields add to a command."""
    ratio = ours.median / theirs.median
    return Row(
        question="token look-up in the registry in Redis against a bare HMGET of its fields",
        measured=f"{ratio:.2f} x: {ours.micros()} against {theirs.micros()}",
        value=ratio,
        limit=1.5,
        less_is_better=True,
        target="at most 1.5 x",
        figures={"ours_seconds": ours.median, "hmget_seconds": theirs.median},
    )


def memory(options: Options, runner: asyncio.Runner) -> Row:
    """What a node holds for a remembered token, the registry itself not counted."""
    count = 2_000 if options.quick else AGENTS
    _, cached = runner.run(filled(count))
    cached.forget_all()
    hashes = [f"{number:064x}" for number in range(count)]

    async def remember() -> None:
        for one in hashes:
            await cached.lookup(one)

    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    runner.run(remember())
    held = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    return Row(
        question="memory for each remembered token, beside its identity",
        measured=f"{held:,.0f} bytes",
        value=held,
        limit=1_000,
        less_is_better=True,
        target="at most 1,000 bytes",
        figures={"bytes": held, "tokens": count},
    )


def longest_script(options: Options, runner: asyncio.Runner, port: int) -> Row:
    """How long Redis is held up while a company is forgotten, by its own slow log."""
    count = 200 if options.quick else FORGOTTEN
    simple = redis.Redis(port=port)
    simple.config_set("slowlog-log-slower-than", 0)
    simple.config_set("slowlog-max-len", 10_000)
    client = RedisClient(config=RedisConfig(port=port, prefix="forget:", timeout_seconds=5))
    shared = RedisRegistry(client=client)

    def once() -> float:
        for number in range(count):
            runner.run(shared.put(record(number * 100), now=0.0))
        simple.slowlog_reset()
        runner.run(shared.delete_company("company-0"))
        return float(max(entry["duration"] for entry in simple.slowlog_get(10_000))) / 1e6

    took = in_turns({"forget": once}, rounds=max(2, options.rounds(ROUNDS) // 3))["forget"]
    runner.run(client.aclose())
    simple.close()
    low, high = took.quartiles
    return Row(
        question=f"the longest script while a company of {count:,} agents is forgotten",
        measured=f"{took.median * 1e3:.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f})",
        value=took.fast,
        limit=0.005,
        less_is_better=True,
        target="at most 5 ms",
        note="the first quartile: Redis' clock runs on while others have the processor",
        figures={"seconds": took.median},
    )


def measure(options: Options) -> list[Row]:
    """All of it."""
    with RedisServer() as server, asyncio.Runner() as runner:
        return [
            *look_ups(options, runner, server.port),
            memory(options, runner),
            longest_script(options, runner, server.port),
        ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahcollector", "redis", "hiredis", "prometheus-client"])
