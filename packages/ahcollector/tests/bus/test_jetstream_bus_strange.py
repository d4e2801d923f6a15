"""A bus on NATS whose keys somebody wrote over: no server ends for it, and every shard is read."""

import anyio
import pytest
from bus_hands import Hands, subscribed, until

from ahcollector.bus import shard_for
from ahcollector.metrics import PrometheusMetrics
from ahcollector.testing._contracts.bus import batch_of

pytestmark = [pytest.mark.anyio, pytest.mark.service]

SHARD = 5
SOME = range(3, 8)


def server_of(shard):
    return next(name for n in range(10_000) if shard_for(name := f"server-{n}") == shard)


class Scene:
    """A bus, who publishes to some of its shards, and what came."""

    def __init__(self, buses):
        self.metrics = PrometheusMetrics()
        self.bus = buses(metrics=self.metrics)
        self.hands = Hands()
        self.number = 0

    async def write(self, key, data):
        await self.bus._api.put(self.bus._names.key(key), data, {})

    async def comes(self, seconds=10):
        """Publish to each of some shards, and return when all of it came."""
        expected = set()
        for shard in SOME:
            self.number += 1
            await self.bus.publish(batch_of(self.number, server_id=server_of(shard)))
            expected.add(self.number)

        async def all_came():
            return expected <= set(self.hands.numbers)

        await until(all_came, seconds)

    def strange(self, kind):
        name = f'ahc_bus_strange_total{{key="{kind}"}}'
        rows = self.metrics.exposition().decode().splitlines()
        return sum(float(row.split()[-1]) for row in rows if row.startswith(name))


TABLES = {
    "junk": b"junk",
    "empty": b"",
    "no number": b'{"fence":1e999,"workers":{},"owners":{}}',
    "deep": b"[" * 200_000,
    "a fence of digits": b'{"fence":' + b"9" * 4_000 + b',"workers":{},"owners":{}}',
    "a fence below": b'{"fence":-5,"workers":{},"owners":{}}',
    "a beat that is none": b'{"fence":1,"workers":{"x":{"beat":1e999,"wants":[]}},"owners":{}}',
}


@pytest.mark.parametrize("data", TABLES.values(), ids=TABLES)
async def test_a_table_of_leases_that_is_none_is_made_anew(nats_buses, data, caplog):
    """It is told and counted."""
    scene = Scene(nats_buses)
    async with subscribed(scene.bus, scene.hands, SOME):
        await scene.comes()
        await scene.write("leases", data)
        await anyio.sleep(0.5)
        await scene.comes()
        await anyio.sleep(1.1)
        await scene.comes()
    assert scene.strange("table") == 1
    assert "leases held no table of leases" in caplog.records[0].error


async def test_workers_of_shards_that_do_not_exist_take_none_away(nats_buses):
    """A worker that shows no life is gone after a lease."""
    scene = Scene(nats_buses)
    async with subscribed(scene.bus, scene.hands, SOME):
        await scene.comes()
        await scene.write(
            "leases",
            b'{"fence":1,"workers":{"x":{"beat":1,"wants":[-5,999]}},"owners":{"5":["x",-4]}}',
        )
        await scene.comes(15)


TRIES = {
    "no number": b'{"fence":1e999,"before":0,"tries":{}}',
    "deep": b"[" * 200_000,
    "a fence of digits": b'{"fence":' + b"9" * 4_000 + b',"before":0,"tries":{}}',
    "a fence to come": b'{"fence":99999999999999,"before":0,"tries":{}}',
    "junk": b"junk",
}


@pytest.mark.parametrize("data", TRIES.values(), ids=TRIES)
async def test_tries_that_nobody_wrote_keep_no_shard_from_its_owner(nats_buses, data, caplog):
    """Also those of a fence that is to come: the next taking has one above it."""
    scene = Scene(nats_buses)
    # Made by a first subscription, which leaves all it had.
    async with subscribed(scene.bus, scene.hands, SOME):
        await scene.comes()
    await scene.write(f"tries.{SHARD}", data)
    async with subscribed(scene.bus, scene.hands, SOME):
        await scene.comes()
        await scene.comes()

        async def all_held():
            return len(scene.bus.tenures()) == len(SOME)

        await until(all_held)
        await anyio.sleep(0.5)
    assert scene.strange("tries") >= 1
    assert "no worker wrote" in caplog.text


@pytest.mark.parametrize("shard", ["²", "9" * 5_000, "64", "-1", "5x", ""])
async def test_a_letter_of_a_shard_that_is_none_is_listed(nats_buses, shard):
    """It names no shard."""
    scene = Scene(nats_buses)
    async with subscribed(scene.bus, scene.hands, SOME):
        await scene.comes()
    dead = f"{nats_buses.prefix}.bus.dead"
    headers = {"Ah-Shard": shard, "Ah-At": "1e999"}
    await scene.bus._api.put(dead, b"junk", headers)
    [letter] = await scene.bus.dead.letters()
    assert (letter.shard, letter.dead_at, letter.batch) == (None, 0.0, None)
