"""The admin door: the token, agents, presence, series, outbox."""

import json
import random
import re

import anyio
import attrs
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ahcollector.admin import admin_app
from ahcollector.admin._answers import error_answer
from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import (
    AlertStateError,
    RegistryError,
    RequestRefusedError,
    TemporaryHubError,
    TemporaryStoreError,
)
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox.memory import MemoryOutbox
from ahcollector.presence.memory import MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache
from ahcollector.store.memory import MemoryStore
from ahcollector.testing import FakeClock, FakeHub
from ahwire import UUID7Generator
from ahwire.status import Code

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


def own_lines(caplog):
    return [line for line in caplog.records if line.name == "ahcollector.admin"]


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


async def test_while_the_token_is_replaced_both_are_good():
    office = Office(previous_token="canary-admin-token-0")
    for token in (TOKEN, "canary-admin-token-0"):
        assert (await office.ask("GET", "/counts", token=token)).status_code == 200
    assert (await office.ask("GET", "/counts", token="canary-admin-token-2")).status_code == 401


def test_a_short_token_is_refused_at_once(office):
    for tokens in ({"token": "short"}, {"token": TOKEN, "previous_token": ""}):
        with pytest.raises(ValueError, match="16"):
            admin_app(
                **tokens,
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
        "agents": [],
        "next_after": None,
    }
    revoked = (await office.ask("DELETE", "/agents/a1")).json()
    assert revoked["state"] == "revoked"
    assert revoked["revoked_at"] == "2026-09-21T14:13:20.000Z"
    assert (await office.presence.counts()).agents == 0


async def test_an_older_record_is_a_conflict(office):
    record = office.hub.active("a1", "t")
    await office.put(attrs.evolve(record, version=5))
    response = await office.put(attrs.evolve(record, version=4))
    assert (response.status_code, response.json()["code"]) == (409, "conflict")
    assert response.headers["X-AH-Code"] == "conflict"
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


class Alerts:
    """Notes whose alerts are to end; the first time it cannot."""

    def __init__(self):
        self.asked = []

    async def forget_server(self, *names):
        self.asked.append(names)
        if len(self.asked) == 1:
            raise AlertStateError("cannot end them")

    async def forget_company(self, *names):
        await self.forget_server(*names)


@pytest.mark.parametrize(("path", "names"), [("", ()), ("/servers/s1", ("s1",))])
async def test_who_is_deleted_has_no_alerts_any_more(path, names):
    alerts = Alerts()
    office = Office(alerts=alerts)
    await office.put(office.hub.active("a1", "t", server_id="s1"))
    response = await office.ask("DELETE", f"/companies/acme{path}")
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert "cannot end them" in response.json()["message"]
    response = await office.ask("DELETE", f"/companies/acme{path}")
    assert response.json() == {"agents": 0, "series": 0}
    assert alerts.asked == [("acme", *names)] * 2


class Deleter:
    """Forgets what the store has, and something else besides."""

    async def delete_server(self, *names):
        return 7

    async def delete_company(self, *names):
        return 8


async def test_series_are_deleted_where_the_application_is_told_to():
    office = Office(deleter=Deleter())
    response = await office.ask("DELETE", "/companies/acme/servers/s1")
    assert response.json() == {"agents": 0, "series": 7}
    response = await office.ask("DELETE", "/companies/acme")
    assert response.json() == {"agents": 0, "series": 8}


async def test_outbox_metrics_and_health():
    office = Office(outbox=MemoryOutbox(), metrics=PrometheusMetrics())
    state = (await office.ask("GET", "/outbox")).json()
    assert (state["depth"], state["dead"]) == (0, 0)
    assert (await office.client.get("/healthz")).status_code == 200
    assert (await Office().client.get("/metrics")).status_code == 404


