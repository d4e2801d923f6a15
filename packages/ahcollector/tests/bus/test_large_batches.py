"""Large batches that wait in all shards are read, and keep nothing else from its connection."""

import json
import os

import pytest
from bus_hands import Hands, subscribed
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.bus import SHARDS
from ahcollector.bus._bulk import READ_BYTES, READ_ENTRIES, Ration, Turns
from ahcollector.bus._entries import encode
from ahcollector.bus._hand_over import Read
from ahcollector.bus._jetstream_consumer import LARGE_TOGETHER
from ahcollector.bus._streams import ShardStreams
from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.bus.jetstream import BufferSize
from ahcollector.nats import NatsClient
from ahcollector.redis import RedisClient

pytestmark = [pytest.mark.anyio, pytest.mark.service]

LARGE_BYTES = 900_000
EACH = 3


def large_batch():
    text = os.urandom(LARGE_BYTES // 2).hex()
    series = (StoredSeries(labels=(("i", text),), points=((1, 1.0),)),)
    return SampleBatch(
        company_id="acme",
        server_id="web-1",
        agent_id="a",
        request_id="1",
        received_at_ms=1,
        series=series,
    )


async def put_large(client, *, shards=range(SHARDS), each=EACH):
    text = encode(large_batch())
    for shard in shards:
        for _ in range(each):
            await client.call("XADD", client.key("bus", "s", str(shard)), "*", "b", text)


def weight(reply):
    if isinstance(reply, bytes):
        return len(reply)
    if isinstance(reply, dict):
        return weight([*reply, *reply.values()])
    return sum(map(weight, reply)) if isinstance(reply, list | tuple) else 8


@pytest.fixture
def weights(monkeypatch):
    """What each reply of Redis weighs."""
    found = []

    def measured(method):
        async def measure(self, *command, **more):
            reply = await method(self, *command, **more)
            found.append(weight(reply))
            return reply

        return measure

    for name in ("call", "run"):
        monkeypatch.setattr(RedisClient, name, measured(getattr(RedisClient, name)))
    return found


@pytest.mark.fault
async def test_large_batches_in_all_shards_come_in_replies_of_few_megabytes(buses, weights):
    """A worker comes to a backlog of batches as large as the door takes (C6, C8)."""
    await put_large(buses.client())
    bus = buses(client=buses.client(timeout_seconds=1.0))
    async with subscribed(bus, hands := Hands()):
        await hands.have(SHARDS * EACH)
    assert len(hands.taken) == SHARDS * EACH
    assert max(weights) <= 2 * READ_BYTES


@pytest.mark.fault
async def test_large_batches_that_another_had_read_are_taken_over_in_parts(buses, weights):
    """C9: what a worker that died had read may be far more than a reply brings in its time."""
    client = buses.client()
    streams = ShardStreams(client=client)
    await streams.take("dead", range(2), lease_ms=1)
    await put_large(client, shards=range(2), each=20)
    for _ in range(10):
        await streams.read(range(2), count=2, block_ms=None)
    bus = buses(client=buses.client(timeout_seconds=1.0))
    async with subscribed(bus, hands := Hands()):
        await hands.have(40)
    assert len(hands.taken) == 40
    assert max(weights) <= 2 * READ_BYTES


class Pulls(NatsClient):
    """Notes how many entries, of how many bytes at most, are asked for at a time."""

    async def on(self, line, subject, data, *, reply):
        if "CONSUMER.MSG.NEXT" in subject:
            asked = json.loads(data)
            self.asked.add((asked["batch"], asked["max_bytes"]))
        await super().on(line, subject, data, reply=reply)


@pytest.mark.fault
async def test_large_batches_in_all_shards_never_fill_what_nats_holds_for_a_connection(nats_buses):
    """C8: NATS cuts a connection off that has more than 64 MB to come."""
    client = nats_buses.client(Pulls)
    client.asked = set()
    bus = nats_buses(client=client, size=BufferSize(bytes_max=512 << 20))
    await bus.check()
    text = encode(large_batch())
    for shard in range(SHARDS):
        for number in range(EACH):
            header = {"Nats-Msg-Id": f"{shard}-{number}"}
            await bus._api.put(bus._names.shard(shard), text, header)
    async with subscribed(bus, hands := Hands()):
        await hands.have(SHARDS * EACH)
    assert len(hands.taken) == SHARDS * EACH
    common = {asked for asked in client.asked if asked[0] > 1}
    [(_, large_bytes)] = client.asked - common
    [(_, common_bytes)] = common
    assert SHARDS * common_bytes + LARGE_TOGETHER * large_bytes <= 32 << 20
    # Who had taken room has given it back.
    assert bus._room.value == LARGE_TOGETHER


def read_of(size):
    return Read(entry_id=b"1-0", tries=1, data=bytes(size))


def test_small_entries_are_read_by_many_and_after_a_failure_few_are():
    ration = Ration()
    assert ration.entries <= 2
    for _ in range(12):
        ration.came([read_of(1_000)])
    assert ration.of_one == READ_ENTRIES
    ration.failed()
    assert ration.entries == 1
    ration.came([])
    assert ration.entries == 1


@given(st.lists(st.integers(1, 4_000_000), max_size=20), st.integers(1, SHARDS))
def test_every_shard_has_its_turn_and_then_all_are_waited_for(sizes, many):
    ration = Ration()
    for size in sizes:
        ration.came([read_of(size)])
    turns = Turns(ration)
    seen = set()
    for _ in range(SHARDS + 1):
        shards, count, may_wait = turns.next(range(many))
        assert 1 <= count <= READ_ENTRIES
        assert may_wait or len(shards) * count <= ration.entries
        if may_wait:
            assert len(shards) == many
            break
        assert seen.isdisjoint(shards) or len(seen) > many - ration.entries
        seen.update(shards)
        turns.came(shards, is_any=False)
    else:
        pytest.fail("it never waits")
