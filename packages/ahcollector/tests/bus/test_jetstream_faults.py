"""Workers and NATS are killed with -9, paused and cut off: nothing is lost, order is kept."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from bus_hands import Hands, number_of, subscribed

from ahcollector.bus import SHARDS, TRIES_MAX
from ahcollector.errors import BusError
from ahcollector.testing._contracts.bus import batch_of

# Where the package is tested alone there is no testkit, and none of these tests runs.
testkit = pytest.importorskip("testkit")

pytestmark = [pytest.mark.anyio, pytest.mark.service, pytest.mark.fault]
SCRIPT = Path(__file__).with_name("nats_worker_process.py")
SERVERS = [f"server-{n}" for n in range(40)]
SETTINGS = {
    "lease_seconds": 1.5,
    "pull_seconds": 2.0,
    "sample_seconds": 0.05,
    "retry_seconds": 0.02,
}
# A lease, and the time in which the other one looks; thrice, for this machine has others to serve.
TAKE_OVER_SECONDS = 3 * (1.5 + 0.5)


class Stage:
    """A publisher (this process), workers, and the ledger of what they got."""

    def __init__(self, buses, stack, ledger):
        self.bus = buses(client=buses.client(timeout_seconds=1.0))
        self.prefix = buses.prefix
        self.url = buses.server.url
        self.stack = stack
        self.path = ledger
        self.accepted = []
        self.pause_seconds = 0.0

    def start(self, name, *options, **more):
        settings = json.dumps(SETTINGS | more)
        arguments = [self.url, self.prefix, str(self.path), name, settings, *map(str, options)]
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
            self.accepted.append(number)
            await anyio.sleep(self.pause_seconds)

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

    async def left(self):
        """How many entries are in all shards, held or not."""
        info = await self.bus._api.ask(f"STREAM.INFO.{self.bus._names.stream}")
        return info["state"]["messages"]

    async def until_empty(self):
        with anyio.fail_after(20):
            while await self.left():
                await anyio.sleep(0.02)


@pytest.fixture
async def stage(nats_buses, tmp_path):
    with ExitStack() as stack:
        yield Stage(nats_buses, stack, tmp_path / "ledger")


def in_order(lines):
    """Of each server, what is seen for the first time comes in the order of publishing."""
    for server in SERVERS:
        numbers = list(dict.fromkeys(line["number"] for line in lines if line["server"] == server))
        assert numbers == sorted(numbers), [line for line in lines if line["server"] == server]


def one_owner(lines):
    """Whoever took a shard, nobody handed over under an older lease after that."""
    fences = {}
    for line in lines:
        assert line["fence"] >= fences.get(line["shard"], 0), line
        fences[line["shard"]] = line["fence"]


async def test_two_processes_share_the_work_and_when_one_dies_the_other_has_its_entries(stage):
    doomed, heir = stage.start("doomed"), stage.start("heir")

    async def keep_publishing():
        await stage.publish(range(100_000))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_publishing)
        # By then both have a part.
        await stage.until(lambda lines: {"doomed", "heir"} <= {line["by"] for line in lines[-200:]})
        await anyio.sleep(0.5)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    await stage.until_all_came(TAKE_OVER_SECONDS)
    lines = stage.ledger()
    in_order(lines)
    one_owner(lines)
    assert {line["server"] for line in lines if line["by"] == "heir"} == set(SERVERS)
    assert heir.poll() is None


async def test_what_a_killed_worker_held_is_handed_to_the_next_one_in_the_old_order(stage):
    await stage.publish(range(200))
    holder = stage.start("holder", "hold")
    await stage.until_all_came()
    assert await stage.left() == 200
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    await stage.publish(range(200, 300))
    stage.start("heir")
    await stage.until(lambda lines: sum(line["by"] == "heir" for line in lines) == 300)
    lines = stage.ledger()
    for server in SERVERS:
        ours = [one for one in lines if one["server"] == server and one["by"] == "heir"]
        numbers = [line["number"] for line in ours]
        assert numbers == sorted(numbers)
        # Those that the dead one had read may have ended it.
        assert {line["try"] for line in ours if line["number"] < 200} == {2}
        assert {line["try"] for line in ours if line["number"] >= 200} == {1}
    one_owner(lines)
    await stage.until_empty()


async def test_an_entry_that_kills_the_process_each_time_is_set_aside_and_neighbours_flow(stage):
    """C9."""
    await stage.publish(range(200))
    lives = 0
    while lives < 2 * TRIES_MAX:
        lives += 1
        worker = stage.start("doomed", "die", 77, lease_seconds=0.5)
        with anyio.fail_after(60):
            while worker.poll() is None and not await stage.bus.dead.count():
                await anyio.sleep(0.02)
        if worker.poll() is None:
            break
    lines = stage.ledger()
    assert [line["try"] for line in lines if line["number"] == 77] == list(range(1, TRIES_MAX + 1))
    assert lives == TRIES_MAX + 1
    await stage.until_all_came()
    [letter] = await stage.bus.dead.letters()
    assert letter.batch == batch_of(77, server_id=SERVERS[77 % 40])
    assert "the process ended, or its lease, in each of 5 tries" in letter.reason
    one_owner(stage.ledger())
    await stage.until_empty()


async def test_a_worker_that_was_paused_beyond_its_lease_acknowledges_nothing_of_the_others(stage):
    """What it held is the other one's, and no shard ever has two owners."""
    stale = stage.start("stale", "hold")
    await stage.publish(range(100))
    await stage.until_all_came()
    stale.send_signal(signal.SIGSTOP)
    try:
        # It holds everything. The other one holds it too, and acknowledges nothing either.
        stage.start("heir", "hold")
        await stage.until(
            lambda lines: (
                {line["number"] for line in lines if line["by"] == "heir"} == set(range(100))
            )
        )
    finally:
        stale.send_signal(signal.SIGCONT)
    await stage.publish(range(100, 200))
    await stage.until_all_came()
    # Both live: the shards are shared again, and what changes hands is handed over once more.
    await anyio.sleep(1)
    assert await stage.left() == 200
    one_owner(stage.ledger())


