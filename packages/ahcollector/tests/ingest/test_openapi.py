"""The ingest door's OpenAPI document: valid, complete, and what the application really does."""

import json
import re
from datetime import UTC, datetime
from functools import partial

import anyio
import httpx
import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from starlette.applications import Starlette
from starlette.routing import Mount

from ahcollector._protojson import message_schemas
from ahcollector.errors import TemporaryHubError
from ahcollector.ingest import openapi_document
from ahcollector.ingest._routes import ROUTES
from ahwire import agent_pb2
from ahwire.hub import AgentSettings, EnrollGrant, RenewGrant

TOKEN = "canary-token-1f9c0a"
DOCUMENT = openapi_document()
JSON = "application/json"
MESSAGES = sorted(agent_pb2.DESCRIPTOR.message_types_by_name)


def check_schema(schema, value):
    whole = {**schema, "components": DOCUMENT["components"]}
    Draft202012Validator(whole).validate(value)


def check_answer(method, path, response):
    """The answer is one that the document has, with its headers and a body of its schema."""
    operation = DOCUMENT["paths"][path][method.lower()]
    status = str(response.status_code)
    assert status in operation["responses"], f"{method} {path} answers {status}: {response.text}"
    said = operation["responses"][status]
    assert re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", response.headers["X-Request-Id"])
    if "X-AH-Code" in said["headers"]:
        codes = said["headers"]["X-AH-Code"]["schema"]
        assert response.headers["X-AH-Code"] in codes.get("enum", [codes.get("const")])
    for name in ("Retry-After", "WWW-Authenticate"):
        assert (name in said["headers"]) == (name in response.headers)
    content = said.get("content", {})
    if not content:
        assert not response.content
        return
    (media,) = [one for one in content if response.headers["Content-Type"].startswith(one)]
    if media == JSON and content[media]["schema"].get("$ref"):
        check_schema(content[media]["schema"], response.json())


def operations():
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_document_is_valid_openapi():
    validate(DOCUMENT)
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_the_document_and_the_application_have_the_same_routes(world):
    served = {
        (method, route.path) for route in world.app.routes for method in route.methods - {"HEAD"}
    }
    assert served == {(method, path) for method, path, _ in operations()}


def test_every_example_is_of_its_schema_and_is_read_as_the_message():
    for _, _, operation in operations():
        contents = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in contents:
            found = content.get("content", {}).get(JSON, {})
            if "example" not in found:
                continue
            check_schema(found["schema"], found["example"])
            name = found["schema"]["$ref"].rsplit("/", 1)[-1]
            if name in MESSAGES:
                json_format.Parse(json.dumps(found["example"]), getattr(agent_pb2, name)())


def filled(descriptor):
    """A message with something in every field, and two of what is repeated."""
    message = getattr(agent_pb2, descriptor.name)()
    for field in descriptor.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value["key"] = "value"
        elif field.message_type is not None:
            inner = filled(field.message_type)
            if hasattr(value, "append"):
                value.extend([inner, inner])
            else:
                value.CopyFrom(inner)
        elif hasattr(value, "append"):
            value.extend(["a", "b"])
        elif isinstance(value, str):
            setattr(message, field.name, "ü")
        else:
            setattr(message, field.name, type(value)(1))
    return message


@pytest.mark.parametrize("name", MESSAGES)
def test_the_schema_of_a_message_is_what_is_written_of_it(name):
    descriptor = getattr(agent_pb2, name).DESCRIPTOR
    schema = DOCUMENT["components"]["schemas"][name]
    strict = {**schema, "additionalProperties": False, "required": list(schema["properties"])}
    written = json.loads(json_format.MessageToJson(filled(descriptor)))
    check_schema(strict, written)
    empty = json_format.MessageToJson(
        getattr(agent_pb2, name)(), always_print_fields_with_no_presence=True
    )
    check_schema(schema, json.loads(empty))


def test_the_edges_of_numbers_are_within_their_schemas():
    point = agent_pb2.Point(ts_ms=-(2**63), value=float("nan"))
    check_schema(
        DOCUMENT["components"]["schemas"]["Point"], json.loads(json_format.MessageToJson(point))
    )
    stats = agent_pb2.AgentStats(rss_bytes=2**64 - 1, interval_seconds=2**32 - 1)
    check_schema(
        DOCUMENT["components"]["schemas"]["AgentStats"],
        json.loads(json_format.MessageToJson(stats)),
    )


def test_every_message_and_field_that_is_explained_is_there():
    from ahcollector.ingest._message_docs import MESSAGE_DOCS

    schemas = message_schemas(agent_pb2.DESCRIPTOR.message_types_by_name.values())
    fields = {
        f"{name}.{field.name}"
        for name in MESSAGES
        for field in agent_pb2.DESCRIPTOR.message_types_by_name[name].fields
    }
    assert set(MESSAGE_DOCS) <= set(schemas) | fields
    assert {name for name in MESSAGES if name not in MESSAGE_DOCS} == set()


