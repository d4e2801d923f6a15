"""The admin door's OpenAPI document: valid, complete, and what the application really does."""

import json
import random
import re
from pathlib import Path
from urllib.parse import quote

import anyio
import attrs
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.routing import Mount

from ahcollector.admin import admin_app, openapi_document
from ahcollector.admin._routes import ROUTES
from ahcollector.bus import InProcessBus, SampleBatch, StoredSeries
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import MemoryOutbox
from ahcollector.presence import MemoryPresence
from ahcollector.registry import Directory, MemoryRegistry, NegativeCache
from ahcollector.store import MemoryStore
from ahcollector.testing import FakeClock, FakeHub
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.testing._contracts.outbox import event
from ahcollector.worker import MemoryDeadBatches
from ahwire import UUID7Generator

TOKEN = "canary-admin-token-1"
NOW = 1_790_000_000.0
DOCUMENT = openapi_document()
REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "http-admin.md"


def check_schema(schema, value):
    whole = {**schema, "components": DOCUMENT["components"]}
    Draft202012Validator(whole).validate(value)


def operations():
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def check_answer(method, path, response):
    """The answer is one that the document has, with its headers and a body of its schema."""
    operation = DOCUMENT["paths"][path][method.lower()]
    status = str(response.status_code)
    assert status in operation["responses"], f"{method} {path} answers {status}: {response.text}"
    said = operation["responses"][status]
    assert "X-Request-Id" in response.headers
    if response.status_code >= 400 and path != "/readyz":
        codes = said["headers"]["X-AH-Code"]["schema"]["enum"]
        assert response.headers["X-AH-Code"] in codes
        assert response.json()["code"] == response.headers["X-AH-Code"]
    if "Retry-After" in said["headers"]:
        assert int(response.headers["Retry-After"]) > 0
    for media, content in said.get("content", {}).items():
        assert response.headers["Content-Type"].startswith(media)
        if media == "application/json":
            check_schema(content["schema"], response.json())


class Desk:
    """An application that holds something of everything that the document's examples name."""

    def __init__(self):
        self.clock = FakeClock(NOW)
        self.presence = MemoryPresence(event_ids=UUID7Generator(self.clock, random.Random(1)).next)
        self.registry = MemoryRegistry()
        self.outbox = MemoryOutbox()
        self.dead = MemoryDeadBatches()
        self.bus = InProcessBus(clock=self.clock)
        self.store = MemoryStore(clock=self.clock)
        self.directory = Directory(
            registry=self.registry,
            presence=self.presence,
            negative=NegativeCache(),
            clock=self.clock,
        )

        async def pull():
            return 3

        self.app = admin_app(
            token=TOKEN,
            registry=self.registry,
            directory=self.directory,
            presence=self.presence,
            store=self.store,
            outbox=self.outbox,
            dead_batches=self.dead,
            bus=self.bus,
            bus_dead=self.bus.dead,
            reload_rules=pull,
            reload_silences=pull,
            checks={"store": self.store.ping},
            body_timeout_seconds=5.0,
            clock=self.clock,
            rng=random.Random(2),
            metrics=PrometheusMetrics(),
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url="http://admin"
        )

    async def fill(self):
        hub = FakeHub()
        for name in ("web-1-agent", "web-1-second"):
            await self.directory.put(hub.active(name, name, company_id="acme", server_id="web-1"))
        record = attrs.evolve(hub.active("web-2-agent", "x", company_id="acme"), server_id="web-2")
        await self.directory.put(record)
        await self.directory.revoke("web-2-agent")
        await self.presence.touch(
            (await self.registry.get("web-1-agent")).agent, self.clock.time(), 30.0
        )
        now = round(NOW * 1000)
        labels = (
            ("__name__", "ah_cpu_usage_percent"),
            ("company_id", "acme"),
            ("server_id", "web-1"),
        )
        await self.store.write(
            [
                SampleBatch(
                    company_id="acme",
                    server_id="web-1",
                    agent_id="web-1-agent",
                    request_id="r",
                    received_at_ms=now,
                    series=(StoredSeries(labels=labels, points=((now, 12.5),)),),
                )
            ]
        )
        events = [event(number) for number in range(3)]
        await self.outbox.append(events, NOW)
        await self.outbox.dead([one.event_id for one in events[:2]], "rejected: x", NOW, None)
        await self.dead.put(batch_of(1), "400 bad line", NOW)
        await self.dead.put(batch_of(2), "400 bad line", NOW)
        for number in range(3):
            self.bus.dead.put(batch_of(number), number, "LookupError", NOW)

    async def ask(self, method, path, **options):
        headers = {"Authorization": f"Bearer {TOKEN}", **options.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **options)


