"""Commands fail at random, before or after Redis did them, while two workers share the shards."""

import random

import anyio
import attrs
import pytest

from ahcollector.bus import SHARDS
from ahcollector.errors import BusError, RedisError
from ahcollector.redis import RedisClient
from ahcollector.testing._contracts.bus import batch_of

pytestmark = [pytest.mark.anyio, pytest.mark.service]
SERVERS = [f"server-{n}" for n in range(12)]
COUNT = 240


class Storm:
    """Decides which commands fail, and how."""

    def __init__(self, seed, share):
        self.rng = random.Random(seed)
        self.share = share
        self.failed = 0

    def strikes(self):
        found = self.rng.random()
        if found >= self.share:
            return None
        self.failed += 1
        return "not sent" if found < self.share / 2 else "reply lost"


class Struck(RedisClient):
    """A client in a storm; so are those it makes."""

    storm = None

    async def _settled(self, what, send):
        how = self.storm.strikes()
        if how == "not sent":
            raise RedisError(f"injected: {what} was not sent")
        reply = await super()._settled(what, send)
        if how == "reply lost":
            raise RedisError(f"injected: the reply to {what} was lost")
        return reply

    def for_blocking(self, *, block_seconds, connections_max):
        config = attrs.evolve(self._config, connections_max=connections_max)
        client = Struck(config=config)
        client.storm = self.storm
        return client


async def weather(buses, storm):
    """Publish, take, come and go in the storm; return what each server's entries were, in order."""
    rng = random.Random(storm.rng.random())
    seen = {server: [] for server in SERVERS}

    def bus():
        client = buses.client(Struck)
        client.storm = storm
        return buses(client=client, queue_batches_max=10_000, claim_idle_seconds=60.0)

    async def handler(delivery):
        if rng.random() < 0.02:
            raise LookupError("now and then")
        seen[delivery.batch.server_id].append(int(delivery.batch.request_id, 16))
        await anyio.sleep(rng.choice([0, 0, 0, 0.002]))
        if rng.random() < 0.1:
            await delivery.receipt.again()
        await delivery.ack()

    async def come_and_go(worker):
        for _ in range(3):
            with anyio.move_on_after(0.2 + rng.random()):
                await worker.subscribe(range(SHARDS), handler)

    publisher = bus()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus().subscribe, range(SHARDS), handler)
        tasks.start_soon(come_and_go, bus())
        for number in range(COUNT):
            batch = batch_of(number, server_id=SERVERS[number % len(SERVERS)])
            while True:
                try:
                    await publisher.publish(batch)
                    break
                except BusError:
                    await anyio.sleep(0.002)
            await anyio.sleep(rng.choice([0, 0.002, 0.01]))
        storm.share = 0.0
        client = buses.client()
        keys = [client.key("bus", "s", str(shard)) for shard in range(SHARDS)]
        with anyio.fail_after(60):
            while any(await client.pipeline([("XLEN", key) for key in keys])):
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert await publisher.dead.count() == 0
    return seen


async def check(buses, seed):
    storm = Storm(seed, 0.05)
    seen = await weather(buses, storm)
    assert storm.failed > 10
    for place, server in enumerate(SERVERS):
        # Whatever came twice, for the first time it came in its turn, and all came.
        assert list(dict.fromkeys(seen[server])) == list(range(place, COUNT, len(SERVERS)))


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_fails_everything_accepted_comes_in_order(buses, seed):
    """C10."""
    await check(buses, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 150))
async def test_whatever_fails_in_many_storms(buses, seed):
    await check(buses, seed)