async def test_a_scraper_reads_the_metrics_and_the_agents_are_counted_as_they_are_now():
    metrics = PrometheusMetrics()
    office = Office(metrics=metrics)
    for number in range(3):
        await office.put(office.hub.active(f"a{number}", f"t{number}"))
    await office.ask("DELETE", "/agents/a0")
    response = await office.client.get("/metrics")
    assert response.headers["content-type"] == metrics.content_type
    assert metrics.content_type.startswith("text/plain; version=")
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert found["ahc_registry_agents"] == 2


async def test_a_scrape_shows_the_rest_while_the_registry_is_away():
    office = Office(metrics=PrometheusMetrics())

    async def away():
        raise RegistryError("connection refused")

    office.registry.count = away
    response = await office.client.get("/metrics")
    assert response.status_code == 200
    assert "ahc_outbox_depth" in response.text


async def test_readiness_names_each_dependency():
    async def good():
        return None

    async def away():
        raise TemporaryStoreError("connection refused")

    office = Office(checks={"store": good, "registry": good})
    response = await office.client.get("/readyz")
    assert (response.status_code, response.json()) == (
        200,
        {"status": "ready", "checks": {"registry": "ok", "store": "ok"}},
    )
    office = Office(checks={"store": away, "registry": good})
    response = await office.client.get("/readyz")
    assert (response.status_code, response.json()["checks"]) == (
        503,
        {"registry": "ok", "store": "connection refused"},
    )


async def test_a_path_names_all_its_methods_where_another_is_asked_for():
    office = Office()
    for path, allowed in [
        ("/agents/a1", {"GET", "HEAD", "PUT", "DELETE"}),
        ("/outbox/dead", {"GET", "HEAD", "DELETE"}),
        ("/counts", {"GET", "HEAD"}),
    ]:
        response = await office.ask("PATCH", path)
        assert (response.status_code, response.json()["code"]) == (405, "not_found")
        assert set(response.headers["Allow"].split(", ")) == allowed


async def test_head_is_answered_as_get_is():
    office = Office()
    await office.put(office.hub.active("a1", "t"))
    for path, status in [("/agents/a1", 200), ("/agents/a2", 404), ("/counts", 200)]:
        assert (await office.ask("HEAD", path)).status_code == status
    assert (await office.ask("HEAD", "/counts", token=None)).status_code == 401


async def test_no_path_leads_elsewhere():
    response = await Office().ask("GET", "/counts/")
    assert response.status_code == 404
    assert "location" not in response.headers


async def test_the_callers_id_of_a_request_is_its_id_in_the_answer_and_the_log(caplog):
    caplog.set_level("INFO")
    office = Office()
    for given, kept in [("my-id.1", True), ("a b", False), ("x" * 65, False), ('"}\r', False)]:
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Request-Id": given}
        response = await office.client.get("/admin/v1/agents/a1", headers=headers)
        told = response.headers["X-Request-Id"]
        assert (told == given) is kept
        assert re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", told)
        line = own_lines(caplog)[-1]
        assert (line.request_id, line.code) == (told, "not_found")
    await office.ask("DELETE", "/companies/acme")
    line = own_lines(caplog)[-1]
    assert (line.message, line.path) == ("admin request done", "/admin/v1/companies/acme")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/presence?compny_id=acme", "did you mean company_id?"),
        ("/presence?company_id=acme&company_id=globex", "company_id is there twice"),
        ("/presence?company_id=", "company_id '' is no id"),
        ("/presence?limit=501", "limit is '501', not a whole number from 1 to 500"),
        ("/presence?limit=0", "limit is '0', not a whole number from 1 to 500"),
        ("/presence?limit=%D9%A1", "not a whole number from 1 to 500"),
        ("/presence?after=" + "x" * 513, "after has 513 characters, over 512"),
        ("/counts?all=1", "there is no parameter 'all'; there are: none here"),
        ("/companies/a%00b/servers/s/agents", "is no id: one has letters, digits"),
        ("/companies/acme/series/latest", "the query names no server_id"),
        (
            "/companies/acme/series/latest?server_id=s&since_ms=9223372036854775808",
            "since_ms is '9223372036854775808', not a whole number from 0 to 9223372036854775807",
        ),
        (
            "/companies/a/series/range?server_id=s&metric=m&start_ms=1&end_ms=2&step_ms=999",
            "step_ms is '999', not a whole number from 1000",
        ),
        (
            "/companies/a/series/range?server_id=s&start_ms=1&end_ms=2&metric=" + "m" * 1025,
            "metric has 1025 characters, over 1024",
        ),
    ],
)
async def test_a_bad_parameter_is_named_with_its_value_and_range(path, told):
    response = await Office().ask("GET", path)
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert told in response.json()["message"]