#: What those who speak other protocols send: an empty body, which has nothing to refuse.
FOREIGN_HEADERS = {
    "/api/v1/write": {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"},
    "/v1/metrics": {"Content-Type": "application/x-protobuf"},
}
FOREIGN_BODIES = {"/api/v1/write": b"\0", "/v1/metrics": b""}


def prepared(world):
    """A hub that grants what the examples ask for."""
    license_shown = next(route for route in ROUTES if route.name == "enroll").body.example[
        "license"
    ]
    world.hub.grants[license_shown] = EnrollGrant(
        agent_id="web-1-agent",
        company_id="acme",
        server_id="web-1",
        token_hash=world.hub.hash_of("fresh"),
        agent_token="fresh",
        version=1,
        config=AgentSettings(),
    )
    world.hub.renewals["agent-1"] = RenewGrant(
        token_hash=world.hub.hash_of("second"),
        agent_token="second",
        prev_token_expires_at=datetime(2026, 12, 1, tzinfo=UTC),
        version=2,
    )
    return world


async def ask(world, route, *, body=None, **headers):
    sent = {"Accept": JSON, "X-AH-Proto": "1", "Authorization": f"Bearer {TOKEN}"}
    if route.path in FOREIGN_HEADERS:
        sent |= FOREIGN_HEADERS[route.path]
        content = FOREIGN_BODIES[route.path]
    elif route.body is not None:
        sent["Content-Type"] = JSON
        content = json.dumps(route.body.example).encode()
    else:
        content = None
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    return await world.client.request(
        route.method, route.path, headers=sent, content=content if body is None else body
    )


@pytest.mark.anyio
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_the_request_of_the_example_is_answered_as_the_document_says(route, world):
    response = await ask(prepared(world), route)
    assert response.status_code in (200, 202, 204), response.text
    check_answer(route.method, route.path, response)


@pytest.mark.anyio
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_the_token_is_asked_for_where_the_document_says_so(route, world):
    response = await ask(prepared(world), route, Authorization="Bearer wrong")
    assert (response.status_code == 401) is route.bearer
    check_answer(route.method, route.path, response)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_AH_Proto": "2"},
        {"Content_Encoding": "br"},
        {"Content_Type": "text/html"},
        {"Content_Length": "99999999"},
    ],
    ids=str,
)
@pytest.mark.parametrize("state", ["well", "revoked", "hub away", "bus full", "broken"])
@pytest.mark.parametrize(
    "route", [one for one in ROUTES if one.tag != "process"], ids=lambda route: route.name
)
async def test_every_refusal_is_one_that_the_document_has(route, state, headers, world):
    prepared(world)
    if state == "revoked":
        await world.directory.put(world.hub.revoke("agent-1"))
    elif state == "hub away":
        world.hub.fails = TemporaryHubError("down")
    elif state == "bus full":
        world.bus.full = True
    elif state == "broken":
        world.settings.get = world.settings.current = world.registry.lookup = None
    response = await ask(world, route, **headers)
    check_answer(route.method, route.path, response)
    junk = await ask(world, route, body=b"\xff" * 100, **headers)
    check_answer(route.method, route.path, junk)


@pytest.mark.anyio
async def test_over_the_rate_and_nothing_acceptable_are_as_the_document_says(world):
    route = next(one for one in ROUTES if one.name == "sendMetrics")
    old = {**route.body.example, "series": [{"name": "m", "points": [{"tsMs": "1", "value": 1}]}]}
    statuses = set()
    for _ in range(12):
        response = await ask(world, route, body=json.dumps(old).encode())
        check_answer(route.method, route.path, response)
        statuses.add(response.status_code)
    assert statuses == {422, 429}


@pytest.mark.anyio
async def test_a_known_configuration_is_as_the_document_says(world):
    route = next(one for one in ROUTES if one.name == "getConfig")
    etag = (await ask(world, route)).headers["ETag"]
    response = await ask(world, route, If_None_Match=etag)
    assert response.status_code == 304
    check_answer(route.method, route.path, response)


@pytest.mark.anyio
async def test_the_document_is_served_and_says_where_it_is_mounted(world):
    served = await world.client.get("/agent/v1/openapi.json")
    assert served.json() == DOCUMENT
    mounted = Starlette(routes=[Mount("/monitoring", world.app)])
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=mounted), base_url="http://host")
    served = await client.get("/monitoring/agent/v1/openapi.json")
    assert served.json()["servers"] == [{"url": "/monitoring"}]


HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "X_AH_Proto": st.sampled_from(["1", "2", ""]),
        "Content_Type": st.sampled_from(
            [JSON, "application/x-protobuf", "text/html", "application/json; charset=utf-16", ""]
        ),
        "Content_Encoding": st.sampled_from(["gzip", "zstd", "br", "gzip, gzip", "identity", ""]),
        "Accept": st.sampled_from([JSON, "*/*", "text/html;q=x", "application/x-protobuf;q=0"]),
        "If_None_Match": st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=9),
        "Authorization": st.sampled_from([f"bearer  {TOKEN}", "Bearer", "Basic x", "Bearer wrong"]),
    },
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["series", "points", "tsMs", "value", "labels", "name", "seq", "stats"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)
BODIES = st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode())


@profile(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([route.name for route in ROUTES]),
    headers=HEADERS,
    body=st.none() | BODIES,
)
def test_no_request_is_a_defect_and_every_answer_is_documented(name, headers, body, make_world):
    route = next(one for one in ROUTES if one.name == name)
    world = make_world()
    world.hub.active("agent-1", TOKEN)
    response = anyio.run(partial(ask, prepared(world), route, body=body, **headers))
    assert response.headers.get("X-AH-Code") != "server_error"
    check_answer(route.method, route.path, response)
