"""No request makes the development hub answer 500, and no fault plan makes it unusable."""

import asyncio
import json
import logging
import sqlite3
import time

import pytest
from hubs import BareHub
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from ah_server.hub import (
    PREFIX,
    FaultPlan,
    open_database,
)

POSTS = [
    *(PREFIX + end for end in ("/enroll", "/credentials/renew", "/events", "/agents/seen")),
    *(PREFIX + end for end in ("/inventory", "/heartbeat")),
    "/admin/api/licenses",
    "/admin/api/faults",
]
GETS = [
    *(PREFIX + end for end in ("/agents", "/rules", "/silences", "/settings/acme")),
    *("/admin", "/admin/api/agents", "/admin/api/events", "/healthz"),
]


class Hub(BareHub):
    """A hub and a way to call it from a test that is not async itself."""

    def __init__(self, runner, path):
        self._runner = runner
        self.path = path
        super().__init__(self.run(open_database(path)), time)

    def run(self, awaitable):
        return self._runner.run(awaited(awaitable))

    def call(self, method, path, **more):
        answer = self.run(self.http.request(method, path, **more))
        assert answer.status_code < 500
        return answer


async def awaited(awaitable):
    return await awaitable


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with asyncio.Runner() as runner:
        made = Hub(runner, tmp_path_factory.mktemp("hub") / "hub.sqlite")
        yield made
        made.run(made.aclose())


@pytest.fixture(autouse=True)
def no_plans_left(hub):
    yield
    assert hub.call("DELETE", "/admin/api/faults").status_code == 200


EVENT = {
    "event_id": "01890000-0000-7000-8000-000000000000",
    "type": "agent.down",
    "seq": 1,
    "occurred_at": "2026-11-30T10:00:00Z",
    "company_id": "acme",
    "server_id": "web1",
    "agent_id": "ag1",
    "rule_id": "agent_down",
    "series_key": "agent",
    "severity": "critical",
    "suppressed": False,
    "labels": {},
}
ODD = [None, True, -1, 10**30, 1e308, "", "a\0b", "x" * 5000, [], {}, [[]], {"a": {}}]


@pytest.mark.parametrize("path", POSTS)
def test_no_field_of_any_body_breaks_the_hub(hub, path):
    license_text = hub.run(hub.identities.new_license("acme", "web1", 60))
    bodies = [
        {"license": license_text, "machine_id": "m", "hostname": "h"},
        {"agent_id": "a", "inventory": {}},
        {"events": [EVENT]},
        {"seen": [{"agent_id": "a", "last_seen_at": "2026-11-30T10:00:00Z"}]},
        {"company_id": "acme", "server_id": "web1", "ttl_seconds": 60},
        {"path": "/none", "requests": 1, "retry_after": "1", "latency_seconds": 0},
    ]
    for body in bodies:
        for name in body:
            for odd in ODD:
                hub.call("POST", path, content=json.dumps({**body, name: odd}))
                hub.call("DELETE", "/admin/api/faults")
    for name in EVENT:
        for odd in ODD:
            hub.call("POST", path, json={"events": [{**EVENT, name: odd}]})


@pytest.mark.parametrize("path", [*POSTS, "/admin/api/settings/acme"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"license":"\\ud800","machine_id":"m","agent_id":"\\ud800","path":"\\ud800"}',
        b'{"\\udfff":1}',
        b'{"events":[{"event_id":"\\ud800"}]}',
        b'{"x":"\xed\xa0\x80"}',
        b'{"requests":NaN}',
        b'{"latency_seconds":1e309}',
        b'{"requests":' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 9000 + b"1" + b"}" * 9000,
        b"\xff",
        '{"a":"ü"}'.encode("utf-16"),
        b"",
    ],
    ids=range(12),
)
def test_a_body_that_is_no_plain_json_object_is_refused(hub, path, body):
    method = "PUT" if path.endswith("/acme") else "POST"
    answer = hub.call(method, path, content=body)
    assert answer.status_code in (400, 404, 422)
    if b"ud800" in body or b"NaN" in body:
        assert answer.status_code == 400


@pytest.mark.parametrize("value", ["9" * 23, "9" * 5000, "٣", "-1", "1.5", "x", "\0", "²"])
@pytest.mark.parametrize(
    ("path", "name"),
    [(PREFIX + "/agents", "since"), (PREFIX + "/agents", "limit"), ("/admin/api/events", "after")],
)
def test_a_number_in_a_query_is_bounded(hub, path, name, value):
    assert hub.call("GET", path, params={name: value}).status_code == 400


