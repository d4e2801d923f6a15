"""A Redis that is full, and keys of the bus that somebody deleted or wrote over."""

import logging
import os

import anyio
import attrs
import pytest
from bus_hands import Hands, subscribed, until

from ahcollector.bus import SHARDS, shard_for
from ahcollector.bus._entries import encode
from ahcollector.errors import BusError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing._contracts.bus import batch_of

pytestmark = [pytest.mark.anyio, pytest.mark.service]

SHARD = 5


def server_of(shard):
    return next(name for n in range(10_000) if shard_for(name := f"server-{n}") == shard)


NAMES = [server_of(shard) for shard in range(SHARDS)]


class Scene:
    """A bus, who publishes to all its shards, and what came."""

    def __init__(self, buses):
        self.client = buses.client()
        self.metrics = PrometheusMetrics()
        self.bus = buses(client=self.client, metrics=self.metrics)
        self.hands = Hands()
        self.number = 0

    def key(self, *parts):
        return self.client.key("bus", *map(str, parts))

    async def publish(self, shards=range(SHARDS)):
        """Publish one batch to each; return the numbers of those that were accepted."""
        accepted = set()
        for shard in shards:
            self.number += 1
            try:
                await self.bus.publish(batch_of(self.number, server_id=NAMES[shard]))
            except BusError:
                continue
            accepted.add(self.number)
        return accepted

    async def came(self, numbers, seconds=10):
        async def all_came():
            return numbers <= set(self.hands.numbers)

        await until(all_came, seconds)

    async def untouched(self):
        """Return when every shard has its owner and what is published comes."""

        async def all_held():
            return len(self.bus.tenures()) == SHARDS

        await until(all_held)
        await self.came(await self.publish())

    def strange(self, kind):
        name = f'ahc_bus_strange_total{{key="{kind}"}}'
        rows = self.metrics.exposition().decode().splitlines()
        return sum(float(row.split()[-1]) for row in rows if row.startswith(name))


@pytest.fixture
async def scene(buses):
    return Scene(buses)


# --- full


@pytest.mark.fault
async def test_a_full_redis_drains_by_itself_and_only_publishing_is_refused(
    private_redis, buses_on
):
    """C8: leases go on, what waits is read and acknowledged, and then there is room again."""
    async with buses_on(private_redis) as buses:
        scene = Scene(buses)
        bus = buses(client=scene.client, queue_batches_max=100_000)
        scene.bus = bus
        gate = anyio.Event()
        accepted = set()

        class Waiting(Hands):
            async def __call__(self, delivery):
                await gate.wait()
                await super().__call__(delivery)

        scene.hands = Waiting()
        await scene.client.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        used = (await scene.client.call("INFO", "memory"))["used_memory"]
        await scene.client.call("CONFIG", "SET", "maxmemory", used + (6 << 20))
        async with subscribed(bus, scene.hands):

            async def all_held():
                return len(bus.tenures()) == SHARDS

            await until(all_held)
            # Which is in no entry twice, so that it takes its place.
            for number in range(5_000):
                noise = attrs.evolve(
                    batch_of(number, server_id=NAMES[number % SHARDS]),
                    agent_id=os.urandom(8_000).hex(),
                )
                try:
                    await bus.publish(noise)
                except BusError as error:
                    assert "OOM" in str(error)  # noqa: PT017 - it is no error before
                    break
                accepted.add(number)
            assert 100 < len(accepted) < 5_000
            # Now surely over, as when other keys or the buffers of connections grew.
            used = (await scene.client.call("INFO", "memory"))["used_memory"]
            await scene.client.call("CONFIG", "SET", "maxmemory", used - (1 << 20))
            await anyio.sleep(2.5)
            assert len(bus.tenures()) == SHARDS, "leases ended, over two times their length"
            gate.set()
            await scene.came(accepted, 30)

            async def is_empty():
                keys = [scene.key("s", shard) for shard in range(SHARDS)]
                return not sum(await scene.client.pipeline([("XLEN", key) for key in keys]))

            await until(is_empty)
            await bus.publish(batch_of(100_000))
            await scene.came({100_000})
        # A worker that comes to a full Redis has its share, too.
        await scene.client.call("CONFIG", "SET", "maxmemory", 1)
        async with subscribed(bus, Hands()):
            await until(all_held)


