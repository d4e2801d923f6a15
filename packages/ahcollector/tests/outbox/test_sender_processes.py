"""Processes that append to one outbox in Redis and send from it, killed, stopped and cut off."""

import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from ahcollector.testing._contracts.outbox import event

pytestmark = [pytest.mark.anyio, pytest.mark.service, pytest.mark.fault]
SCRIPT = Path(__file__).with_name("sender_process.py")


def ids(numbers):
    return {event(number).event_id for number in numbers}


class Stage:
    """The hub, the Redis and the processes of a test."""

    def __init__(self, hub, outboxes, *, lease_seconds):
        self.hub = hub
        self.outboxes = outboxes
        self.lease_seconds = lease_seconds
        self.stack = ExitStack()

    def start(self, first=0, count=0):
        arguments = [self.outboxes.port, self.outboxes.prefix, self.hub.url]
        arguments += [first, count, self.lease_seconds]
        process = subprocess.Popen([sys.executable, str(SCRIPT), *map(str, arguments)])

        def end():
            process.kill()
            process.wait()

        self.stack.callback(end)
        return process

    async def until(self, done, what, *, seconds=30.0):
        with anyio.move_on_after(seconds) as scope:
            while not done():
                await anyio.sleep(0.01)
        assert not scope.cancelled_caught, what

    async def until_all_are_taken(self, count):
        await self.until(lambda: len(self.hub.taken) >= count, f"the hub has {count} events")
        outbox = self.outboxes()
        with anyio.fail_after(30):
            while (await outbox.stats(time.time())).depth:
                await anyio.sleep(0.02)
        assert set(self.hub.taken) == ids(range(count))
        assert (await outbox.stats(time.time())).dead == 0
        assert self.hub.fences == sorted(self.hub.fences)


@pytest.fixture
def hub():
    from counting_hub import CountingHub

    with CountingHub() as hub:
        yield hub


@pytest.fixture
def stage(hub, outboxes):
    stage = Stage(hub, outboxes, lease_seconds=0.6)
    with stage.stack:
        yield stage


async def test_one_sends_and_another_takes_over_within_the_lease_and_a_second(stage):
    """The figure of quality.md, after kill -9, with a process that waits for the lease."""
    hub, outbox = stage.hub, stage.outboxes()
    holder = stage.start()
    await outbox.append([event(number) for number in range(50)], time.time())
    await stage.until(lambda: len(hub.taken) == 50, "the first has the lease")
    # By an event of its own the second shows that it is up.
    stage.start(50, 1)
    await stage.until(lambda: len(hub.taken) == 51, "the second is up")
    assert len(set(hub.fences)) == 1
    holder.kill()
    killed_at = time.monotonic()
    await outbox.append([event(number) for number in range(51, 100)], time.time())
    await stage.until(lambda: len(hub.taken) == 100, "the second sends")
    assert time.monotonic() - killed_at < stage.lease_seconds + 1.0
    await stage.until_all_are_taken(100)
    assert len(set(hub.fences)) == 2


async def test_c20_a_sender_stopped_before_its_acknowledgement_is_refused(stage):
    """C20: the hub took its events; another took over; what it acknowledges then is refused."""
    hub, outbox = stage.hub, stage.outboxes()
    hub.holds = lambda fence: True
    stopped = stage.start()
    await outbox.append([event(number) for number in range(20)], time.time())
    await stage.until(lambda: hub.waiting, "its request is at the hub")
    [old] = hub.waiting
    stopped.send_signal(signal.SIGSTOP)
    # The answer waits in the socket of the stopped process.
    hub.holds = lambda fence: fence != old
    await stage.until(lambda: len(hub.taken) == 20, "the hub took them")
    await anyio.sleep(stage.lease_seconds)
    heir = stage.start()
    await stage.until(lambda: hub.waiting, "the heir sends them, too")
    stopped.send_signal(signal.SIGCONT)
    await anyio.sleep(0.3)
    assert (await outbox.stats(time.time())).depth == 20, "an old acknowledgement was accepted"
    hub.holds = lambda fence: False
    await goes_on(stage, stopped, heir)


