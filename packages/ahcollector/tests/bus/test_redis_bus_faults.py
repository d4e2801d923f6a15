"""Workers and Redis are killed with -9, paused and cut off: nothing is lost, order is kept."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from ahcollector.bus import SHARDS, TRIES_MAX, shard_for
from ahcollector.errors import BusError, RedisError
from ahcollector.testing._contracts.bus import batch_of

# Where the package is tested alone there is no testkit, and none of these tests runs.
testkit = pytest.importorskip("testkit")

pytestmark = [pytest.mark.anyio, pytest.mark.service]
SCRIPT = Path(__file__).with_name("worker_process.py")
SERVERS = [f"server-{n}" for n in range(40)]
SETTINGS = {
    "block_seconds": 0.05,
    "lease_seconds": 1.5,
    "claim_idle_seconds": 1.0,
    "sample_seconds": 0.05,
    "retry_seconds": 0.02,
}
# A lease, and the time in which the other one looks; thrice, for this machine has others to serve.
TAKE_OVER_SECONDS = 3 * (1.5 + 0.5)


class Stage:
    """A publisher (this process), workers, and the ledger of what they got."""

    def __init__(self, buses, stack):
        self.client = buses.client()
        self.bus = buses(client=self.client, queue_batches_max=100_000)
        self.prefix = buses.prefix
        self.port = buses.server.port
        self.stack = stack
        self.accepted = []

    def start(self, name, *options, **more):
        settings = json.dumps(SETTINGS | more)
        arguments = [str(self.port), self.prefix, name, settings, *map(str, options)]
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

    async def ledger(self):
        rows = await self.client.call("LRANGE", self.client.key("ledger"), 0, -1)
        return [json.loads(row) for row in rows]

    async def until(self, condition, seconds=60):
        with anyio.move_on_after(seconds) as scope:
            while not condition(await self.ledger()):
                await anyio.sleep(0.05)
        assert not scope.cancelled_caught, f"the ledger: {(await self.ledger())[-20:]}"

    async def until_all_came(self, seconds=60):
        expected = set(self.accepted)
        await self.until(lambda lines: {line["number"] for line in lines} >= expected, seconds)

    async def left(self):
        """How many entries are in all shards, held or not."""
        keys = [self.client.key("bus", "s", str(shard)) for shard in range(SHARDS)]
        return sum(await self.client.pipeline([("XLEN", key) for key in keys]))


@pytest.fixture
async def stage(buses):
    with ExitStack() as stack:
        yield Stage(buses, stack)


def in_order(lines):
    """Of each server, what is seen for the first time comes in the order of publishing."""
    for server in SERVERS:
        numbers = list(dict.fromkeys(line["number"] for line in lines if line["server"] == server))
        assert numbers == sorted(numbers), [line for line in lines if line["server"] == server]


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
    lines = await stage.ledger()
    in_order(lines)
    assert {line["server"] for line in lines if line["by"] == "heir"} == set(SERVERS)
    assert heir.poll() is None


async def test_what_a_killed_worker_held_is_handed_to_the_next_one_in_the_old_order(stage):
    await stage.publish(range(200))
    holder = stage.start("holder", "hold")
    await stage.until_all_came()
    assert await stage.left() == 200
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    await stage.client.call("DEL", stage.client.key("ledger"))
    await stage.publish(range(200, 300))
    stage.start("heir")
    await stage.until_all_came()
    lines = await stage.ledger()
    for server in SERVERS:
        numbers = [line["number"] for line in lines if line["server"] == server]
        assert numbers == sorted(numbers)
    await stage.until(lambda lines: len(lines) == 300)
    with anyio.fail_after(10):
        while await stage.left():
            await anyio.sleep(0.02)


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
    lines = await stage.ledger()
    assert [line["try"] for line in lines if line["number"] == 77] == list(range(1, TRIES_MAX + 1))
    assert lives == TRIES_MAX + 1
    await stage.until_all_came()
    [letter] = await stage.bus.dead.letters()
    assert letter.batch == batch_of(77, server_id=SERVERS[77 % 40])
    assert "the process ended, or its lease, in each of 5 tries" in letter.reason
    with anyio.fail_after(10):
        while await stage.left():
            await anyio.sleep(0.02)


async def test_a_worker_that_was_paused_beyond_its_lease_acknowledges_nothing_of_the_others(stage):
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
    # Stopped just before it sent a reading, it sends it now: the sweep finds what that got.
    await stage.publish(range(100, 200))
    await stage.until_all_came()
    # Both live: the shards are shared again, and what changes hands is handed over once more.
    await anyio.sleep(1)
    assert await stage.left() == 200


async def test_redis_killed_with_minus_nine_while_both_sides_work_loses_nothing(
    start_service, buses_on
):
    """What is accepted is on its disk, with appendfsync always."""
    server = start_service(testkit.RedisServer, appendfsync="always")
    seen = []

    async def handler(delivery):
        number = int(delivery.batch.request_id, 16)
        seen.append({"server": delivery.batch.server_id, "number": number})
        await anyio.sleep(0)
        await delivery.ack()

    async def until(condition):
        with anyio.fail_after(60):
            while not condition():
                await anyio.sleep(0.01)

    async with buses_on(server) as buses:
        stage = Stage(buses, None)
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
                await until(lambda: len(stage.accepted) >= 400)
                publishing.cancel_scope.cancel()
            await until(lambda: {line["number"] for line in seen} >= set(stage.accepted))
            with anyio.fail_after(30):
                while await stage.left():
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        in_order(seen)
        assert await stage.bus.dead.count() == 0


async def test_a_redis_that_hangs_holds_nobody_and_its_leases_are_won_again(
    start_service, buses_on
):
    server = start_service(testkit.RedisServer)
    async with buses_on(server) as buses:
        client = buses.client(timeout_seconds=0.2)
        bus = buses(client=client)
        taken = []

        async def handler(delivery):
            taken.append(int(delivery.batch.request_id, 16))
            await delivery.ack()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bus.subscribe, range(SHARDS), handler)
            for turn in range(3):
                await bus.publish(batch_of(turn))
                with anyio.fail_after(20):
                    while turn not in taken:
                        await anyio.sleep(0.01)
                server.pause()
                with anyio.fail_after(3 * 0.5), pytest.raises(BusError, match="gave no answer"):
                    await bus.publish(batch_of(1_000 + turn))
                # Beyond the lease, the second time.
                await anyio.sleep(1.5 if turn == 1 else 0.1)
                server.resume()
                with anyio.fail_after(20):
                    while True:
                        try:
                            await client.ping()
                            break
                        except RedisError:
                            await anyio.sleep(0.02)
            server.pause()
            with anyio.fail_after(10):
                tasks.cancel_scope.cancel()
        server.resume()
    assert list(dict.fromkeys(n for n in taken if n < 1_000)) == [0, 1, 2]


def test_the_servers_of_these_tests_are_in_many_shards():
    assert len({shard_for(server) for server in SERVERS}) > 20
