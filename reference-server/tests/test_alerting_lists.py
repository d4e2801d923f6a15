"""The development hub's threshold rules and silences: replaced whole, checked, served by etag."""

import json

import httpx
import pytest
from hubs import TOKEN, BareHub

from ah_server.hub import (
    PREFIX,
    AlertingLists,
    open_database,
)
from ahcollector.clock import SystemClock
from ahcollector.hub import HttpHub

pytestmark = pytest.mark.anyio
RULE = {
    "rule_id": "cpu",
    "version": 1,
    "metric": "cpu_usage_percent",
    "op": "gt",
    "threshold": 90,
    "severity": "warning",
}
SILENCE = {
    "silence_id": "night",
    "company_id": "acme",
    "matchers": [{"label": "server_id", "op": "eq", "value": "web-1"}],
    "starts_at": "2026-01-01T00:00:00Z",
}


@pytest.fixture
async def hub(tmp_path):
    made = BareHub(await open_database(tmp_path / "hub.sqlite"), SystemClock())
    yield made
    await made.aclose()


@pytest.fixture
def browser(hub):
    return hub.http


@pytest.fixture
async def collector(hub):
    async with HttpHub(
        base_url="http://hub.test", token=TOKEN, transport=httpx.ASGITransport(hub.app)
    ) as client:
        yield client


async def test_what_was_put_is_what_a_collector_pulls_by_etag(browser, collector):
    nothing = await collector.rules(None)
    assert nothing.rules == ()
    answer = await browser.put("/admin/api/rules", json={"rules": [RULE]})
    assert (answer.status_code, answer.json()) == (200, {"rules": 1})
    reply = await collector.rules(nothing.etag)
    assert [rule.rule_id for rule in reply.rules] == ["cpu"]
    assert (await collector.rules(reply.etag)).rules is None
    await browser.put("/admin/api/rules", json={"rules": [RULE | {"version": 2}]})
    assert (await collector.rules(reply.etag)).rules[0].version == 2
    await browser.put("/admin/api/silences", json={"silences": [SILENCE]})
    silences = await collector.silences(None)
    assert [silence.silence_id for silence in silences.silences] == ["night"]
    assert (await collector.silences(silences.etag)).silences is None
    assert (await browser.get("/admin/api/silences")).json() == {"silences": [SILENCE]}


@pytest.mark.parametrize(
    ("name", "items", "fault"),
    [
        ("rules", [RULE, RULE | {"rule_id": "b", "op": "about"}], "rules[1]: op"),
        ("rules", [RULE | {"for": 60}], "rules[0].for: there is no such field"),
        ("rules", [RULE, RULE], "rule 'cpu': rule_id"),
        ("rules", [RULE | {"resolve_threshold": 95}], "rule 'cpu': resolve_threshold"),
        ("rules", "many", "rules: expected an object"),
        ("silences", [SILENCE | {"matchers": []}], "silences[0]: matchers"),
        ("silences", [SILENCE | {"end_at": "x"}], "silences[0].end_at: there is no such field"),
        ("silences", [SILENCE, SILENCE], "silence 'night': silence_id"),
        ("silences", [7], "silences[0]"),
    ],
)
async def test_one_that_cannot_be_used_refuses_all_and_is_named(browser, name, items, fault):
    await browser.put("/admin/api/rules", json={"rules": [RULE | {"rule_id": "before"}]})
    answer = await browser.put(f"/admin/api/{name}", json={name: items})
    assert answer.status_code == 400
    assert fault in answer.json()["message"]
    left = (await browser.get("/admin/api/rules")).json()["rules"]
    assert [rule["rule_id"] for rule in left] == ["before"]


async def test_many_faults_are_told_as_the_first_and_a_count(browser):
    answer = await browser.put("/admin/api/rules", json={"rules": [{}] * 100})
    assert answer.status_code == 400
    assert answer.json()["message"].endswith("and 80 more")


async def test_lists_ask_for_the_token(hub):
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(hub.app), base_url="http://hub.test"
    ) as client:
        for path in ("/admin/api/rules", "/admin/api/silences", f"{PREFIX}/rules"):
            assert (await client.get(path)).status_code == 401
        assert (await client.put("/admin/api/rules", json={})).status_code == 401


async def test_lists_outlive_the_process(tmp_path):
    for expected in ([], [RULE]):
        database = await open_database(tmp_path / "hub.sqlite")
        lists = AlertingLists(database=database)
        assert json.loads(await lists.get("rules")) == {"rules": expected}
        await lists.put("rules", {"rules": [RULE]})
        await database.aclose()