def test_the_document_is_valid_openapi():
    validate(DOCUMENT)
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_the_document_and_the_application_have_the_same_routes():
    app = Desk().app
    served = {(method, route.path) for route in app.routes for method in route.methods - {"HEAD"}}
    assert served == {(method, path) for method, path, _ in operations()}


def test_every_operation_has_a_name_of_its_own_and_an_example():
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for method, path, operation in operations():
        for status, answer in operation["responses"].items():
            for media, content in answer.get("content", {}).items():
                shown = "example" in content or media != "application/json"
                exempt = operation["operationId"] == "getOpenapi" or status == "503"
                assert shown or exempt, f"{method} {path} {status}"


def test_every_example_is_of_its_schema():
    for _, _, operation in operations():
        contents = [*operation.get("requestBody", {}).get("content", {}).values()]
        for answer in operation["responses"].values():
            contents += answer.get("content", {}).values()
        for content in contents:
            if "example" in content:
                check_schema(content["schema"], content["example"])


@pytest.mark.anyio
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_the_request_of_the_example_is_answered_as_the_document_says(route):
    desk = Desk()
    await desk.fill()
    places = {one.name: one.example for one in route.parameters if one.example is not None}
    query = {one: places[one] for one in route.query_names() if one in places}
    body = None if route.body is None else json.dumps(route.body.example).encode()
    response = await desk.ask(route.method, route.path.format(**places), params=query, content=body)
    assert response.status_code == 200, response.text
    check_answer(route.method, route.path, response)


def printed_requests():
    """The requests of the reference page, as somebody would type them off it."""
    page = REFERENCE.read_text(encoding="utf-8") if REFERENCE.exists() else ""
    for block in re.findall(r"^```http\n(.*?)\nHTTP/1\.1 ", page, re.DOTALL | re.MULTILINE):
        head, _, body = block.partition("\n\n")
        line, *headers = head.splitlines()
        method, target, _ = line.split()
        yield method, target, dict(one.split(": ", 1) for one in headers), body.strip()


@pytest.mark.anyio
@pytest.mark.parametrize("asked", list(printed_requests()), ids=lambda asked: " ".join(asked[:2]))
async def test_a_request_of_the_reference_is_answered_as_printed(asked):
    desk = Desk()
    await desk.fill()
    method, target, headers, body = asked
    if "Authorization" in headers:
        headers["Authorization"] = f"Bearer {TOKEN}"
    response = await desk.client.request(
        method, target, headers=headers, content=body.encode() or None
    )
    assert response.status_code == 200, response.text


@pytest.mark.skipif(not REFERENCE.exists(), reason="the package alone has no documentation site")
def test_the_reference_prints_a_request_of_every_route():
    assert len(list(printed_requests())) == len(ROUTES)


def test_every_parameter_that_is_required_has_an_example_of_its_schema():
    for method, path, operation in operations():
        for one in operation.get("parameters", []):
            assert "example" in one or not one["required"], f"{method} {path}: {one['name']}"
            if "example" in one:
                check_schema(one["schema"], one["example"])


def test_no_schema_is_of_a_kind_that_client_generators_refuse():
    """openapi-python-client takes no `"items": false`, and makes no module of a constant `true`."""

    def parts(value):
        yield value
        inner = value.values() if isinstance(value, dict) else value
        for one in inner if isinstance(value, dict | list) else ():
            yield from parts(one)

    for part in parts(DOCUMENT):
        if isinstance(part, dict):
            assert part.get("items") is not False, part
            assert not isinstance(part.get("const"), bool), part