async def test_a_worker_paused_in_its_handlers_wakes_up_and_its_acknowledgements_are_refused(stage):
    """It acknowledges as soon as it wakes, and the entries stay the heir's."""
    stale = stage.start("stale", "slow", 2.0, lease_seconds=1.0)
    await stage.publish(range(len(SERVERS)))
    await stage.until(lambda lines: len({line["shard"] for line in lines}) > 20)
    stale.send_signal(signal.SIGSTOP)
    await anyio.sleep(0.2)
    in_hand = await stage.left()
    assert in_hand > 20
    stage.start("heir", "hold", lease_seconds=1.0)
    await stage.until(
        lambda lines: len({line["number"] for line in lines if line["by"] == "heir"}) == in_hand
    )
    stale.send_signal(signal.SIGCONT)
    # Its handlers return at once, and it acknowledges. What it is given anew takes longer.
    await anyio.sleep(1.0)
    assert await stage.left() == in_hand
    one_owner(stage.ledger())


async def test_workers_killed_and_paused_at_random_lose_nothing_and_never_own_together(stage):
    stage.pause_seconds = 0.003
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.publish, range(100_000))
        workers = [stage.start(f"first {n}") for n in range(2)]
        await stage.until(lambda lines: len(lines) > 200)
        for turn in range(6):
            victim = workers[turn % 2]
            if turn % 3 == 2:
                victim.kill()
                victim.wait()
                workers[turn % 2] = stage.start(f"later {turn}")
            else:
                victim.send_signal(signal.SIGSTOP)
                await anyio.sleep(0.3 if turn == 0 else 2.2)
                victim.send_signal(signal.SIGCONT)
            await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    await stage.until_all_came(3 * TAKE_OVER_SECONDS)
    lines = stage.ledger()
    in_order(lines)
    one_owner(lines)
    await stage.until_empty()


async def test_nats_killed_with_minus_nine_while_both_sides_work_loses_nothing(
    start_service, nats_buses_on, tmp_path
):
    """C13: what publish returned from is there afterwards, and the subscribers go on."""
    server = start_service(testkit.NatsServer)
    seen = []

    async def handler(delivery):
        seen.append({"server": delivery.batch.server_id, "number": number_of(delivery)})
        await anyio.sleep(0)
        await delivery.ack()

    async def until(condition):
        with anyio.fail_after(60):
            while not condition():
                await anyio.sleep(0.01)

    async with nats_buses_on(server) as buses:
        stage = Stage(buses, None, tmp_path / "ledger")
        worker = buses(client=buses.client(timeout_seconds=1.0), **SETTINGS)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.subscribe, range(SHARDS), handler)
            async with anyio.create_task_group() as publishing:
                publishing.start_soon(stage.publish, range(100_000))
                for pause in (0.0, 0.3, 2.5):
                    enough = len(stage.accepted) + 100
                    await until(lambda enough=enough: len(stage.accepted) >= enough)
                    await anyio.to_thread.run_sync(server.kill)
                    await anyio.sleep(pause)
                    await anyio.to_thread.run_sync(server.start)
                enough = len(stage.accepted) + 100
                await until(lambda: len(stage.accepted) >= enough)
                publishing.cancel_scope.cancel()
            await until(lambda: {line["number"] for line in seen} >= set(stage.accepted))
            await stage.until_empty()
            tasks.cancel_scope.cancel()
        in_order(seen)
        assert await stage.bus.dead.count() == 0


async def came(hands, number):
    with anyio.fail_after(20):
        while number not in hands.numbers:
            await anyio.sleep(0.01)


async def put(bus, number):
    """Publish as an agent does, until it is taken: this machine has others to serve."""
    with anyio.fail_after(20):
        while True:
            try:
                return await bus.publish(batch_of(number))
            except BusError:
                await anyio.sleep(0.02)


async def test_a_nats_that_hangs_holds_nobody_and_its_leases_are_won_again(
    start_service, nats_buses_on
):
    server = start_service(testkit.NatsServer)
    async with nats_buses_on(server) as buses:
        bus = buses(client=buses.client(timeout_seconds=0.8))
        async with subscribed(bus, hands := Hands()):
            for turn in range(3):
                await put(bus, turn)
                await came(hands, turn)
                server.pause()
                # A process of several threads does not stand still at once.
                await anyio.sleep(0.2)
                with anyio.fail_after(5.0), pytest.raises(BusError, match="gave no answer"):
                    await bus.publish(batch_of(1_000 + turn))
                # Beyond the lease, the second time.
                await anyio.sleep(1.5 if turn == 1 else 0.1)
                server.resume()
                # What was sent to the one that hung may have come: it is there once.
                await put(bus, 1_000 + turn)
                await came(hands, 1_000 + turn)
            server.pause()
            begun = time.monotonic()
        assert time.monotonic() - begun < 10
        server.resume()
    assert list(dict.fromkeys(hands.numbers)) == [0, 1_000, 1, 1_001, 2, 1_002]
