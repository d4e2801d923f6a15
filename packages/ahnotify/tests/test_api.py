"""The rules API over ASGI: keys, roles, validation, versions, pages, tenants apart."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import anyio
import httpx
import pytest

from ahnotify import ApiKeys, Database, RuleCache, SqlBroker, publish_incidents, rules_app
from ahnotify.directory import Role
from ahnotify.testing import INSTANT_RULE, incident, seed

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "rules-api.md"
RULE = dict(INSTANT_RULE)
CONTACT = {
    "recipient_type": "user",
    "recipient_id": "ann",
    "channel": "email",
    "address": "ann@acme.example",
}


@pytest.fixture
async def clients(database, broker, directory, clock):
    """A client a tenant and role, by `tenant:role`."""
    app = rules_app(database=database, broker=broker, clock=clock, channels={"email"})
    keys = ApiKeys(database=database, clock=clock)
    opened = {}
    for tenant in ("acme", "beta"):
        await directory.put_tenant(tenant)
        for role in (Role.VIEWER, Role.EDITOR):
            key = await keys.create(tenant, role=role)
            opened[f"{tenant}:{role}"] = httpx.AsyncClient(
                transport=httpx.ASGITransport(app=app),
                base_url="http://test",
                headers={"Authorization": f"Bearer {key.key}"},
            )
    opened["nobody"] = httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://test"
    )
    yield opened
    for client in opened.values():
        await client.aclose()


@pytest.fixture
def acme(clients):
    return clients["acme:editor"]


async def test_without_a_key_nothing_is_told(clients):
    for path in ("/v1/rules", "/v1/contacts", "/v1/notifications", "/v1/dead-letters"):
        answer = await clients["nobody"].get(path)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_a_viewer_reads_and_does_not_write(clients):
    viewer = clients["acme:viewer"]
    assert (await viewer.get("/v1/rules")).status_code == 200
    assert (await viewer.post("/v1/rules", json=RULE)).status_code == 403
    assert (await viewer.put("/v1/rules/r", json=RULE)).status_code == 403
    assert (await viewer.delete("/v1/rules/r")).status_code == 403
    assert (await viewer.post("/v1/contacts", json=CONTACT)).status_code == 403


async def test_a_rule_is_made_read_changed_and_ended(acme, rules, clock):
    made = await acme.post("/v1/rules", json=RULE | {"rule_id": "r"})
    assert made.status_code == 201
    assert made.headers["ETag"] == '"1"'
    assert (await acme.get("/v1/rules/r")).json()["name"] == "Silent servers"
    cache = RuleCache(store=rules, clock=clock)
    await cache.reload()
    assert len((await cache.catalog()).rules.match(incident())) == 1
    changed = await acme.put("/v1/rules/r", json=RULE | {"name": "N"}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.headers["ETag"]) == (200, '"2"')
    late = await acme.put("/v1/rules/r", json=RULE, headers={"If-Match": '"1"'})
    assert late.status_code == 412
    assert (await acme.delete("/v1/rules/r", headers={"If-Match": '"1"'})).status_code == 412
    assert (await acme.delete("/v1/rules/r", headers={"If-Match": '"2"'})).status_code == 204
    assert (await acme.get("/v1/rules/r")).status_code == 404
    await cache.reload()
    assert (await cache.catalog()).rules.match(incident()) == []


async def test_what_was_read_may_be_sent_back_as_it_is(acme):
    await acme.post("/v1/rules", json=RULE | {"rule_id": "r"})
    read = await acme.get("/v1/rules/r")
    back = await acme.put(
        "/v1/rules/r", json=read.json(), headers={"If-Match": read.headers["ETag"]}
    )
    assert back.status_code == 200
    assert back.json() == read.json() | {key: back.json()[key] for key in ("version", "warnings")}
    again = await acme.put("/v1/rules/r", json=back.json())
    assert again.status_code == 200


async def test_making_the_same_rule_twice_is_refused_with_the_way_out(acme):
    assert (await acme.post("/v1/rules", json=RULE | {"rule_id": "r"})).status_code == 201
    again = await acme.post("/v1/rules", json=RULE | {"rule_id": "r"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "exists")
    assert "PUT it with its ETag as If-Match" in again.json()["error"]["message"]
    create_only = {"If-None-Match": "*"}
    put = await acme.put("/v1/rules/r", json=RULE, headers=create_only)
    assert (put.status_code, put.json()["error"]["code"]) == (412, "exists")


@pytest.mark.parametrize("field", ["recipients", "channels"])
@pytest.mark.parametrize("value", [[], None])
async def test_a_rule_that_names_nobody_or_no_way_is_refused(acme, field, value):
    wrong = RULE | {field: value, "timezone": "nowhere"}
    answer = await acme.post("/v1/rules", json=wrong)
    assert answer.status_code == 422
    fields = {problem["field"] for problem in answer.json()["error"]["problems"]}
    assert fields == {field, "timezone"}


def warnings(answer):
    assert answer.status_code in (200, 201), answer.text
    return {each["field"]: each["reason"] for each in answer.json()["warnings"]}


async def test_a_rule_that_reaches_somebody_has_no_warnings(acme):
    await acme.post("/v1/contacts", json=CONTACT | {"verified": True})
    types = ["agent_down", "agent_*", "*", "suspicious_login", "door.opened"]
    rule = RULE | {"filters": {"event_type": types}}
    assert warnings(await acme.post("/v1/rules", json=rule)) == {}


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("agent.down", "write 'agent_down'"),
        ("agent.*", "write 'agent_*'"),
        ("Agent-Up", "write 'agent_up'"),
        ("agent_dwon", "known are agent_down, agent_up"),
    ],
)
async def test_an_event_type_that_no_event_has_is_warned_about(acme, written, advice):
    rule = RULE | {"filters": {"event_type": ["agent_up", written]}}
    found = warnings(await acme.put("/v1/rules/r", json=rule))
    assert advice in found["filters.event_type[1]"]


async def test_a_recipient_that_cannot_be_told_is_warned_about(acme):
    first = warnings(await acme.put("/v1/rules/r", json=RULE))
    assert set(first) == {"recipients[0]"}
    assert "there is no user 'ann'" in first["recipients[0]"]
    assert "POST /v1/contacts" in first["recipients[0]"]
    made = (await acme.post("/v1/contacts", json=CONTACT)).json()["contact_id"]
    second = warnings(await acme.put("/v1/rules/r", json=RULE))
    assert "has no enabled and verified contact for email" in second["recipients[0]"]
    await acme.put(f"/v1/contacts/{made}", json=CONTACT | {"verified": True})
    assert warnings(await acme.put("/v1/rules/r", json=RULE)) == {}


async def test_a_channel_without_a_provider_is_warned_about(acme):
    await acme.post("/v1/contacts", json=CONTACT | {"verified": True})
    sms = CONTACT | {"channel": "sms", "address": "+820000", "verified": True}
    await acme.post("/v1/contacts", json=sms)
    found = warnings(await acme.post("/v1/rules", json=RULE | {"channels": ["email", "sms"]}))
    assert set(found) == {"channels[1]"}
    assert "no provider" in found["channels[1]"]
    assert "it has: email" in found["channels[1]"]


async def test_without_word_of_the_providers_channels_are_not_judged(clients, database, broker):
    app = rules_app(database=database, broker=broker)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app),
        base_url="http://test",
        headers=clients["acme:editor"].headers,
    ) as client:
        found = warnings(await client.post("/v1/rules", json=RULE | {"channels": ["sms"]}))
    assert set(found) == {"recipients[0]"}


async def test_a_wrong_rule_is_refused_by_field_path(acme):
    answer = await acme.post("/v1/rules", json=RULE | {"filters": {"ip_address": ["010.1.2.3"]}})
    assert answer.status_code == 422
    assert answer.json()["error"]["problems"][0]["field"] == "filters.ip_address[0]"


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 422), (b"[]", 422), (b"{", 422), (b"[" * 60_000, 422), (b" " * 70_000, 413)],
)
async def test_a_body_that_is_no_object_is_refused(acme, body, status):
    answer = await acme.post("/v1/rules", content=body)
    assert answer.status_code == status
    if status == 422:
        error = answer.json()["error"]
        assert error["problems"][0]["field"] == "body"
        assert error["message"].startswith("body: is ")


async def test_pages_hold_every_rule_once(acme):
    for number in range(5):
        await acme.put(f"/v1/rules/r-{number}", json=RULE)
    seen, cursor = [], ""
    while cursor is not None:
        page = (await acme.get("/v1/rules", params={"limit": 2, "cursor": cursor})).json()
        seen += [rule["rule_id"] for rule in page["rules"]]
        cursor = page["next_cursor"]
    assert seen == [f"r-{number}" for number in range(5)]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "x"},
        {"limit": "²"},
        {"limit": "9999999"},
        {"cursor": "%%%"},
        {"cursor": "W10"},
        {"cursor": "WyJ4IiwgInkiXQ"},
    ],
)
async def test_a_wrong_query_is_refused(acme, query):
    assert (await acme.get("/v1/notifications", params=query)).status_code == 422


async def test_contacts_are_made_changed_and_ended(acme):
    made = await acme.post("/v1/contacts", json=CONTACT)
    assert made.status_code == 201
    contact_id = made.json()["contact_id"]
    assert made.json()["verified"] is False
    path = f"/v1/contacts/{contact_id}"
    changed = await acme.put(path, json=CONTACT | {"enabled": False}, headers={"If-Match": '"1"'})
    assert changed.json()["enabled"] is False
    assert (await acme.put(path, json=CONTACT, headers={"If-Match": '"1"'})).status_code == 412
    assert (await acme.get(path)).headers["ETag"] == '"2"'
    assert len((await acme.get("/v1/contacts")).json()["contacts"]) == 1
    assert (await acme.delete(path)).status_code == 204
    assert (await acme.get(path)).status_code == 404


@pytest.mark.parametrize(
    "change", [{"address": 1}, {"enabled": "yes"}, {"extra": 1}, {"address": "no address"}]
)
async def test_a_wrong_contact_is_refused(acme, change):
    assert (await acme.post("/v1/contacts", json=CONTACT | change)).status_code == 422


async def test_one_tenants_key_reaches_nothing_of_another(clients, acme):
    await acme.put("/v1/rules/r", json=RULE)
    contact = (await acme.post("/v1/contacts", json=CONTACT)).json()["contact_id"]
    beta = clients["beta:editor"]
    for path in ("/v1/rules/r", f"/v1/contacts/{contact}", "/v1/notifications/x"):
        assert (await beta.get(path)).status_code == 404
    assert (await beta.delete("/v1/rules/r")).status_code == 404
    assert (await beta.delete(f"/v1/contacts/{contact}")).status_code == 404
    assert (await beta.put(f"/v1/contacts/{contact}", json=CONTACT)).status_code == 404
    assert (await beta.get("/v1/rules")).json()["rules"] == []
    made = await beta.put("/v1/rules/r", json=RULE | {"tenant_id": "acme"})
    assert made.json()["tenant_id"] == "beta"
    assert (await acme.get("/v1/rules/r")).headers["ETag"] == '"1"'


async def test_unknown_paths_and_methods_are_json_too(acme):
    for path in ("/", "/v1", "/v1/nothing"):
        answer = await acme.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "http"
        for collection in ("/v1/rules", "/v1/contacts", "/v1/notifications", "/v1/dead-letters"):
            assert collection in answer.json()["error"]["message"]
    assert (await acme.patch("/v1/rules")).status_code == 405


@pytest.mark.skipif(not PAGE.exists(), reason="the package alone has no documentation site")
async def test_the_reference_page_names_every_route(database, broker):
    app = rules_app(database=database, broker=broker)
    routes = {(method, r.path) for r in app.routes for method in r.methods - {"HEAD"}}
    rows = re.findall(r"^\| `([A-Z]+)` \| `(/[^`]*)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert set(rows) == routes
    assert len(rows) == len(routes)


async def test_a_database_that_was_never_migrated_is_said_so(tmp_path):
    database = Database.open(f"sqlite:///{tmp_path / 'empty.db'}")
    app = rules_app(database=database, broker=SqlBroker(database=database))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://test"
    ) as client:
        answer = await client.get("/v1/rules", headers={"Authorization": "Bearer ahn_a_b"})
    await database.aclose()
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "configuration")
    assert "ahnotify.migrate(url)" in answer.json()["error"]["message"]


async def test_history_is_listed_newest_first_with_its_story(
    acme, clients, center, broker, directory, rules, clock
):
    await seed(directory, rules)
    await center.cache.reload()
    for number in range(3):
        await publish_incidents(broker, [incident(f"e-{number}")])
        with anyio.fail_after(10):
            while len((await acme.get("/v1/notifications")).json()["notifications"]) <= number:
                await anyio.sleep(0.02)
                await clock.advance(0.05)
        await clock.advance(1)
    page = (await acme.get("/v1/notifications", params={"limit": 2})).json()
    rest = (
        await acme.get("/v1/notifications", params={"limit": 2, "cursor": page["next_cursor"]})
    ).json()
    shown = page["notifications"] + rest["notifications"]
    assert [each["event_ids"] for each in shown] == [["e-2"], ["e-1"], ["e-0"]]
    assert rest["next_cursor"] is None
    story = (await acme.get(f"/v1/notifications/{shown[0]['notification_uuid']}")).json()
    assert story["attempts"][0]["status"] == "sent"
    assert (await clients["beta:viewer"].get("/v1/notifications")).json()["notifications"] == []
    assert (await acme.get("/v1/dead-letters")).json() == {"dead_letters": []}


@pytest.mark.parametrize(
    "rule_id",
    ["\ud800", "a/b", "a\0b", "a\nb", " ", "", ".", "x" * 129, "правило", "a b", 5, False],
)
async def test_a_rule_id_is_an_id_that_can_be_read_again(acme, rule_id):
    answer = await acme.post("/v1/rules", content=json.dumps(RULE | {"rule_id": rule_id}))
    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["error"]["problems"]] == ["rule_id"]
    assert (await acme.get("/v1/rules")).json()["rules"] == []


async def test_a_rule_put_under_no_id_is_refused(acme):
    for path in ("%20", "a%20b", "a%00b", "%ED%A0%80", "x" * 129):
        answer = await acme.put(f"/v1/rules/{path}", json=RULE)
        assert answer.status_code == 422
        assert answer.json()["error"]["problems"][0]["field"] == "rule_id"


@pytest.mark.parametrize("collection", ["rules", "contacts", "notifications"])
async def test_no_id_in_a_path_breaks_a_read(acme, collection):
    for path in ("a%00b", "%0A", "%ED%A0%80", "x" * 5000):
        assert (await acme.get(f"/v1/{collection}/{path}")).status_code == 404
        if collection != "notifications":
            assert (await acme.delete(f"/v1/{collection}/{path}")).status_code == 404


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": "\ud800"}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"\udfff": 1}, "\\udfff"),
        ({"recipients": [{"recipient_type": "\ud800"}]}, "recipients[0].recipient_type"),
        ({"conditions": {"x": [1, "\ud800"]}}, "conditions.x[1]"),
        ({"priority": float("inf")}, "priority"),
        ({"address": "\ud800@b.test"}, "address"),
    ],
)
async def test_text_that_cannot_be_kept_is_refused_by_its_path(acme, more, field):
    for method, path, base in (
        ("POST", "/v1/rules", RULE),
        ("PUT", "/v1/rules/r", RULE),
        ("POST", "/v1/contacts", CONTACT),
        ("PUT", "/v1/contacts/c", CONTACT),
    ):
        answer = await acme.request(method, path, content=json.dumps(base | more))
        assert answer.status_code == 422
        assert answer.json()["error"]["problems"][0]["field"] == field


async def test_a_deep_body_is_refused_without_a_failure(acme):
    for depth in (100, 900, 20_000):
        deep = "[" * depth + "]" * depth
        for path in ("/v1/rules", "/v1/contacts"):
            answer = await acme.post(path, content=f'{{"name": "n", "x": {deep}}}')
            assert answer.status_code == 422


@pytest.mark.parametrize(
    "parts", [["\ud800"], [5], [None], [["a"]], ["a\0"], [1, "\ud800"], [1, 2]]
)
async def test_a_made_up_cursor_is_refused(acme, parts):
    cursor = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")
    for collection in ("rules", "contacts", "notifications"):
        answer = await acme.get(f"/v1/{collection}", params={"cursor": cursor})
        assert answer.status_code == 422