@pytest.mark.parametrize("company", ["a b", "a%00b", "%ED%A0%80", "x" * 129, ".a", "a%0A"])
def test_settings_are_of_a_company_with_an_id(hub, company):
    assert hub.call("GET", f"{PREFIX}/settings/{company}").status_code == 400
    answer = hub.call("PUT", f"/admin/api/settings/{company}", content=b"{}")
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "value", [b"Basic \xff", b"Basic !", b"Basic", b"Bearer \xff", b"\xff", b"Basic " + b"=" * 999]
)
def test_a_broken_authorization_is_401(hub, value):
    answer = hub.call("GET", "/admin", headers=[(b"Authorization", value)])
    assert answer.status_code == 401


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "license",
        "machine_id",
        "agent_id",
        "hostname",
        "events",
        "seen",
        "company_id",
        "server_id",
        "ttl_seconds",
        "path",
        "requests",
        "latency_seconds",
        "status",
        "retry_after",
        "cut",
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    path=st.sampled_from(POSTS),
    body=st.binary()
    | st.dictionaries(FIELDS | st.text(), JSON, max_size=6).map(lambda value: json.dumps(value)),
)
def test_no_body_makes_it_500(hub, path, body):
    hub.call("POST", path, content=body)
    hub.call("DELETE", "/admin/api/faults")


@settings(max_examples=200, deadline=None)
@given(
    path=st.sampled_from(GETS),
    name=st.sampled_from(["since", "limit", "after", "token_hash", "x"]),
    value=st.text() | st.integers().map(str),
)
def test_no_query_makes_it_500(hub, path, name, value):
    hub.call("GET", path, params={name: value.encode("utf-8", "replace")})


@pytest.mark.parametrize(
    "plan",
    [
        {"path": 5},
        {"path": "x" * 300},
        {"path": "ü"},
        {"requests": "5"},
        {"requests": 0},
        {"requests": True},
        {"requests": 1_000_001},
        {"latency_seconds": 60.1},
        {"latency_seconds": -1},
        {"latency_seconds": True},
        {"latency_seconds": 10**400},
        {"status": 500.0},
        {"status": False},
        {"status": 200},
        {"retry_after": "1\r\nX: y"},
        {"retry_after": 5},
        {"cut": ["before"]},
        {"cut": None},
        {"nonsense\n": 1},
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_kept_is_refused_and_harms_nothing(hub, plan):
    answer = hub.call("POST", "/admin/api/faults", json=plan)
    assert answer.status_code == 400
    assert next(iter(plan)).strip() in answer.json()["message"]
    assert hub.call("GET", "/healthz").status_code == 200


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_wait_without_end_is_refused(value):
    with pytest.raises(ValueError, match="latency_seconds: expected a number from 0 to 60"):
        FaultPlan(latency_seconds=value)


def test_the_call_that_sets_plans_is_subject_to_none(hub):
    for path in ("", "/faults", "/admin/api/faults"):
        plan = {"path": path, "requests": 1_000_000, "status": 400}
        assert hub.call("POST", "/admin/api/faults", json=plan).status_code == 201
    assert hub.call("GET", "/healthz").status_code == 400
    assert hub.call("DELETE", "/admin/api/faults").status_code == 200
    assert hub.call("GET", "/healthz").status_code == 200


def test_a_full_disk_is_503_with_one_line_in_the_log(hub, caplog):
    hub.call("POST", PREFIX + "/events", json={"events": [EVENT]})
    event = {**EVENT, "labels": {"x": "y" * 200}}
    events = [
        {**event, "event_id": f"01890000-0000-7000-8000-{number:012x}"} for number in range(1, 200)
    ]

    def limit(pages):
        async def pragma():
            async with hub.database.begin() as connection:
                await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

        return pragma()

    hub.run(limit(1))
    with caplog.at_level(logging.INFO, "ah_server"):
        answer = hub.run(hub.http.post(PREFIX + "/events", json={"events": events}))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    (record,) = (one for one in caplog.records if one.name == "ah_server.hub")
    assert "full" in record.getMessage()
    assert record.exc_info is None
    hub.run(limit(1 << 30))
    assert hub.call("POST", PREFIX + "/events", json={"events": events}).status_code == 200


def test_a_file_that_another_program_holds_is_503(hub):
    async def impatient():
        async with hub.database.begin() as connection:
            await connection.exec_driver_sql("PRAGMA busy_timeout=1")

    hub.run(impatient())
    other = sqlite3.connect(hub.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answer = hub.run(hub.http.get("/admin/api/agents"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    other.execute("ROLLBACK")
    other.close()
    assert hub.call("GET", "/admin/api/agents").status_code == 200


def test_a_sender_that_hangs_up_within_its_body_is_no_failure(hub):
    async def gone():
        yield b"{"
        raise ClientDisconnect

    assert hub.call("POST", PREFIX + "/events", content=gone()).status_code == 400
