"""Configuration, enrolment, renewal, inventory, probes."""

import hashlib
import logging
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from ahcollector.errors import PermanentHubError, TemporaryHubError, TemporaryStoreError
from ahwire.agent_pb2 import (
    AgentConfig,
    EnrollRequest,
    EnrollResponse,
    ErrorBody,
    Inventory,
    RenewResponse,
)
from ahwire.hub import AgentSettings, CompanySettings, EnrollGrant, RenewGrant

pytestmark = pytest.mark.anyio

LICENSE = "canary-license-77"


def grant(**fields):
    return EnrollGrant(
        **{
            "agent_id": "new-1",
            "company_id": "acme",
            "server_id": "web-2",
            "token_hash": hashlib.sha256(b"canary-new-token").hexdigest(),
            "agent_token": "canary-new-token",
            "version": 1,
            **fields,
        }
    )


async def enroll(world, license_=LICENSE, **more):
    return await world.client.post(
        "/agent/v1/enroll",
        content=EnrollRequest(license=license_, machine_id="m").SerializeToString(),
        headers={"X-AH-Proto": "1", "Content-Type": "application/x-protobuf", **more},
    )


async def test_config_has_an_etag_and_answers_304(world):
    world.hub.company["acme"] = CompanySettings(
        agent=AgentSettings(interval_seconds=45, disabled_collectors=("disk",))
    )
    response = await world.client.get("/agent/v1/config", headers=world.headers())
    config = AgentConfig.FromString(response.content)
    assert (config.interval_seconds, list(config.disabled_collectors)) == (45, ["disk"])
    etag = response.headers["etag"]
    assert etag == f'"{config.etag}"'
    for value in (etag, f"W/{etag}", f'"x", {etag}', "*"):
        world.clock.advance(60)
        again = await world.client.get(
            "/agent/v1/config", headers=world.headers(If_None_Match=value)
        )
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    world.clock.advance(60)
    other = await world.client.get("/agent/v1/config", headers=world.headers(If_None_Match='"x"'))
    assert other.status_code == 200


async def test_the_etag_of_an_ack_is_the_etag_of_the_config(world, ack):
    world.hub.company["acme"] = CompanySettings(agent=AgentSettings(interval_seconds=45))
    response = await world.client.get("/agent/v1/config", headers=world.headers())
    answer = ack(await world.send(world.batch()))
    assert f'"{answer.config_etag}"' == response.headers["etag"]


async def test_config_is_answered_twice_a_minute(world):
    statuses = [
        (await world.client.get("/agent/v1/config", headers=world.headers())).status_code
        for _ in range(3)
    ]
    assert statuses == [200, 200, 429]


async def test_ping_needs_nothing(world):
    response = await world.client.get("/agent/v1/ping")
    assert response.status_code == 200
    assert len(response.headers["x-request-id"]) == 16


async def test_enrolment_gives_a_token_that_works_at_once(world):
    world.hub.grants[LICENSE] = grant(config=AgentSettings(interval_seconds=20))
    token_hash = world.hub.grants[LICENSE].token_hash
    assert (await world.send(world.batch(), token="canary-new-token")).status_code == 401
    response = await enroll(world)
    reply = EnrollResponse.FromString(response.content)
    assert (reply.agent_id, reply.company_id, reply.server_id) == ("new-1", "acme", "web-2")
    assert reply.agent_token == "canary-new-token"
    assert (reply.config.interval_seconds, reply.token_expires_at_ms) == (20, 0)
    assert response.headers["cache-control"] == "no-store"
    world.hub.fails = TemporaryHubError("down")
    # C22: the negative entry is gone, and no hub is needed.
    assert (await world.send(world.batch(), token="canary-new-token")).status_code == 202
    assert not world.negative.holds(token_hash, now=world.clock.monotonic())


async def test_enrolment_survives_a_registry_that_cannot_keep_it(world, caplog):
    from ahcollector.errors import RegistryError

    async def broken(record, **how):
        raise RegistryError("no answer")

    world.hub.grants[LICENSE] = grant()
    world.registry.put = broken
    assert (await enroll(world)).status_code == 200
    assert "could not be kept" in caplog.text


