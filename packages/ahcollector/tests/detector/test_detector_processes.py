"""Processes that watch the same agents in Redis, killed, stopped and cut off."""

import itertools
import json
import random
import signal
import subprocess
import sys
import time
import uuid
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import pytest

from ahcollector.errors import CollectorError
from ahcollector.presence import AgentRef
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig

pytestmark = [pytest.mark.anyio, pytest.mark.service, pytest.mark.fault]
SCRIPT = Path(__file__).with_name("detector_process.py")
LEASE = 0.6
REPEATS = {"group_ended", "silence_ended"}


class World:
    """Agents, the processes that watch them, their Redis and their hub."""

    def __init__(self, port, hub, ledger, *, agents=30):
        self.port, self.hub, self.ledger = port, hub, ledger
        self.prefix = f"test-{uuid.uuid4().hex}:"
        self.agents = [
            AgentRef(agent_id=f"a{n}", company_id=f"co-{n % 2}", server_id=f"s{n}")
            for n in range(agents)
        ]
        self.deaf = set()
        self.stack = AsyncExitStack()
        numbers = itertools.count(1)
        self.client = RedisClient(
            config=RedisConfig(port=port, prefix=self.prefix, timeout_seconds=1.0)
        )
        self.presence = RedisPresence(
            client=self.client,
            event_ids=lambda: f"018bcfe5-6800-7000-9000-{next(numbers):012x}",
            down_min_seconds=1.0,
            default_interval_seconds=0.3,
        )

    async def __aenter__(self):
        self.stack.push_async_callback(self.client.aclose)
        tasks = await self.stack.enter_async_context(anyio.create_task_group())
        self.stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(self.live)
        return self

    async def __aexit__(self, *error):
        await self.stack.aclose()

    async def live(self):
        """Whoever is not deaf speaks, and a door tells that it hears."""
        while True:
            with suppress(CollectorError):
                now = time.time()
                await self.presence.beacon(now)
                for ref in self.agents:
                    if ref.agent_id not in self.deaf:
                        await self.presence.touch(ref, now, None)
            await anyio.sleep(0.1)

    def start(self, name, *more):
        arguments = [self.port, self.prefix, self.hub.url, name, self.ledger, LEASE, *more]
        process = subprocess.Popen([sys.executable, str(SCRIPT), *map(str, arguments)])

        def end():
            process.kill()
            process.wait()

        self.stack.callback(end)
        return process

    def lines(self, what):
        if not self.ledger.exists():
            return []
        lines = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        return [line for line in lines if line["what"] == what]

    def events(self):
        """What the hub has now; its thread goes on taking."""
        return list(self.hub.taken.values())

    def of(self, agent_id):
        """An agent's own events at the hub."""
        return [event for event in self.events() if event.get("agent_id") == agent_id]

    def shown(self):
        """What the hub thinks of each agent, by its newest seq."""
        newest = {}
        for event in self.events():
            agent_id = event.get("agent_id")
            if agent_id and event["seq"] > newest.get(agent_id, {"seq": 0})["seq"]:
                newest[agent_id] = event
        return {agent_id: event["type"] for agent_id, event in newest.items()}

    async def until(self, done, what, *, seconds=30.0):
        with anyio.move_on_after(seconds) as scope:
            while not done():
                await anyio.sleep(0.02)
        assert not scope.cancelled_caught, what

    async def until_down(self, *numbers):
        wanted = {f"a{number}" for number in numbers}
        await self.until(
            lambda: {a for a, kind in self.shown().items() if kind == "agent.down"} == wanted,
            f"the hub knows that {sorted(wanted)} are down",
        )

    async def check(self):
        """Each transition is at the hub, once, an agent's in order; each group in order."""
        with anyio.fail_after(20):
            while await self.presence.pending_count():
                await anyio.sleep(0.05)
        await self.until(
            lambda: {line["event_id"] for line in self.lines("handed")} <= set(self.hub.taken),
            "what was handed out is at the hub",
        )
        handed = {line["event_id"] for line in self.lines("handed")}
        events = self.events()
        own = [e for e in events if "agent_id" in e and e.get("reason") not in REPEATS]
        assert {event["event_id"] for event in own} == handed
        for ref in self.agents:
            mine = sorted(self.of(ref.agent_id), key=lambda event: event["seq"])
            assert len({event["seq"] for event in mine}) == len(mine)
            kinds = [event["type"] for event in mine if event.get("reason") not in REPEATS]
            expected = itertools.cycle(["agent.down", "agent.up"])
            assert kinds == list(itertools.islice(expected, len(kinds))), ref.agent_id
        groups = {}
        for event in sorted(events, key=lambda event: event["seq"]):
            if event["type"].startswith("group."):
                key = event["company_id"], event["group_key"]
                groups.setdefault(key, []).append(event["type"])
        for kinds in groups.values():
            assert kinds.count("group.up") <= 1
            assert "group.up" not in kinds[:-1]
        return groups