# --- deleted


@pytest.mark.parametrize("what", ["stream", "group"])
async def test_a_stream_or_group_that_is_deleted_is_read_again_in_a_moment(scene, what, caplog):
    """Also what was published before anybody noticed; the log tells once."""
    caplog.set_level(logging.INFO, "ahcollector.bus")
    async with subscribed(scene.bus, scene.hands):
        await scene.untouched()
        if what == "stream":
            await scene.client.call("DEL", scene.key("s", SHARD))
        else:
            await scene.client.call("XGROUP", "DESTROY", scene.key("s", SHARD), "workers")
        accepted = await scene.publish()
        assert len(accepted) == SHARDS
        await scene.came(accepted, 3)
        await scene.came(await scene.publish(), 3)
    assert scene.strange("group") == 1
    lines = [one for one in caplog.records if "no worker wrote" in one.getMessage()]
    assert len(lines) == 1
    assert f"{scene.key('s', SHARD)} has no group workers any more" in lines[0].error


async def test_a_group_that_is_deleted_under_held_entries_hands_them_over_anew(scene):
    """What was held is in the stream still; the late acknowledgement has no effect."""
    scene.hands.acks = False
    async with subscribed(scene.bus, scene.hands):
        numbers = await scene.publish([SHARD])
        await scene.came(numbers)
        [first] = scene.hands.taken
        await scene.client.call("XGROUP", "DESTROY", scene.key("s", SHARD), "workers")
        await scene.hands.have(2)
        await first.ack()
        await anyio.sleep(0.2)
        assert await scene.client.call("XLEN", scene.key("s", SHARD)) == 1
        await scene.hands.taken[1].ack()

        async def is_empty():
            return not await scene.client.call("XLEN", scene.key("s", SHARD))

        await until(is_empty)


# --- written over


HARMLESS = {
    "wants": [("HSET", "wants", "x", "junk"), ("ZADD", "workers", "9e15", "x")],
    "wants of no shard": [("HSET", "wants", "x", "5,99"), ("ZADD", "workers", "+inf", "x")],
    "wants of no worker": [("HSET", "wants", "x", "5")],
    "wants of digits": [("HSET", "wants", "x", "9" * 5_000), ("ZADD", "workers", "9e15", "x")],
    "a worker for ever": [("HSET", "wants", "x", "5"), ("ZADD", "workers", "9e15", "x")],
    "workers of a wrong type": [("DEL", "workers"), ("SET", "workers", "x")],
    "wants of a wrong type": [("DEL", "wants"), ("LPUSH", "wants", "x")],
    "a lease of junk": [("SET", f"own:{SHARD}", "junk")],
    "a lease of junk for years": [("SET", f"own:{SHARD}", b"\xff", "PX", 10**12)],
    "a lease without end": [("SET", f"own:{SHARD}", "1700000000000 nobody")],
    "a fence of junk": [("HSET", "fence", SHARD, "junk"), ("DEL", f"own:{SHARD}")],
    "a fence of digits": [("HSET", "fence", SHARD, "9" * 400), ("DEL", f"own:{SHARD}")],
    "a fence of a wrong type": [("DEL", "fence"), ("SET", "fence", 1), ("DEL", f"own:{SHARD}")],
}


@pytest.mark.parametrize("commands", HARMLESS.values(), ids=HARMLESS)
async def test_what_no_worker_wrote_counts_for_nothing(scene, commands, caplog):
    """No server ends for it, and every shard is read."""
    async with subscribed(scene.bus, scene.hands):
        await scene.untouched()
        for command, key, *more in commands:
            await scene.client.call(command, scene.key(key), *more)
        for _ in range(3):
            # Over more than a lease.
            await scene.came(await scene.publish(), 5)
            await anyio.sleep(0.4)
        await scene.untouched()
    kinds = {"workers", "wants", "lease", "fence"}
    if commands[0][:2] != ("HSET", "fence"):
        assert sum(map(scene.strange, kinds)) >= 1
        assert "no worker wrote" in caplog.text


