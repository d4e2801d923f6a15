"""The admin door: the token, agents, presence, series, outbox."""

import json
import random

import attrs
import httpx
import pytest

from ahcollector.admin import admin_app
from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import TemporaryStoreError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox.memory import MemoryOutbox
from ahcollector.presence.memory import MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache
from ahcollector.store.memory import MemoryStore
from ahcollector.testing import FakeClock, FakeHub
from ahwire import UUID7Generator

pytestmark = pytest.mark.anyio

TOKEN = "canary-admin-token-1"


class Office:
    def __init__(self, **options):
        self.clock = FakeClock(1_790_000_000.0)
        self.hub = FakeHub()
        self.registry = MemoryRegistry()
        self.negative = NegativeCache()
        self.presence = MemoryPresence(event_ids=UUID7Generator(self.clock, random.Random(1)).next)
        self.store = MemoryStore(clock=self.clock)
        self.directory = Directory(
            registry=self.registry,
            presence=self.presence,
            negative=self.negative,
            clock=self.clock,
        )
        self.app = admin_app(
            token=TOKEN,
            registry=self.registry,
            directory=self.directory,
            presence=self.presence,
            store=self.store,
            clock=self.clock,
            **options,
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url="http://admin"
        )

    async def ask(self, method, path, *, token=TOKEN, **options):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return await self.client.request(method, f"/admin/v1{path}", headers=headers, **options)

    async def put(self, record):
        return await self.ask("PUT", f"/agents/{record.agent_id}", content=record.to_json())

    async def write(self, company_id, server_id, value):
        now = round(self.clock.time() * 1000)
        labels = (("__name__", "ah_m"), ("company_id", company_id), ("server_id", server_id))
        await self.store.write(
            [
                SampleBatch(
                    company_id=company_id,
                    server_id=server_id,
                    agent_id="a",
                    request_id="r",
                    received_at_ms=now,
                    series=(StoredSeries(labels=labels, points=((now, value),)),),
                )
            ]
        )


@pytest.fixture
def office():
    return Office()


@pytest.mark.parametrize(
    "token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "ü" * 20, TOKEN.upper()]
)
async def test_without_the_token_nothing_is_told(office, token):
    await office.put(office.hub.active("a1", "t"))
    for method, path in [
        ("GET", "/agents/a1"),
        ("DELETE", "/agents/a1"),
        ("GET", "/counts"),
        ("DELETE", "/companies/acme"),
    ]:
        headers = {} if token is None else {b"Authorization": b"Bearer " + token.encode()}
        response = await office.client.request(method, f"/admin/v1{path}", headers=headers)
        assert response.status_code == 401
        assert response.json()["code"] == "unauthorized"
        assert TOKEN not in response.text
    assert (await office.registry.count()).active == 1


def test_a_short_token_is_refused_at_once(office):
    with pytest.raises(ValueError, match="16"):
        admin_app(
            token="short",
            registry=office.registry,
            directory=office.directory,
            presence=office.presence,
            store=office.store,
        )


async def test_an_agent_is_pushed_shown_and_revoked(office):
    record = office.hub.active("a1", "t")
    office.negative.add(record.token_hash, now=office.clock.monotonic())
    response = await office.put(record)
    assert response.status_code == 200
    assert not office.negative.holds(record.token_hash, now=office.clock.monotonic())
    shown = (await office.ask("GET", "/agents/a1")).json()
    assert shown["state"] == "active"
    assert shown["token_hash_prefix"] == record.token_hash[:8]
    assert record.token_hash not in json.dumps(shown)
    assert (await office.presence.counts()).agents == 1
    listed = (await office.ask("GET", "/companies/acme/servers/web-1/agents")).json()
    assert [one["agent_id"] for one in listed["agents"]] == ["a1"]
    assert (await office.ask("GET", "/companies/globex/servers/web-1/agents")).json() == {
        "agents": []
    }
    revoked = (await office.ask("DELETE", "/agents/a1")).json()
    assert revoked["state"] == "revoked"
    assert revoked["revoked_at"] == "2026-09-21T14:13:20.000Z"
    assert (await office.presence.counts()).agents == 0


async def test_an_older_record_is_a_conflict(office):
    record = office.hub.active("a1", "t")
    await office.put(attrs.evolve(record, version=5))
    response = await office.put(attrs.evolve(record, version=4))
    assert response.status_code == 409
    assert "5" in response.json()["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/agents/a2", None),
        ("/agents/a1", b"{}"),
        ("/agents/a1", b"not json"),
        ("/agents/a1", b"[" * 10_000),
        ("/agents/a1", bytes(70_000)),
        ("/agents/%20", None),
        ("/agents/" + "x" * 129, None),
    ],
)
async def test_a_bad_push_is_400(office, path, body):
    content = office.hub.active("a1", "t").to_json() if body is None else body
    response = await office.ask("PUT", path, content=content)
    assert response.status_code == 400
    assert response.json()["code"] == "bad_request"


