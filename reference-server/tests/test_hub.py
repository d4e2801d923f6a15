import hashlib
import json
import random
import time
from datetime import UTC, datetime

import anyio
import pytest
from hubs import TOKEN, BareHub

from ah_server.errors import StateDirectoryError
from ah_server.hub import (
    PREFIX,
    Bridge,
    open_database,
    to_incident,
)
from ahwire import Event, UUID7Generator
from ahwire.hub import AgentPage, AgentRecord, CompanySettings, EnrollGrant, EventsReply, RenewGrant

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self):
        self.now = 1_800_000_000.0

    def time(self):
        return self.now

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await anyio.sleep(0)


class Hub(BareHub):
    def __init__(self, database, clock):
        super().__init__(database, clock)
        self.clock = clock
        self.ids = UUID7Generator(time, random.Random(7))

    async def call(self, method, path, **more):
        return await self.http.request(method, PREFIX + path, **more)

    async def enroll(self, license_text, machine_id="m1"):
        body = {"license": license_text, "machine_id": machine_id, "hostname": "web1"}
        return await self.call("POST", "/enroll", json=body)

    def event(self, **values):
        base = {
            "event_id": self.ids.next(),
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
            "labels": {"last_seen_at": "2026-11-30T09:58:30Z"},
        }
        return {**base, **values}


@pytest.fixture
async def hub(tmp_path):
    database = await open_database(tmp_path / "hub.sqlite")
    made = Hub(database, Clock())
    yield made
    await made.aclose()


async def test_everything_asks_for_the_token(hub):
    hub.http.headers["Authorization"] = "Bearer wrong"
    for method, path in [
        ("POST", PREFIX + "/enroll"),
        ("GET", PREFIX + "/agents"),
        ("POST", PREFIX + "/events"),
        ("GET", "/admin"),
        ("GET", "/admin/api/events"),
        ("POST", "/admin/api/faults"),
    ]:
        answer = await hub.http.request(method, path)
        assert answer.status_code == 401
        assert TOKEN not in answer.text


async def test_a_license_becomes_an_identity_once(hub):
    license_text = await hub.identities.new_license("acme", "web1", 60)
    answer = await hub.enroll(license_text)
    grant = EnrollGrant.from_json(answer.content)
    assert (grant.company_id, grant.server_id) == ("acme", "web1")
    assert grant.token_hash == hashlib.sha256(grant.agent_token.encode()).hexdigest()
    other = await hub.enroll(license_text, machine_id="m2")
    assert (other.status_code, other.json()["code"]) == (409, "token_used")


async def test_a_lost_answer_locks_nobody_out_for_ten_minutes(hub):
    license_text = await hub.identities.new_license("acme", "web1", 60)
    first = EnrollGrant.from_json((await hub.enroll(license_text)).content)
    hub.clock.now += 600
    again = EnrollGrant.from_json((await hub.enroll(license_text)).content)
    assert again.agent_id == first.agent_id
    assert again.agent_token != first.agent_token
    assert again.version > first.version
    hub.clock.now += 0.001
    assert (await hub.enroll(license_text)).status_code == 409


async def test_refusals_have_the_codes_of_the_contract(hub):
    license_text = await hub.identities.new_license("acme", "web1", 60)
    assert (await hub.enroll("nonsense")).json()["code"] == "license_unknown"
    assert (await hub.enroll(license_text, machine_id="")).json()["code"] == "binding_failed"
    hub.clock.now += 60
    late = await hub.enroll(license_text)
    assert (late.status_code, late.json()["code"]) == (410, "license_expired")


async def test_a_license_for_no_id_is_refused(hub):
    with pytest.raises(ValueError, match=r"server '\.\./x' is not an id"):
        await hub.identities.new_license("acme", "../x", 60)


async def test_renewal_keeps_the_old_token_for_a_day(hub):
    license_text = await hub.identities.new_license("acme", "web1", 60)
    grant = EnrollGrant.from_json((await hub.enroll(license_text)).content)
    answer = await hub.call("POST", "/credentials/renew", json={"agent_id": grant.agent_id})
    renewed = RenewGrant.from_json(answer.content)
    assert renewed.prev_token_expires_at.timestamp() == hub.clock.now + 86_400
    for token_hash in (grant.token_hash, renewed.token_hash):
        found = await hub.call("GET", "/agents", params={"token_hash": token_hash})
        record = AgentRecord.from_json(found.content)
        assert record.token_hash == renewed.token_hash
        assert record.prev_token_hash == grant.token_hash