async def test_c20_a_sender_stopped_before_the_hub_saw_its_events_is_refused_there(stage):
    """C20: its request comes after one of its successor; the hub's 412 keeps every event."""
    hub, outbox = stage.hub, stage.outboxes()
    hub.holds = lambda fence: True
    stopped = stage.start()
    await outbox.append([event(number) for number in range(20)], time.time())
    await stage.until(lambda: hub.waiting, "its request is at the hub")
    [old] = hub.waiting
    stopped.send_signal(signal.SIGSTOP)
    await anyio.sleep(stage.lease_seconds)
    hub.holds = lambda fence: fence == old
    heir = stage.start()
    await stage.until(lambda: len(hub.taken) == 20, "the heir's are taken")
    hub.holds = lambda fence: False
    await stage.until(lambda: hub.fenced, "the old one is refused")
    assert hub.fenced == [old]
    stopped.send_signal(signal.SIGCONT)
    await goes_on(stage, stopped, heir)


async def goes_on(stage, stopped, heir):
    """All is sent once; the one that was stopped takes the lease anew, above the newest."""
    hub, outbox = stage.hub, stage.outboxes()
    await outbox.append([event(number) for number in range(20, 40)], time.time())
    await stage.until_all_are_taken(40)
    newest = max(hub.fences)
    heir.kill()
    await outbox.append([event(40)], time.time())
    await stage.until_all_are_taken(41)
    assert hub.fences[-1] > newest
    assert stopped.poll() is None


async def storm(stage, rng, *, rounds, count, restart):
    """Kill, stop and restart processes, and Redis; end with three that are well."""
    places = [0, count, 2 * count]
    processes = [stage.start(first, count) for first in places]
    stage.hub.fails = lambda: rng.choice([None] * 8 + ["before", "after"])
    stopped = set()
    for _ in range(rounds):
        await anyio.sleep(rng.uniform(0.1, 0.5))
        place = rng.randrange(3)
        what = rng.choice(["kill", "kill", "stop", "stop", "redis"])
        if what == "redis":
            await anyio.to_thread.run_sync(restart)
        elif what == "kill":
            processes[place].kill()
            processes[place].wait()
            stopped.discard(place)
            processes[place] = stage.start(places[place], count)
        elif place in stopped:
            processes[place].send_signal(signal.SIGCONT)
            stopped.discard(place)
        else:
            processes[place].send_signal(signal.SIGSTOP)
            stopped.add(place)
    for place in stopped:
        processes[place].send_signal(signal.SIGCONT)
    stage.hub.fails = lambda: None
    await stage.until(
        lambda: len(stage.hub.taken) == 3 * count, f"all {3 * count} are taken", seconds=60
    )
    await stage.until_all_are_taken(3 * count)


async def weather(start_service, outboxes_at, hub, seed, *, rounds, count):
    redis = pytest.importorskip("testkit.redis")
    server = start_service(redis.RedisServer, appendfsync="always")

    def restart():
        server.kill()
        time.sleep(0.1)
        server.start()

    async with outboxes_at(server.port) as new:
        stage = Stage(hub, new, lease_seconds=0.5)
        with stage.stack:
            await storm(stage, random.Random(seed), rounds=rounds, count=count, restart=restart)


async def test_three_processes_lose_nothing_whatever_is_killed_and_stopped(
    start_service, outboxes_at, hub
):
    """Every event that was appended is at the hub; kills, stops beyond the lease, Redis too."""
    await weather(start_service, outboxes_at, hub, 7, rounds=9, count=150)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
async def test_three_processes_lose_nothing_in_many_storms(start_service, outboxes_at, hub, seed):
    await weather(start_service, outboxes_at, hub, seed, rounds=60, count=2_000)
