"""Dead letters over the admin door: seen, sent again, forgotten; nothing without the token."""

import json
import random

import anyio
import httpx
import pytest

from ahcollector.admin import admin_app
from ahcollector.bus import BusDeadLetter, InProcessBus
from ahcollector.outbox import FileOutbox, MemoryOutbox
from ahcollector.presence import MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache
from ahcollector.store import MemoryStore
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.testing._contracts.outbox import event
from ahcollector.worker import MemoryDeadBatches
from ahwire import UUID7Generator

pytestmark = pytest.mark.anyio
TOKEN = "canary-admin-token-1"


class Office:
    def __init__(self, *, outbox=None, **options):
        self.clock = FakeClock(1_790_000_000.0)
        self.outbox = outbox
        presence = MemoryPresence(event_ids=UUID7Generator(self.clock, random.Random(1)).next)
        registry = MemoryRegistry()
        app = admin_app(
            token=TOKEN,
            registry=registry,
            directory=Directory(
                registry=registry, presence=presence, negative=NegativeCache(), clock=self.clock
            ),
            presence=presence,
            store=MemoryStore(clock=self.clock),
            outbox=outbox,
            clock=self.clock,
            **options,
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://admin/admin/v1"
        )

    async def ask(self, method, path, *, token=TOKEN, **options):
        headers = {"Authorization": f"Bearer {token}"}
        return await self.client.request(method, path, headers=headers, **options)

    async def bury(self, count):
        now = self.clock.time()
        events = [event(number) for number in range(1, count + 1)]
        await self.outbox.append(events, now)
        await self.outbox.dead([one.event_id for one in events], "refused: 404", now, None)


def ids_of(response):
    assert response.status_code == 200
    return [letter["letter_id"] for letter in response.json()["letters"]]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        (method, f"/{place}/dead{tail}")
        for place in ("outbox", "bus", "worker")
        for method, tail in (("GET", ""), ("DELETE", ""), ("POST", "/replay"))
    ],
)
async def test_the_token_is_needed_and_what_is_not_there_is_404(method, path):
    bus = InProcessBus(clock=FakeClock())
    office = Office(
        outbox=MemoryOutbox(), dead_batches=MemoryDeadBatches(), bus=bus, bus_dead=bus.dead
    )
    assert (await office.ask(method, path, token="wrong-admin-token-1")).status_code == 401
    said = {} if method == "GET" else {"json": {"all": True}}
    assert (await office.ask(method, path, **said)).status_code == 200
    response = await Office().ask(method, path, **said)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_dead_letters_are_shown_with_their_event_and_reason():
    office = Office(outbox=MemoryOutbox())
    await office.bury(1)
    [letter] = (await office.ask("GET", "/outbox/dead")).json()["letters"]
    assert letter["event"] == json.loads(event(1).to_json())
    assert letter == {
        "letter_id": event(1).event_id,
        "reason": "refused: 404",
        "enqueued_at": "2026-09-21T14:13:20.000Z",
        "dead_at": "2026-09-21T14:13:20.000Z",
        "replayable": True,
        "event": letter["event"],
        "body": None,
    }


async def test_pages_are_bounded_and_follow_each_other():
    office = Office(outbox=MemoryOutbox())
    await office.bury(1_203)
    seen, after, sizes = [], "", []
    while after is not None:
        page = await office.ask("GET", "/outbox/dead", params={"after": after, "limit": "500"})
        seen += ids_of(page)
        sizes.append(len(ids_of(page)))
        after = page.json()["next_after"]
    assert seen == [event(number).event_id for number in range(1, 1_204)]
    assert sizes == [500, 500, 203]
    assert len(ids_of(await office.ask("GET", "/outbox/dead"))) == 100


@pytest.mark.parametrize("limit", ["0", "-1", "x", "", "1e3", "501", "99999"])
async def test_a_limit_that_is_none_is_refused(limit):
    response = await Office(outbox=MemoryOutbox()).ask(
        "GET", "/outbox/dead", params={"limit": limit}
    )
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")


async def test_named_letters_are_replayed_and_the_rest_stays():
    office = Office(outbox=MemoryOutbox())
    await office.bury(4)
    ids = [event(number).event_id for number in (2, 3)]
    answer = await office.ask("POST", "/outbox/dead/replay", json={"ids": [*ids, "unknown"]})
    assert answer.json() == {"replayed": 2, "left": 0}
    assert [entry.event.seq for entry in await office.outbox.peek(9)] == [2, 3]
    assert len(ids_of(await office.ask("GET", "/outbox/dead"))) == 2
    assert (await office.ask("POST", "/outbox/dead/replay", json={"ids": []})).json() == {
        "replayed": 0,
        "left": 0,
    }
    answer = await office.ask("POST", "/outbox/dead/replay")
    assert answer.json() == {"replayed": 2, "left": 0}