async def test_a_servers_agents_come_in_pages():
    office = Office()
    for number in range(5):
        await office.put(office.hub.active(f"a{number}", f"t{number}"))
    seen, after, sizes = [], "", []
    while after is not None:
        page = await office.ask(
            "GET", "/companies/acme/servers/web-1/agents", params={"after": after, "limit": "2"}
        )
        agents, after = page.json()["agents"], page.json()["next_after"]
        seen += [one["agent_id"] for one in agents]
        sizes.append(len(agents))
    assert (seen, sizes) == ([f"a{number}" for number in range(5)], [2, 2, 1])


async def test_rules_and_silences_are_pulled_on_demand():
    async def pull():
        return 3

    async def away():
        raise TemporaryHubError("the hub does not answer")

    office = Office(reload_rules=pull, reload_silences=away)
    response = await office.ask("POST", "/reload/rules")
    assert (response.status_code, response.json()) == (200, {"in_force": 3})
    # In a terminal the prompt stands on a line of its own.
    assert response.text == '{"in_force":3}\n'
    response = await office.ask("POST", "/reload/silences")
    assert response.text.endswith("}\n")
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert int(response.headers["Retry-After"]) > 0
    for what in ("rules", "silences"):
        response = await Office().ask("POST", f"/reload/{what}")
        assert response.status_code == 404
        assert f"evaluates no {what}" in response.json()["message"]
        assert (await office.ask("POST", f"/reload/{what}", token="x")).status_code == 401


async def test_a_body_that_does_not_come_is_not_waited_for():
    office = Office(body_timeout_seconds=0.01)

    async def stalls():
        yield b"{"
        await anyio.sleep_forever()

    response = await office.ask("PUT", "/agents/a1", content=stalls())
    assert (response.status_code, response.json()["code"]) == (408, "timeout")


async def test_a_defect_is_an_answer_and_a_trace_in_the_log(caplog):
    office = Office()

    async def broken():
        raise LookupError("canary")

    office.presence.counts = broken
    response = await office.ask("GET", "/counts")
    assert (response.status_code, response.json()["code"]) == (500, "server_error")
    assert "canary" not in response.text
    assert own_lines(caplog)[-1].request_id == response.headers["X-Request-Id"]
    assert "LookupError" in caplog.text


@pytest.mark.parametrize("field", ["token_hash", "prev_token_hash"])
async def test_no_log_line_and_no_answer_has_more_of_a_hash_than_its_beginning(field, caplog):
    caplog.set_level("DEBUG")
    office = Office()
    record = json.loads(office.hub.active("a1", "t").to_json())
    canary = "c0ffee" * 10 + "beef"
    for value in (canary, canary.upper(), canary + "0", [canary], {canary: canary}):
        body = json.dumps({**record, field: value}).encode()
        response = await office.ask("PUT", "/agents/a1", content=body)
        assert canary not in response.text.lower()
        assert canary not in caplog.text.lower()


def test_an_error_that_quotes_half_a_character_is_an_answer():
    answer = error_answer(RequestRefusedError(Code.BAD_REQUEST, "it is '\ud800'"))
    assert json.loads(answer.body) == {"code": "bad_request", "message": "it is '?'"}