async def test_an_unknown_token_hash_is_404(hub):
    for value in ("0" * 64, "not-a-hash", ""):
        answer = await hub.call("GET", "/agents", params={"token_hash": value})
        assert answer.status_code == 404


async def test_the_sync_walks_all_agents_and_then_only_changes(hub):
    grants = []
    for number in range(5):
        text = await hub.identities.new_license("acme", f"web{number}", 60)
        grants.append(EnrollGrant.from_json((await hub.enroll(text, f"m{number}")).content))
    seen, since = [], ""
    while True:
        answer = await hub.call("GET", "/agents", params={"since": since, "limit": 2})
        page = AgentPage.from_json(answer.content)
        seen += page.agents
        since = page.next_since
        if not page.more:
            break
    assert [one.server_id for one in seen] == [f"web{number}" for number in range(5)]
    await hub.http.post(f"/admin/api/agents/{grants[1].agent_id}/revoke")
    page = AgentPage.from_json((await hub.call("GET", "/agents", params={"since": since})).content)
    assert [(one.server_id, one.state) for one in page.agents] == [("web1", "revoked")]
    assert (await hub.call("GET", "/agents", params={"since": "x"})).status_code == 400


async def test_an_event_is_recorded_once_and_a_bad_one_spoils_only_itself(hub):
    good, bad = hub.event(), hub.event(seq="many")
    for _ in range(2):
        answer = await hub.call("POST", "/events", json={"events": [good, bad]})
        reply = EventsReply.from_json(answer.content)
        assert reply.accepted == (good["event_id"],)
        assert [one.event_id for one in reply.rejected] == [bad["event_id"]]
        assert "seq" in reply.rejected[0].reason
    (logged,) = await hub.event_log.after(0, 10)
    assert logged.event.event_id == good["event_id"]
    assert await hub.event_log.count_by_type() == {"agent.down": 1}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"events":[]}', b'{"events":{}}', b"[" * 100_000])
async def test_a_body_that_is_no_list_of_events_is_refused(hub, body):
    assert (await hub.call("POST", "/events", content=body)).status_code == 400


async def test_an_old_fence_is_refused_whole(hub):
    async def send(fence):
        body = {"events": [hub.event()]}
        return await hub.call("POST", "/events", json=body, headers={"X-AH-Fence": fence})

    assert (await send("5")).status_code == 200
    assert (await send("5")).status_code == 200
    fenced = await send("4")
    assert (fenced.status_code, fenced.json()["newest"]) == (412, 5)
    assert (await send("x")).status_code == 400
    assert len(await hub.event_log.after(0, 10)) == 2


async def test_settings_are_answered_with_an_etag(hub):
    first = await hub.call("GET", "/settings/acme")
    assert CompanySettings.from_json(first.content) == CompanySettings()
    etag = first.headers["etag"]
    again = await hub.call("GET", "/settings/acme", headers={"If-None-Match": etag})
    assert again.status_code == 304
    body = b'{"down_min_seconds":30.0}'
    assert (await hub.http.put("/admin/api/settings/acme", content=body)).status_code == 200
    changed = await hub.call("GET", "/settings/acme", headers={"If-None-Match": etag})
    assert CompanySettings.from_json(changed.content).down_min_seconds == 30.0


async def test_seen_inventory_and_heartbeat_are_kept(hub):
    text = await hub.identities.new_license("acme", "web1", 60)
    grant = EnrollGrant.from_json((await hub.enroll(text)).content)
    for at in ("2026-11-30T10:00:00Z", "2026-11-30T09:00:00Z"):
        body = {"seen": [{"agent_id": grant.agent_id, "last_seen_at": at}]}
        assert (await hub.call("POST", "/agents/seen", json=body)).status_code == 200
    (line,) = await hub.identities.list_agents()
    assert line.last_seen_ms == datetime(2026, 11, 30, 10, tzinfo=UTC).timestamp() * 1000
    body = {"agent_id": grant.agent_id, "inventory": {"cpus": 2}}
    assert (await hub.call("POST", "/inventory", json=body)).status_code == 200


