"""C18: two processes store and judge over one Redis while servers are deleted by a third."""

import random
import time

import anyio
import pytest
from test_two_processes import SERVERS, Stage, batch

from ahcollector.bus import SHARDS
from ahcollector.clock import SystemClock
from ahcollector.presence.memory import MemoryPresence
from ahcollector.registry import Directory, NegativeCache
from ahwire import AgentRecord, UUID7Generator
from ahwire.hub import AgentState

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.anyio]


class Office(Stage):
    """The admin door, besides."""

    def __init__(self, client, port):
        from ahcollector.departures.redis import RedisDepartures
        from ahcollector.registry.redis import RedisRegistry

        super().__init__(client, port)
        clock = SystemClock()
        self.client = client
        self.directory = Directory(
            registry=RedisRegistry(client=client),
            presence=MemoryPresence(event_ids=UUID7Generator(clock, random.Random(1)).next),
            negative=NegativeCache(),
            clock=clock,
            departures=RedisDepartures(client=client),
        )

    async def enrol(self, version=1):
        for number, server in enumerate(SERVERS):
            record = AgentRecord(
                agent_id=f"agent-{server}",
                company_id="acme",
                server_id=server,
                state=AgentState.ACTIVE,
                token_hash=f"{number:064x}",
                version=version,
            )
            await self.directory.put(record)

    async def written(self):
        words = await self.client.call("LRANGE", self.client.key("written"), 0, -1)
        return [tuple(word.decode().split("/")) for word in words]

    async def on_the_bus(self):
        keys = [self.client.key("bus", "s", str(shard)) for shard in range(SHARDS)]
        return sum([await self.client.call("XLEN", key) for key in keys])

    async def until_written(self, count):
        with anyio.fail_after(20):
            while len(set(await self.written())) < count:
                await anyio.sleep(0.05)


@pytest.fixture
async def office(redis_server, client):
    office = Office(client, redis_server.port)
    await office.enrol()
    yield office
    while office.processes:
        office.kill()


async def test_what_waited_on_the_bus_is_neither_stored_nor_judged(office):
    """C18: accepted while nobody took batches, and taken up after the deletion."""
    deleted, revoked = SERVERS[0], SERVERS[1]
    await office.publish(3)
    await office.directory.delete_server("acme", deleted)
    await office.directory.revoke(f"agent-{revoked}")
    office.start()
    office.start()
    await office.until_told(3 * (len(SERVERS) - 2))
    await office.until_written(3 * (len(SERVERS) - 1))
    await anyio.sleep(1.0)
    assert await office.outbox.peek(10) == []
    assert {event.server_id for event in office.events} == set(SERVERS) - {deleted, revoked}
    assert {server for server, _ in await office.written()} == set(SERVERS) - {deleted}
    assert await office.on_the_bus() == 0, "what was dropped is acknowledged"
    # Enrolled again, under the same ids.
    await office.enrol(version=2)
    for server in (deleted, revoked):
        await office.bus.publish(batch(server, 2, round(time.time() * 1000)))
    await office.until_told(3 * (len(SERVERS) - 2) + 2)
    assert {event.server_id for event in office.events[-2:]} == {deleted, revoked}


async def test_open_alerts_of_who_left_end_once_though_their_owner_is_killed(office):
    """C18: the departure is in Redis, and whoever takes over the shard goes by it."""
    office.start()
    office.start()
    await office.publish(1)
    await office.until_told(len(SERVERS))
    left = SERVERS[:4]
    for server in left[:2]:
        await office.directory.delete_server("acme", server)
    for server in left[2:]:
        await office.directory.revoke(f"agent-{server}")
    office.kill()
    await office.until_told(len(SERVERS) + len(left))
    await anyio.sleep(1.0)
    assert await office.outbox.peek(10) == []
    ended = office.events[len(SERVERS) :]
    assert sorted(event.server_id for event in ended) == sorted(left)
    assert {(event.type.value, event.reason) for event in ended} == {
        ("alert.resolved", "forgotten")
    }