@pytest.mark.parametrize(
    ("error", "status", "code", "wait"),
    [
        (PermanentHubError("", status=404, code="license_unknown"), 401, "license_invalid", None),
        (PermanentHubError("", status=410, code="license_expired"), 401, "license_invalid", None),
        (PermanentHubError("", status=400), 401, "license_invalid", None),
        (PermanentHubError("", status=409, code="token_used"), 409, "token_used", None),
        (PermanentHubError("", status=409), 409, "already_enrolled", None),
        (PermanentHubError("", status=422), 422, "binding_failed", None),
        (TemporaryHubError("", status=429), 429, "rate_limited", "60"),
        (TemporaryHubError("", status=401), 503, "unavailable", "30"),
        (TemporaryHubError("", status=403), 503, "unavailable", "30"),
        (TemporaryHubError("", status=500), 503, "unavailable", "30"),
        (TemporaryHubError("timeout"), 503, "unavailable", "30"),
        (TemporaryHubError("the grant has no token", status=200), 503, "unavailable", "30"),
    ],
)
async def test_what_an_agent_is_told_when_the_hub_refuses(world, error, status, code, wait):
    world.hub.fails = error
    response = await enroll(world)
    assert response.status_code == status
    assert response.headers["x-ah-code"] == code
    assert ErrorBody.FromString(response.content).code == code
    assert response.headers.get("retry-after") == wait


async def test_a_token_that_is_not_the_hashed_one_is_an_incomplete_answer(world):
    world.hub.grants[LICENSE] = grant(token_hash="0" * 64)
    assert (await enroll(world)).status_code == 503


async def test_without_a_license_nobody_is_asked(world):
    assert (await enroll(world, "")).headers["x-ah-code"] == "license_invalid"
    assert world.hub.calls == []


async def test_without_a_hub_enrolment_renewal_and_inventory_are_503(make_world):
    world = make_world(hub=False)
    response = await enroll(world)
    assert (response.status_code, response.headers["retry-after"]) == (503, "30")
    await world.directory.put(world.hub.active("agent-1", world.token))
    for path in ("credentials/renew", "inventory"):
        response = await world.client.post(f"/agent/v1/{path}", headers=world.headers())
        assert response.status_code == 503


async def test_enrolments_are_counted_by_address(world):
    codes = [(await enroll(world)).headers["x-ah-code"] for _ in range(11)]
    assert codes == ["license_invalid"] * 10 + ["rate_limited"]
    assert world.hub.enrolled_from == ["192.0.2.7"] * 10
    assert (await enroll(world, **{"X-Forwarded-For": "198.51.100.1"})).status_code == 429


async def test_a_trusted_proxys_word_is_the_address(make_world):
    from ipaddress import ip_network

    world = make_world(trusted_proxies=[ip_network("192.0.2.0/24")])
    await enroll(world, **{"X-Forwarded-For": "1.1.1.1, 198.51.100.9, 192.0.2.1"})
    assert world.hub.enrolled_from == ["198.51.100.9"]


async def test_the_license_and_the_new_token_are_never_told(world, caplog):
    caplog.set_level(logging.DEBUG)
    bad_json = b'{"license": {"' + LICENSE.encode() + b'": 1}}'
    answers = [
        await enroll(world),
        await world.client.post(
            "/agent/v1/enroll",
            content=bad_json,
            headers={"X-AH-Proto": "1", "Content-Type": "application/json"},
        ),
    ]
    world.hub.grants[LICENSE] = grant()
    await enroll(world)
    shown = caplog.text + "".join(str(vars(one)) for one in caplog.records)
    shown += "".join(answer.text for answer in answers)
    assert answers[1].status_code == 400
    for secret in (LICENSE, "canary-new-token"):
        assert secret not in shown


async def test_renewal_keeps_the_shown_token_for_the_overlap(world):
    end = datetime.fromtimestamp(world.clock.time(), UTC) + timedelta(hours=24)
    world.hub.renewals["agent-1"] = RenewGrant(
        token_hash=world.hub.hash_of("second"),
        agent_token="second",
        prev_token_expires_at=end,
        version=2,
    )
    response = await world.client.post("/agent/v1/credentials/renew", headers=world.headers())
    reply = RenewResponse.FromString(response.content)
    assert reply.agent_token == "second"
    assert reply.previous_valid_until_ms == round(end.timestamp() * 1000)
    assert (await world.send(world.batch(), token="second")).status_code == 202
    assert (await world.send(world.batch())).status_code == 202
    # Its answer was lost: the first token renews once more, and stays the previous one.
    world.hub.renewals["agent-1"] = attrs.evolve(
        world.hub.renewals["agent-1"],
        token_hash=world.hub.hash_of("third"),
        agent_token="third",
        version=3,
    )
    await world.client.post("/agent/v1/credentials/renew", headers=world.headers())
    assert (await world.send(world.batch(), token="third")).status_code == 202
    assert (await world.send(world.batch())).status_code == 202
    world.clock.advance(24 * 3600 + 1)
    assert (await world.send(world.batch())).status_code == 401
    assert (await world.send(world.batch(), token="third")).status_code == 202


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TemporaryHubError("", status=500), "unavailable"),
        (TemporaryHubError("", status=401), "unavailable"),
        (TemporaryHubError("", status=429), "rate_limited"),
        (PermanentHubError("", status=404), "not_found"),
        (PermanentHubError("", status=400), "unavailable"),
    ],
)
async def test_a_failed_renewal_never_says_the_token_is_bad(world, error, code):
    await world.send(world.batch())
    world.hub.fails = error
    response = await world.client.post("/agent/v1/credentials/renew", headers=world.headers())
    assert response.headers["x-ah-code"] == code
    assert response.status_code not in {401, 403}
    assert (await world.send(world.batch())).status_code == 202