async def test_the_admin_page_escapes_what_agents_say(hub):
    empty = await hub.http.get("/admin")
    assert "No agent has enrolled yet" in empty.text
    await hub.call("POST", "/events", json={"events": [hub.event()]})
    text = await hub.identities.new_license("acme", "web1", 60)
    await hub.enroll(text, "<script>")
    page = await hub.http.get("/admin", auth=("any", TOKEN))
    assert "agent.down" in page.text
    assert "<script>" not in page.text
    assert text not in page.text


async def test_the_admin_page_tells_alerts_apart_and_says_what_hides_one(hub):
    alert = {
        "type": "alert.reminder",
        "rule_id": "disk-full",
        "series_key": 'ah_disk_used_percent{mount="/<b>"}',
        "severity": "warning",
        "value": 95.5,
        "suppressed": True,
        "suppress_reason": "silence:nightly",
    }
    answer = await hub.call("POST", "/events", json={"events": [hub.event(**alert)]})
    assert len(answer.json()["accepted"]) == 1
    page = (await hub.http.get("/admin")).text
    for told in ("disk-full", "{mount=&#34;/&lt;b&gt;&#34;}", "warning", "95.5", "silence:nightly"):
        assert f"<td>{told}</td>" in page or told in page
    assert "<b>" not in page


async def test_the_hub_fails_as_it_is_told(hub):
    plan = {"path": "/events", "requests": 2, "status": 503, "retry_after": "7"}
    assert (await hub.http.post("/admin/api/faults", json=plan)).status_code == 201
    body = {"events": [hub.event()]}
    for _ in range(2):
        answer = await hub.call("POST", "/events", json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert (await hub.call("POST", "/events", json=body)).status_code == 200
    for wrong in ({"status": 200}, {"nonsense": 1}, {"cut": "maybe"}):
        assert (await hub.http.post("/admin/api/faults", json=wrong)).status_code == 400


async def test_a_cut_after_the_work_leaves_the_event_recorded_once(hub):
    await hub.http.post("/admin/api/faults", json={"path": "/events", "cut": "after"})
    body = json.dumps({"events": [hub.event()]})
    await hub.call("POST", "/events", content=body)  # this transport shows no cut
    assert len(await hub.event_log.after(0, 10)) == 1
    await hub.call("POST", "/events", content=body)
    assert len(await hub.event_log.after(0, 10)) == 1


async def test_an_event_becomes_an_incident_under_its_own_id(hub):
    event = Event.from_json(json.dumps(hub.event()).encode())
    incident = to_incident(event)
    assert incident.event_id == event.event_id
    assert (incident.tenant_id, incident.host) == ("acme", "web1")
    assert (incident.event_type, incident.severity) == ("agent_down", "high")
    assert incident.payload["labels"]["last_seen_at"] == "2026-11-30T09:58:30Z"
    assert incident.payload["severity"] == "critical"
    suppressed = Event.from_json(json.dumps(hub.event(suppressed=True)).encode())
    assert to_incident(suppressed) is None


async def test_the_bridge_moves_only_after_the_publish_and_survives_failures(hub):
    ids = []
    for seq in range(5):
        event = hub.event(seq=seq, suppressed=seq == 3)
        ids.append(event["event_id"])
        await hub.call("POST", "/events", json={"events": [event]})
    published, failures = [], iter([None, OSError("away"), None, OSError("away"), None, None])

    async def publish(incident):
        error = next(failures, None)
        if error is not None:
            raise error
        published.append(incident.event_id)

    bridge = Bridge(
        event_log=hub.event_log,
        publish=publish,
        failures=OSError,
        clock=hub.clock,
        rng=random.Random(1),
    )
    async with anyio.create_task_group() as group:
        group.start_soon(bridge.run)
        with anyio.fail_after(5):
            while await hub.event_log.cursor("bridge") < 5:
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert published == [ids[0], ids[1], ids[2], ids[4]]
    assert bridge.suppressed == 1


async def test_a_file_of_another_version_is_refused(tmp_path, hub):
    database = await open_database(tmp_path / "other.sqlite")
    async with database.begin() as connection:
        await connection.exec_driver_sql("UPDATE meta SET value = 9 WHERE name = 'schema'")
    await database.aclose()
    with pytest.raises(StateDirectoryError, match="schema 9"):
        await open_database(tmp_path / "other.sqlite")


async def test_the_file_is_for_its_owner_only(tmp_path, hub):
    assert (tmp_path / "hub.sqlite").stat().st_mode & 0o077 == 0
