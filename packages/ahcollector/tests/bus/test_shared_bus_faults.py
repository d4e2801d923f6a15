"""Workers and what keeps the bus are killed with -9, paused and cut off, on Redis and on NATS.

Nothing is lost, the order of a server is kept, and no shard has two owners.
"""

import signal
import time
from contextlib import ExitStack

import anyio
import pytest
from bus_hands import Hands, number_of, subscribed
from bus_stage import LEASE_SECONDS, SERVERS, TAKE_OVER_SECONDS, Stage, in_order, one_owner

from ahcollector.bus import SHARDS, TRIES_MAX, shard_for
from ahcollector.errors import BusError
from ahcollector.testing._contracts.bus import batch_of

# Where the package is tested alone there is no testkit, and none of these tests runs.
testkit = pytest.importorskip("testkit")

pytestmark = [pytest.mark.anyio, pytest.mark.service, pytest.mark.fault]

# Real times, shortened, of the buses in which workers live and die.
ON_REDIS = {
    "block_seconds": 0.05,
    "lease_seconds": LEASE_SECONDS,
    "claim_idle_seconds": 1.0,
    "sample_seconds": 0.05,
    "retry_seconds": 0.02,
}
ON_NATS = {
    "lease_seconds": LEASE_SECONDS,
    "pull_seconds": 2.0,
    "sample_seconds": 0.05,
    "retry_seconds": 0.02,
}


class OnRedis:
    kind = "redis"
    buses = "buses"
    settings = ON_REDIS
    timeout_seconds = 0.2

    @staticmethod
    def start(start_service):
        return start_service(testkit.RedisServer, appendfsync="always")

    @staticmethod
    def address(server):
        return server.port

    @staticmethod
    def publisher(buses):
        return buses(queue_batches_max=100_000)

    @staticmethod
    def left(buses, bus):
        client = buses.client()

        async def left():
            keys = [client.key("bus", "s", str(shard)) for shard in range(SHARDS)]
            return sum(await client.pipeline([("XLEN", key) for key in keys]))

        return left


class OnNats:
    kind = "nats"
    buses = "nats_buses"
    settings = ON_NATS
    timeout_seconds = 0.8

    @staticmethod
    def start(start_service):
        return start_service(testkit.NatsServer)

    @staticmethod
    def address(server):
        return server.url

    @staticmethod
    def publisher(buses):
        return buses(client=buses.client(timeout_seconds=1.0))

    @staticmethod
    def left(buses, bus):
        async def left():
            info = await bus._api.ask(f"STREAM.INFO.{bus._names.stream}")
            return info["state"]["messages"]

        return left


@pytest.fixture(params=[OnRedis, OnNats], ids=["redis", "nats"])
def on(request):
    return request.param


@pytest.fixture
def stage_of(on, tmp_path):
    """Make a stage: `stage_of(buses)`; its workers end with the stack that is given."""

    def stage_of(buses, stack=None):
        bus = on.publisher(buses)
        return Stage(
            kind=on.kind,
            address=on.address(buses.server),
            prefix=buses.prefix,
            bus=bus,
            left=on.left(buses, bus),
            settings=on.settings,
            ledger=tmp_path / "ledger",
            stack=stack,
        )

    return stage_of


@pytest.fixture
def stage(request, on, stage_of):
    with ExitStack() as stack:
        yield stage_of(request.getfixturevalue(on.buses), stack)


@pytest.fixture
def buses_of_its_own(on, request, start_service):
    """A server of the test's own and what makes buses on it: `async with buses_of_its_own()`."""
    buses_on = request.getfixturevalue(f"{on.buses}_on")
    return lambda: buses_on(on.start(start_service))


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
    one_owner(stage.ledger(), pauses=1)


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
    one_owner(stage.ledger(), pauses=1)


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
    one_owner(lines, pauses=4)
    await stage.until_empty()


async def test_a_service_killed_with_minus_nine_while_both_sides_work_loses_nothing(
    on, buses_of_its_own, stage_of
):
    """C13: what publish returned from is there afterwards, and the subscribers go on."""
    seen = []

    async def handler(delivery):
        seen.append({"server": delivery.batch.server_id, "number": number_of(delivery)})
        await anyio.sleep(0)
        await delivery.ack()

    async def until(condition):
        with anyio.fail_after(60):
            while not condition():
                await anyio.sleep(0.01)

    async with buses_of_its_own() as buses:
        stage = stage_of(buses)
        worker = buses(client=buses.client(timeout_seconds=1.0), **on.settings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.subscribe, range(SHARDS), handler)
            async with anyio.create_task_group() as publishing:
                publishing.start_soon(stage.publish, range(100_000))
                for pause in (0.0, 0.3, 2.5):
                    enough = len(stage.accepted) + 100
                    await until(lambda enough=enough: len(stage.accepted) >= enough)
                    await anyio.to_thread.run_sync(buses.server.kill)
                    await anyio.sleep(pause)
                    await anyio.to_thread.run_sync(buses.server.start)
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


async def test_a_service_that_hangs_holds_nobody_and_its_leases_are_won_again(on, buses_of_its_own):
    async with buses_of_its_own() as buses:
        bus = buses(client=buses.client(timeout_seconds=on.timeout_seconds))
        async with subscribed(bus, hands := Hands()):
            for turn in range(3):
                await put(bus, turn)
                await came(hands, turn)
                buses.server.pause()
                # A process of several threads does not stand still at once.
                await anyio.sleep(0.2)
                with anyio.fail_after(5.0), pytest.raises(BusError, match="gave no answer"):
                    await bus.publish(batch_of(1_000 + turn))
                # Beyond the lease, the second time.
                await anyio.sleep(1.5 if turn == 1 else 0.1)
                buses.server.resume()
                # What was sent to the one that hung may have come: it is there once.
                await put(bus, 1_000 + turn)
                await came(hands, 1_000 + turn)
            buses.server.pause()
            begun = time.monotonic()
        assert time.monotonic() - begun < 10
        buses.server.resume()
    assert list(dict.fromkeys(hands.numbers)) == [0, 1_000, 1, 1_001, 2, 1_002]


def test_the_servers_of_these_tests_are_in_many_shards():
    assert len({shard_for(server) for server in SERVERS}) > 20