async def test_an_inventory_is_passed_on_or_refused(world):
    body = Inventory(hostname="h").SerializeToString()
    send = {"content": body, "headers": world.headers()}
    assert (await world.client.post("/agent/v1/inventory", **send)).status_code == 202
    assert world.hub.inventories == [("agent-1", Inventory(hostname="h"))]
    world.hub.fails = TemporaryHubError("down")
    response = await world.client.post("/agent/v1/inventory", **send)
    assert (response.status_code, response.headers["retry-after"]) == (503, "30")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/agent/v1/metrics", 405),
        ("POST", "/agent/v1/config", 405),
        ("GET", "/", 404),
        ("POST", "/agent/v2/metrics", 404),
        ("GET", "/agent/v1/../../etc/passwd", 404),
    ],
)
async def test_what_is_not_here_says_so_with_a_code(world, method, path, status):
    response = await world.client.request(method, path)
    assert response.status_code == status
    assert response.headers["x-ah-code"] == "not_found"
    assert response.headers["x-request-id"]
    assert ErrorBody.FromString(response.content).code == "not_found"


async def test_readiness_names_each_dependency(make_world):
    async def well():
        return

    async def broken():
        raise TemporaryStoreError("store is away")

    world = make_world(checks={"bus": well, "store": broken})
    response = await world.client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"] == {"bus": "ok", "store": "store is away"}
    assert (await world.client.get("/healthz")).json() == {"status": "ok"}
    response = await make_world(checks={"bus": well}).client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "ready")


async def test_no_path_leads_elsewhere(world):
    for path in ("/agent/v1/config/", "/agent/v1/ping/", "/api/v1/write/"):
        response = await world.client.get(path, headers={"Host": "elsewhere.example"})
        assert (response.status_code, response.headers["x-ah-code"]) == (404, "not_found")
        assert "location" not in response.headers


async def test_the_depth_of_the_bus_is_told_at_each_scrape(world):
    assert b"ahc_ingest_bus_depth 0.0" in world.metrics.exposition()
    await world.send(world.batch(world.series()))
    assert b"ahc_ingest_bus_depth 1.0" in world.metrics.exposition()


AMBIGUOUS = {
    "two lengths of different kinds": [("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
    "two tokens": [("Authorization", "Bearer other")],
    "one token twice": [("Authorization", "Bearer canary-token-1f9c0a")],
}


@pytest.mark.parametrize("case", AMBIGUOUS)
@pytest.mark.parametrize("path", ["/agent/v1/metrics", "/api/v1/write", "/v1/metrics"])
async def test_a_request_that_two_readers_could_take_for_two_is_400_and_not_read(world, path, case):
    """A proxy before us may believe the other token, or find another request in the body."""
    read = []

    async def body():
        read.append(1)
        yield b"0\r\n\r\n"

    own = [("Authorization", f"Bearer {world.token}"), ("X-AH-Proto", "1")]
    response = await world.client.post(path, content=body(), headers=[*own, *AMBIGUOUS[case]])
    assert (response.status_code, response.headers["x-ah-code"]) == (400, "bad_request")
    assert response.headers["connection"] == "close"
    assert response.headers["x-request-id"]
    assert b"send one" in response.content
    assert read == []


async def test_a_body_sent_in_chunks_without_a_length_is_no_fault(world):
    async def body():
        yield world.batch(world.series()).SerializeToString()

    response = await world.client.post(
        "/agent/v1/metrics", content=body(), headers=world.headers(world.token)
    )
    assert response.status_code == 202
    assert "connection" not in response.headers