async def test_what_is_unknown_is_404(office):
    for method, path in [
        ("GET", "/agents/a1"),
        ("DELETE", "/agents/a1"),
        ("GET", "/outbox"),
        ("GET", "/nothing"),
    ]:
        response = await office.ask(method, path)
        assert response.status_code == 404
        assert response.json()["code"] == "not_found"
    assert (await office.ask("POST", "/counts")).status_code == 405


async def test_deleting_a_server_or_a_company_takes_agents_presence_and_series(office):
    for agent, company, server in [("a1", "acme", "s1"), ("a2", "acme", "s2"), ("b", "gl", "s1")]:
        await office.put(office.hub.active(agent, agent, company_id=company, server_id=server))
        await office.write(company, server, 1.0)
    response = await office.ask("DELETE", "/companies/acme/servers/s1")
    assert response.json() == {"agents": 1, "series": 1}
    response = await office.ask("DELETE", "/companies/acme")
    assert response.json() == {"agents": 1, "series": 1}
    assert (await office.registry.count()).active == 1
    assert set(await office.presence.company_counts()) == {"gl"}
    assert await office.store.series("acme") == []
    assert len(await office.store.series("gl")) == 1


async def test_series_are_read_inside_one_company(office):
    await office.write("acme", "s1", 7.0)
    now = round(office.clock.time() * 1000)
    query = {
        "server_id": "s1",
        "metric": "m",
        "start_ms": now - 60_000,
        "end_ms": now,
        "step_ms": 30_000,
    }
    response = await office.ask("GET", "/companies/acme/series/range", params=query)
    (series,) = response.json()["series"]
    assert series["labels"]["company_id"] == "acme"
    assert series["points"] == [[now, 7.0]]
    response = await office.ask("GET", "/companies/globex/series/range", params=query)
    assert response.json() == {"series": []}
    response = await office.ask("GET", "/companies/acme/series/latest", params={"server_id": "s1"})
    assert response.json()["series"][0]["points"] == [[now, 7.0]]


@pytest.mark.parametrize(
    "change",
    [
        {"server_id": None},
        {"server_id": 'x"} or {a="'},
        {"metric": None},
        {"start_ms": "abc"},
        {"start_ms": "-1"},
        {"start_ms": "9" * 100},
        {"end_ms": "1"},
        {"step_ms": "0"},
        {"step_ms": "1"},
        {"aggregate": "median"},
    ],
)
async def test_a_bad_query_is_400(office, change):
    query = {"server_id": "s", "metric": "m", "start_ms": "1000", "end_ms": "61000", **change}
    query = {name: value for name, value in query.items() if value is not None}
    response = await office.ask("GET", "/companies/acme/series/range", params=query)
    assert response.status_code == 400, response.text


async def test_presence_and_counts(office):
    for number in range(502):
        await office.put(office.hub.active(f"a{number:04}", f"t{number}"))
    await office.put(office.hub.active("b", "b", company_id="globex"))
    page = (await office.ask("GET", "/presence")).json()
    assert len(page["agents"]) == 500
    rest = (await office.ask("GET", "/presence", params={"after": page["next_after"]})).json()
    assert (len(rest["agents"]), rest["next_after"]) == (3, None)
    only = (await office.ask("GET", "/presence", params={"company_id": "globex"})).json()
    assert [one["agent_id"] for one in only["agents"]] == ["b"]
    assert only["agents"][0]["last_seen_at"] is None
    counts = (await office.ask("GET", "/counts")).json()
    assert counts["registry"] == {"active": 503, "pending": 0, "revoked": 0}
    assert counts["presence"] == {"agents": 503, "down": 0}
    assert counts["companies"]["globex"] == {"agents": 1, "down": 0}


async def test_a_store_that_is_away_is_503_and_the_delete_may_be_repeated(office, caplog):
    await office.put(office.hub.active("a1", "t", server_id="s1"))
    await office.write("acme", "s1", 1.0)
    whole = office.store.delete_company

    async def away(company_id):
        raise TemporaryStoreError("connection refused")

    office.store.delete_company = away
    response = await office.ask("DELETE", "/companies/acme")
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    office.store.delete_company = whole
    response = await office.ask("DELETE", "/companies/acme")
    assert response.json() == {"agents": 0, "series": 1}


async def test_outbox_metrics_and_health():
    office = Office(outbox=MemoryOutbox(), metrics=PrometheusMetrics())
    state = (await office.ask("GET", "/outbox")).json()
    assert (state["depth"], state["dead"]) == (0, 0)
    assert (await office.client.get("/healthz")).status_code == 200
    response = await office.client.get("/metrics")
    assert b"ahc_outbox_depth" in response.content
    assert response.headers["content-type"].startswith("text/plain")
    assert (await Office().client.get("/metrics")).status_code == 404