@pytest.mark.parametrize(
    "how", [{"json": {"ids": [event(2).event_id]}}, {"params": {"id": event(2).event_id}}]
)
async def test_named_letters_are_forgotten(how):
    office = Office(outbox=MemoryOutbox())
    await office.bury(3)
    answer = await office.ask("DELETE", "/outbox/dead", **how)
    assert answer.json() == {"deleted": 1, "left": 0}
    left = ids_of(await office.ask("GET", "/outbox/dead"))
    assert left == [event(1).event_id, event(3).event_id]
    answer = await office.ask("DELETE", "/outbox/dead", json={"all": True})
    assert answer.json() == {"deleted": 2, "left": 0}


@pytest.mark.parametrize("place", ["outbox", "bus", "worker"])
@pytest.mark.parametrize("how", [{}, {"json": {}}, {"content": b" "}])
async def test_nothing_is_forgotten_where_nothing_is_said(place, how):
    outbox, batches = MemoryOutbox(), MemoryDeadBatches()
    bus = InProcessBus(clock=FakeClock())
    office = Office(outbox=outbox, dead_batches=batches, bus=bus, bus_dead=bus.dead)
    await office.bury(2)
    for number in range(2):
        await batches.put(batch_of(number), "400 bad line", 1_790_000_000.0)
        bus.dead.put(batch_of(number), number, "LookupError", 1_790_000_000.0)
    response = await office.ask("DELETE", f"/{place}/dead", **how)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert '{"all": true}' in response.json()["message"]
    assert len(ids_of(await office.ask("GET", f"/{place}/dead"))) == 2
    answer = await office.ask("DELETE", f"/{place}/dead", json={"all": True})
    assert answer.json() == {"deleted": 2, "left": 0}


@pytest.mark.parametrize(
    "how",
    [
        {"content": b"["},
        {"content": b"[1]"},
        {"content": b"[" * 60_000},
        {"json": {"ids": "all"}},
        {"json": {"ids": [1]}},
        {"json": {"ids": ["x" * 201]}},
        {"json": {"id": ["a"]}},
        {"json": {"all": False}},
        {"json": {"all": True, "ids": []}},
        {"params": {"ids": "a"}},
        {"params": {"id": "a"}, "json": {"all": True}},
        {"content": b"{" + b" " * 70_000 + b"}"},
    ],
)
async def test_a_request_that_is_misspelt_touches_nothing(how):
    office = Office(outbox=MemoryOutbox())
    await office.bury(2)
    for method, path in (("POST", "/outbox/dead/replay"), ("DELETE", "/outbox/dead")):
        response = await office.ask(method, path, **how)
        assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert len(ids_of(await office.ask("GET", "/outbox/dead"))) == 2


async def test_a_letter_that_is_no_event_is_shown_and_stays(tmp_path):
    from ahcollector._sealed import seal

    (tmp_path / "outbox.log").write_bytes(seal({"op": "append", "at": 1.0, "event": {"a": "ü"}}))
    office = Office(outbox=await FileOutbox.open(tmp_path, now=1.0))
    [letter] = (await office.ask("GET", "/outbox/dead")).json()["letters"]
    assert (letter["replayable"], letter["event"], letter["enqueued_at"]) == (False, None, None)
    assert json.loads(letter["body"]) == {"a": "ü"}
    answer = await office.ask("POST", "/outbox/dead/replay")
    assert answer.json() == {"replayed": 0, "left": 1}
    ids = {"ids": [letter["letter_id"]]}
    answer = await office.ask("POST", "/outbox/dead/replay", json=ids)
    assert answer.json() == {"replayed": 0, "left": 1}
    answer = await office.ask("DELETE", "/outbox/dead", json=ids)
    assert answer.json() == {"deleted": 1, "left": 0}
    await office.outbox.close()