@pytest.mark.anyio
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_the_token_is_asked_for_where_the_document_says_so(route):
    desk = Desk()
    places = {one.name: one.example for one in route.parameters if one.example is not None}
    response = await desk.client.request(route.method, route.path.format(**places))
    assert (response.status_code == 401) is route.bearer
    check_answer(route.method, route.path, response)


@pytest.mark.anyio
async def test_the_document_is_served_and_says_where_it_is_mounted():
    desk = Desk()
    served = await desk.client.get("/admin/v1/openapi.json")
    assert served.json() == DOCUMENT
    mounted = Starlette(routes=[Mount("/monitoring", desk.app)])
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=mounted), base_url="http://host")
    served = await client.get("/monitoring/admin/v1/openapi.json")
    assert served.json()["servers"] == [{"url": "/monitoring"}]


TEXTS = st.text(max_size=20) | st.sampled_from(
    ["acme", "web-1", "web-1-agent", "", "0", "-1", "1", "500", "501", "9" * 30, "a" * 200, "\0"]
)
NUMBERS = st.integers(-(2**70), 2**70).map(str)
NAMES = st.sampled_from(
    sorted({one.name for route in ROUTES for one in route.parameters} | {"unknown", "ID"})
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
IDS = st.fixed_dictionaries({"ids": st.lists(st.text(max_size=20), max_size=3)})
RECORDS = st.fixed_dictionaries(
    {
        "agent_id": st.just("web-1-agent") | TEXTS,
        "company_id": st.just("acme") | TEXTS,
        "server_id": st.just("web-1") | TEXTS,
        "state": st.sampled_from(["active", "pending", "revoked", "gone"]),
        "version": st.integers(-1, 2**70) | st.floats(),
    },
    optional={
        "token_hash": st.just("ab" * 32) | TEXTS,
        "expires_at": st.datetimes().map(lambda moment: moment.isoformat() + "Z") | JSON_VALUES,
        "prev_token_hash": st.just("cd" * 32) | JSON_VALUES,
        "prev_token_expires_at": st.just("9999-12-31T23:59:59.999999Z") | JSON_VALUES,
    },
)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=50),
    (JSON_VALUES | IDS | RECORDS).map(lambda value: json.dumps(value).encode()),
    st.just(b'{"agent_id": "\\ud800"}'),
    st.just(b"[" * 60_000),
    st.just(b'{"version": ' + b"9" * 5000 + b"}"),
    st.just(b" " * 70_000),
)
REQUESTS = st.fixed_dictionaries(
    {
        "route": st.sampled_from([route.name for route in ROUTES]),
        "places": st.lists(TEXTS, min_size=2, max_size=2),
        "known": st.booleans(),
        "query": st.lists(st.tuples(NAMES, TEXTS | NUMBERS), max_size=4),
        "body": BODIES,
        "method": st.none() | st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]),
    }
)


BY_NAME = {route.name: route for route in ROUTES}


async def ask_all(requests):
    desk = Desk()
    await desk.fill()
    for asked in requests:
        route = BY_NAME[asked["route"]]
        named = [one.name for one in route.parameters if one.place.value == "path"]
        values = [asked["places"][index] for index in range(len(named))]
        if asked["known"]:
            examples = {one.name: one.example for one in route.parameters}
            values = [examples[name] for name in named]
        path = route.path
        for name, value in zip(named, values, strict=True):
            path = path.replace("{" + name + "}", quote(value, safe=""))
        method = asked["method"] or route.method
        response = await desk.ask(
            method, path, params=asked["query"], content=asked["body"] or None
        )
        assert response.status_code != 500, response.text
        assert re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", response.headers["X-Request-Id"])
        if response.status_code == 405:
            assert response.headers["Allow"]
        elif method == route.method and response.headers.get("X-AH-Code") != "not_found":
            check_answer(method, route.path, response)


@settings(deadline=None, max_examples=100)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=6))
def test_no_request_is_a_defect_and_every_answer_is_documented(requests):
    anyio.run(ask_all, requests)
