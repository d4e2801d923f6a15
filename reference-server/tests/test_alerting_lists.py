"""The development hub's threshold rules and silences: replaced whole, checked, served by etag."""

import json
import re

import httpx
import pytest
from hubs import TOKEN, BareHub

from ah_server.hub import (
    PREFIX,
    AlertingLists,
    open_database,
)
from ah_server.hub.alerting_lists import RefusedListError
from ahcollector.clock import SystemClock
from ahcollector.hub import RESPONSE_BYTES_MAX, HttpHub

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


def long(count, **fields):
    return [
        RULE | {"rule_id": f"r{n}", "labels": {"note": "ü" * 1_000}} | fields for n in range(count)
    ]


async def test_list_is_kept_as_short_as_it_was_given_and_a_collector_pulls_it(browser, collector):
    """Written with escapes it would be over the 8 MiB that collectors read."""
    rules = long(2_000)
    assert len(json.dumps(rules)) > RESPONSE_BYTES_MAX
    body = json.dumps({"rules": rules}, ensure_ascii=False).encode()
    answer = await browser.put("/admin/api/rules", content=body)
    assert (answer.status_code, answer.json()) == (200, {"rules": 2_000})
    assert len((await collector.rules(None)).rules) == 2_000


def full_body():
    """A list that just fits in a request; read and written again it is longer, by its numbers."""
    texts, left, number = [], RESPONSE_BYTES_MAX - 100, 0
    while left > 3_000:
        (one,) = long(1, rule_id=f"r{number}", threshold="HUGE", resolve_threshold="HUGE")
        text = json.dumps(one, ensure_ascii=False, separators=(",", ":")).replace('"HUGE"', "1e15")
        texts.append(text)
        left -= len(text.encode()) + 1
        number += 1
    return f'{{"rules":[{",".join(texts)}]}}'


@pytest.mark.parametrize("door", ["http", "import"])
async def test_list_that_no_collector_could_read_is_refused_with_its_size_and_the_limit(
    hub, browser, collector, door
):
    await browser.put("/admin/api/rules", json={"rules": [RULE]})
    text = full_body()
    if door == "http":
        answer = await browser.put("/admin/api/rules", content=text.encode())
        assert answer.status_code == 400
        message = answer.json()["message"]
    else:
        with pytest.raises(RefusedListError) as refused:
            await AlertingLists(database=hub.database).put("rules", json.loads(text))
        message = str(refused.value)
    assert re.fullmatch(
        r"rules: the [34],\d{3} have 8,4\d\d,\d{3} bytes as collectors read them, and collectors "
        r"read at most 8,388,608, so none would have them; give fewer, .*",
        message,
    )
    assert [one.rule_id for one in (await collector.rules(None)).rules] == ["cpu"]


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