async def test_refused_batches_go_back_to_the_bus_as_far_as_it_has_room():
    dead, bus = MemoryDeadBatches(), InProcessBus(clock=FakeClock(), queue_batches_max=2)
    office = Office(dead_batches=dead, bus=bus)
    for number in range(3):
        await dead.put(batch_of(number), "400 bad line", 1_790_000_000.0 + number)
    letters = (await office.ask("GET", "/worker/dead")).json()["letters"]
    first = letters[0]
    assert (first["reason"], first["dead_at"]) == ("400 bad line", "2026-09-21T14:13:20.000Z")
    assert (first["company_id"], first["samples"]) == ("acme", batch_of(0).samples)
    page = await office.ask("GET", "/worker/dead", params={"after": first["letter_id"]})
    assert ids_of(page) == [one["letter_id"] for one in letters[1:]]
    answer = await office.ask("POST", "/worker/dead/replay")
    assert answer.json() == {"replayed": 2, "left": 1}
    assert ids_of(await office.ask("GET", "/worker/dead")) == [letters[2]["letter_id"]]
    answer = await office.ask("POST", "/worker/dead/replay")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    answer = await office.ask("DELETE", "/worker/dead", json={"ids": [letters[2]["letter_id"]]})
    assert answer.json() == {"deleted": 1, "left": 0}
    assert await dead.letters() == []


async def bury_in(bus, clock, count):
    """Let a handler fail at batches until the bus gives them up."""
    for number in range(count):
        await bus.publish(batch_of(number))

    async def poison(delivery):
        raise LookupError("no such thing")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, range(64), poison)
        await clock.run_for(10)
        tasks.cancel_scope.cancel()


async def test_entries_that_no_worker_could_take_are_shown_replayed_and_forgotten():
    clock = FakeClock(1_790_000_000.0)
    bus = InProcessBus(clock=clock, queue_batches_max=2)
    await bury_in(bus, clock, 2)
    await bury_in(bus, clock, 2)
    office = Office(bus_dead=bus.dead)
    letters = (await office.ask("GET", "/bus/dead")).json()["letters"]
    assert [letter["letter_id"] for letter in letters] == ["1", "2", "3", "4"]
    first = letters[0]
    assert (first["reason"], first["replayable"]) == ("LookupError: no such thing", True)
    assert (first["company_id"], first["samples"]) == ("acme", batch_of(0).samples)
    page = await office.ask("GET", "/bus/dead", params={"after": "2", "limit": "1"})
    assert (ids_of(page), page.json()["next_after"]) == (["3"], "3")
    answer = await office.ask("DELETE", "/bus/dead", json={"ids": ["2", "no such letter"]})
    assert answer.json() == {"deleted": 1, "left": 0}
    assert ids_of(await office.ask("GET", "/bus/dead", params={"after": "2"})) == ["3", "4"]
    answer = await office.ask("POST", "/bus/dead/replay")
    assert answer.json() == {"replayed": 2, "left": 1}
    answer = await office.ask("POST", "/bus/dead/replay", params={"id": "4"})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert ids_of(await office.ask("GET", "/bus/dead")) == ["4"]


async def test_an_entry_that_cannot_be_read_is_shown_with_what_is_known():
    class Unreadable:
        async def letters(self, *, after="", limit=100):
            letter = BusDeadLetter(
                letter_id="7-0", batch=None, shard=None, reason="undecodable", dead_at=1.0
            )
            return [letter][:limit] if not after else []

    office = Office(bus_dead=Unreadable())
    [letter] = (await office.ask("GET", "/bus/dead")).json()["letters"]
    assert (letter["letter_id"], letter["reason"], letter["replayable"]) == (
        "7-0",
        "undecodable",
        False,
    )
    assert letter["samples"] is letter["company_id"] is letter["shard"] is None


async def test_a_page_of_entries_is_whole_although_the_bus_gives_fewer_at_a_time():
    """Where they are large; and what is left of named ones is counted behind them, too."""
    clock = FakeClock(1_790_000_000.0)
    bus = InProcessBus(clock=clock, queue_batches_max=8)
    await bury_in(bus, clock, 6)
    limits = []

    class Large:
        async def letters(self, *, after="", limit=100):
            limits.append(limit)
            return await bus.dead.letters(after=after, limit=min(limit, 2))

        async def purge(self, letter_ids):
            return 0

    office = Office(bus_dead=Large())
    page = await office.ask("GET", "/bus/dead", params={"limit": "5"})
    assert (ids_of(page), page.json()["next_after"]) == (["1", "2", "3", "4", "5"], "5")
    assert limits == [5, 3, 1]
    page = await office.ask("GET", "/bus/dead", params={"after": "3", "limit": "5"})
    assert (ids_of(page), page.json()["next_after"]) == (["4", "5", "6"], None)
    answer = await office.ask("DELETE", "/bus/dead", json={"ids": ["1", "6"]})
    assert answer.json() == {"deleted": 0, "left": 2}
