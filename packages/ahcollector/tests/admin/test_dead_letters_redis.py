"""Dead letters over the admin door where Redis keeps them: batches and entries of the bus."""

import random
import uuid

import anyio
import httpx
import pytest

from ahcollector.admin import admin_app
from ahcollector.presence import MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache
from ahcollector.store import MemoryStore
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of
from ahwire import UUID7Generator

pytestmark = [pytest.mark.service, pytest.mark.anyio]
TOKEN = "canary-admin-token-1"
NOW = 1_790_000_000.0


class Office:
    """The admin door of a process that has a bus and dead batches in Redis."""

    def __init__(self, port, prefix, **bounds):
        from ahcollector.bus.redis import RedisBus
        from ahcollector.redis import RedisClient, RedisConfig
        from ahcollector.worker.redis import RedisDeadBatches

        self.redis = RedisClient(
            config=RedisConfig(port=port, prefix=prefix, timeout_seconds=2, connections_max=20)
        )
        self.bus = RedisBus(
            client=self.redis, sample_seconds=0.0, block_seconds=0.05, retry_seconds=0.01, **bounds
        )
        self.dead = RedisDeadBatches(client=self.redis)
        clock = FakeClock(NOW)
        presence = MemoryPresence(event_ids=UUID7Generator(clock, random.Random(1)).next)
        registry = MemoryRegistry()
        app = admin_app(
            token=TOKEN,
            registry=registry,
            directory=Directory(
                registry=registry, presence=presence, negative=NegativeCache(), clock=clock
            ),
            presence=presence,
            store=MemoryStore(clock=clock),
            dead_batches=self.dead,
            bus=self.bus,
            bus_dead=self.bus.dead,
            clock=clock,
        )
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app),
            base_url="http://admin/admin/v1",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    async def ask(self, method, path, **options):
        response = await self._http.request(method, path, **options)
        return response.status_code, response.json()

    async def ids(self, path, **params):
        status, page = await self.ask("GET", path, params=params)
        assert status == 200
        return [letter["letter_id"] for letter in page["letters"]], page["next_after"]

    async def taken(self, count, *, refused=()):
        """Take entries off the bus; those refused make the handler fail until they are dead."""
        found, over = [], anyio.Event()

        async def handler(delivery):
            number = int(delivery.batch.request_id, 16)
            if number in refused:
                raise LookupError("no such thing")
            found.append(number)
            await delivery.ack()
            if len(found) == count:
                over.set()

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.bus.subscribe, range(64), handler)
                await over.wait()
                while await self.bus.dead.count() < len(refused):
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
        return found

    async def close(self):
        await self._http.aclose()
        await self.redis.aclose()


@pytest.fixture
async def open_office(redis_server, anyio_backend):
    """Open doors of processes that share one prefix."""
    prefix, offices = f"{uuid.uuid4().hex}:", []

    def opened(**bounds):
        offices.append(Office(redis_server.port, prefix, **bounds))
        return offices[-1]

    yield opened
    for office in offices:
        await office.close()


async def test_refused_batches_are_shown_replayed_and_forgotten_by_any_process(open_office):
    one, other = open_office(queue_batches_max=2), open_office()
    for number in range(6):
        await one.dead.put(batch_of(number), f"400 bad line {number}", NOW + number)
    status, page = await other.ask("GET", "/worker/dead", params={"limit": "4"})
    letters = page["letters"]
    assert (status, len(letters), page["next_after"]) == (200, 4, letters[-1]["letter_id"])
    assert letters[1] == {
        "letter_id": letters[1]["letter_id"],
        "reason": "400 bad line 1",
        "dead_at": "2026-09-21T14:13:21.000Z",
        "company_id": "acme",
        "server_id": "web-1",
        "agent_id": "agent-web-1",
        "request_id": f"{1:016x}",
        "received_at": "2023-11-14T22:13:20.001Z",
        "samples": 1,
        "size_bytes": letters[1]["size_bytes"],
    }
    ids = [letter["letter_id"] for letter in letters]
    rest, after = await other.ids("/worker/dead", after=page["next_after"], limit="4")
    assert (len(rest), after) == (2, None)
    answer = await other.ask("DELETE", "/worker/dead", json={"ids": [ids[0], "unknown"]})
    assert answer == (200, {"deleted": 1, "left": 0})
    answer = await one.ask("POST", "/worker/dead/replay", json={"ids": [rest[1], ids[0]]})
    assert answer == (200, {"replayed": 1, "left": 0})
    assert await one.ask("POST", "/worker/dead/replay") == (200, {"replayed": 1, "left": 3})
    status, refusal = await one.ask("POST", "/worker/dead/replay")
    assert (status, refusal["code"]) == (503, "unavailable")
    assert await other.ids("/worker/dead") == ([*ids[2:], rest[0]], None)
    assert await other.taken(2) == [5, 1]
    answer = await other.ask("DELETE", "/worker/dead", json={"all": True})
    assert answer == (200, {"deleted": 3, "left": 0})
    assert await one.ids("/worker/dead") == ([], None)


async def test_entries_that_no_worker_could_take_are_shown_replayed_and_forgotten(open_office):
    one, other = open_office(), open_office(queue_batches_max=1)
    for number in range(5):
        await one.bus.publish(batch_of(number))
    assert await one.taken(1, refused=range(4)) == [4]
    status, page = await other.ask("GET", "/bus/dead", params={"limit": "3"})
    first = page["letters"][0]
    assert (status, first["reason"], first["replayable"]) == (
        200,
        "LookupError: no such thing",
        True,
    )
    ids = [letter["letter_id"] for letter in page["letters"]]
    last, after = await other.ids("/bus/dead", after=ids[2])
    assert (len(last), after) == (1, None)
    answer = await one.ask("DELETE", "/bus/dead", json={"ids": [ids[1], "no letter"]})
    assert answer == (200, {"deleted": 1, "left": 0})
    assert await other.ask("POST", "/bus/dead/replay") == (200, {"replayed": 1, "left": 2})
    status, refusal = await other.ask("POST", "/bus/dead/replay")
    assert (status, refusal["code"]) == (503, "unavailable")
    assert await one.taken(1) == [0]
    answer = await one.ask("POST", "/bus/dead/replay", params={"id": last[0]})
    assert answer == (200, {"replayed": 1, "left": 0})
    answer = await one.ask("DELETE", "/bus/dead", json={"all": True})
    assert answer == (200, {"deleted": 1, "left": 0})
    assert await one.taken(1) == [3]


@pytest.mark.fault
async def test_while_redis_is_down_every_answer_says_so_and_nothing_is_lost(private_redis):
    office = Office(private_redis.port, "ah:")
    await office.dead.put(batch_of(1), "no", NOW)
    await anyio.to_thread.run_sync(private_redis.kill)
    for place in ("worker", "bus"):
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/replay")):
            said = {} if method == "GET" else {"json": {"all": True}}
            status, refusal = await office.ask(method, f"/{place}/dead{path}", **said)
            assert (status, refusal["code"]) == (503, "unavailable")
            assert "gave no answer" in refusal["message"]
    await anyio.to_thread.run_sync(private_redis.start)
    assert len((await office.ids("/worker/dead"))[0]) == 1
    await office.close()