@pytest.mark.parametrize(
    ("key", "kind"), [(f"s:{SHARD}", "stream"), (f"own:{SHARD}", "lease")], ids=["stream", "lease"]
)
async def test_a_key_of_a_wrong_type_stops_its_own_shard_and_is_named(scene, key, kind, caplog):
    """Until somebody deletes it."""
    others = [shard for shard in range(SHARDS) if shard != SHARD]
    async with subscribed(scene.bus, scene.hands):
        await scene.untouched()
        await scene.client.pipeline([("DEL", scene.key(key)), ("SADD", scene.key(key), "junk")])
        for _ in range(3):
            await scene.came(await scene.publish(others), 5)
            await anyio.sleep(0.4)
        if kind == "stream":
            with pytest.raises(BusError, match=rf"{scene.key(key)}: .*WRONGTYPE"):
                await scene.bus.publish(batch_of(1, server_id=NAMES[SHARD]))
        await scene.client.call("DEL", scene.key(key))
        await scene.untouched()
    assert scene.strange(kind) >= 1
    found = [one for one in caplog.records if "no worker wrote" in one.getMessage()]
    assert f"{scene.key(key)} is a set and no" in found[0].error


async def test_of_entries_that_go_together_those_of_good_shards_are_on_the_bus(scene):
    """The others fail alone, each with its key."""
    await scene.client.call("SET", scene.key("s", SHARD), "junk")
    failed, accepted = [], []

    async def publish(shard):
        try:
            await scene.bus.publish(batch_of(shard, server_id=NAMES[shard]))
        except BusError as error:
            failed.append((shard, str(error)))
        else:
            accepted.append(shard)

    async with anyio.create_task_group() as tasks:
        for shard in range(10):
            tasks.start_soon(publish, shard)
    assert sorted(accepted) == [shard for shard in range(10) if shard != SHARD]
    [(shard, text)] = failed
    assert shard == SHARD
    assert scene.key("s", SHARD) in text


# --- dead letters


async def test_a_letter_that_no_worker_wrote_blocks_none_behind_it(scene):
    """What is an entry in it is replayed, too."""
    dead = scene.key("dead")
    await scene.client.call("XADD", dead, "*", "b", encode(batch_of(1)))
    await scene.client.call("XADD", dead, "*", "b", "junk", "b", encode(batch_of(9)))
    await scene.client.call("XADD", dead, "*", "x", "y")
    await scene.client.call("XADD", dead, "*", "shard", "9" * 5_000, "at", "1e999", "reason", "r")
    good = ("shard", "5", "reason", "r", "at", "1", "b", encode(batch_of(2)))
    await scene.client.call("XADD", dead, "*", *good)
    letters = await scene.bus.dead.letters()
    assert [one.shard for one in letters] == [None, None, None, None, 5]
    assert [one.dead_at for one in letters] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert await scene.bus.dead.replay(None) == 2
    assert await scene.bus.dead.count() == 3
    async with subscribed(scene.bus, scene.hands):
        await scene.came({1, 2})


@pytest.mark.fault
async def test_an_entry_of_very_many_fields_is_a_dead_letter(scene):
    """C9: no command of a script takes them all; the shard goes on."""
    fields = [f"f{n}" for n in range(20_000)]
    await scene.client.call("XADD", scene.key("s", SHARD), "*", *fields)
    async with subscribed(scene.bus, scene.hands):
        await scene.untouched()
    [letter] = await scene.bus.dead.letters()
    assert letter.shard == SHARD


async def test_dead_letters_of_a_wrong_type_lose_no_entry(scene):
    """It stays pending until there is a place for it."""
    await scene.client.call("SET", scene.key("dead"), "junk")
    await scene.client.call("XADD", scene.key("s", SHARD), "*", "b", "junk")
    others = [shard for shard in range(SHARDS) if shard != SHARD]
    async with subscribed(scene.bus, scene.hands):
        await scene.came(await scene.publish(others))
        await anyio.sleep(0.3)
        pending = await scene.client.call("XPENDING", scene.key("s", SHARD), "workers")
        assert pending["pending"] == 1
        await scene.client.call("DEL", scene.key("dead"))

        async def is_there():
            return await scene.bus.dead.count() == 1

        await until(is_there)