@pytest.fixture
def hub():
    from counting_hub import CountingHub

    with CountingHub() as hub:
        yield hub


@pytest.fixture
async def world(redis_server, hub, tmp_path, anyio_backend):
    async with World(redis_server.port, hub, tmp_path / "ledger") as world:
        yield world


async def test_one_works_and_another_takes_over_within_the_lease_and_a_second(world):
    first = world.start("first")
    await world.until(lambda: world.lines("turn"), "the first has the turn")
    world.start("second")
    await world.until(lambda: len(world.lines("up")) == 2, "the second is up")
    world.deaf = {"a1"}
    await world.until_down(1)
    assert {line["by"] for line in world.lines("handed")} == {"first"}
    first.kill()
    killed_at = time.time()
    world.deaf = {"a2"}
    await world.until_down(2)
    [turn] = [line for line in world.lines("turn") if line["by"] == "second"]
    assert turn["at"] - killed_at < LEASE + 1.0
    await world.check()


async def test_c20_a_process_that_was_stopped_before_it_stored_is_refused(world):
    """C20: stopped with a decision in hand; another decides, and all goes on; then it wakes."""
    stopped = world.start("stopped", "stops")
    await world.until(lambda: world.lines("turn"), "it has the turn")
    world.start("heir")
    world.deaf = {"a0", "a2", "a4"}
    await world.until(lambda: world.lines("stopped"), "it stopped itself")
    await world.until_down(0, 2, 4)
    world.deaf = {"a2"}
    await world.until_down(2)
    stopped.send_signal(signal.SIGCONT)
    await world.until(lambda: world.lines("refused"), "its commit is refused")
    assert {line["by"] for line in world.lines("refused")} == {"stopped"}
    world.deaf = {"a6"}
    await world.until_down(6)
    groups = await world.check()
    assert [kinds[-1] for kinds in groups.values()] == ["group.up"]


async def storm(world, rng, *, rounds, restart):
    """Kill, stop and restart processes and Redis while agents come and go."""
    processes = [world.start(f"p{n}") for n in range(3)]
    world.hub.fails = lambda: rng.choice([None] * 8 + ["before", "after"])
    stopped = set()
    for number in range(rounds):
        world.deaf = {f"a{n}" for n in rng.sample(range(30), rng.choice([0, 2, 12]))}
        await anyio.sleep(rng.uniform(0.3, 1.6))
        place = rng.randrange(3)
        what = "redis" if number % 6 == 4 else rng.choice(["kill", "stop"])
        if what == "redis":
            await anyio.to_thread.run_sync(restart)
        elif what == "kill":
            processes[place].kill()
            processes[place].wait()
            stopped.discard(place)
            processes[place] = world.start(f"p{place}")
        elif place in stopped:
            processes[place].send_signal(signal.SIGCONT)
            stopped.discard(place)
        else:
            processes[place].send_signal(signal.SIGSTOP)
            stopped.add(place)
    for place in stopped:
        processes[place].send_signal(signal.SIGCONT)
    world.hub.fails = lambda: None
    world.deaf = {f"a{n}" for n in range(0, 24, 2)}
    await world.until_down(*range(0, 24, 2))
    world.deaf = set()
    await world.until_down()
    groups = await world.check()
    assert groups
    assert all(kinds[-1] == "group.up" for kinds in groups.values())


async def weather(start_service, hub, ledger, seed, *, rounds):
    redis = pytest.importorskip("testkit.redis")
    server = start_service(redis.RedisServer, appendfsync="always")

    def restart():
        server.kill()
        time.sleep(0.1)
        server.start()

    async with World(server.port, hub, ledger) as world:
        await storm(world, random.Random(seed), rounds=rounds, restart=restart)


async def test_three_processes_lose_no_transition_and_tell_none_twice(start_service, hub, tmp_path):
    """C18, C20: kill -9, stops beyond the lease, Redis killed; counted at a hub that fails too."""
    await weather(start_service, hub, tmp_path / "ledger", 7, rounds=8)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
async def test_three_processes_in_many_storms(start_service, hub, tmp_path, seed):
    """C18, C20: the same for longer."""
    await weather(start_service, hub, tmp_path / "ledger", seed, rounds=60)
