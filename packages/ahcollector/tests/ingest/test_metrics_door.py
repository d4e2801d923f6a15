"""The pipeline of a batch: who may pass, what is taken, what is answered, in which order."""

import json
import logging
from datetime import UTC, datetime, timedelta

import anyio
import attrs
import pytest

from ahcollector.errors import PresenceError, TemporaryHubError
from ahcollector.ingest import IngestLimits, SeriesBudget
from ahwire.agent_pb2 import (
    AgentStats,
    EnrollRequest,
    ErrorBody,
    MetricsAck,
    MetricsBatch,
    Point,
    Series,
)
from ahwire.hub import AgentSettings, AgentState, CompanySettings

pytestmark = pytest.mark.anyio


async def test_accepted_batch_is_on_the_bus_with_its_tenant_before_the_answer(world, ack):
    batch = world.batch(world.series("cpu.usage", 42.0, [("core", "0"), ("Zone", "a")]))
    response = await world.send(batch, X_Request_Id="00ff00ff00ff00ff")
    assert response.status_code == 202
    assert response.headers["x-request-id"] == "00ff00ff00ff00ff"
    answer = ack(response)
    assert (answer.ack_seq, answer.accepted_points, answer.dropped_points) == (batch.seq, 1, 0)
    assert answer.server_time_ms == world.now_ms
    assert answer.config_etag == world.settings.current("acme").etag
    (published,) = world.bus.batches
    assert (published.company_id, published.server_id, published.agent_id) == (
        "acme",
        "web-1",
        "agent-1",
    )
    assert published.request_id == "00ff00ff00ff00ff"
    assert published.received_at_ms == world.now_ms
    assert published.series[0].labels == (
        ("__name__", "ah_cpu_usage"),
        ("company_id", "acme"),
        ("server_id", "web-1"),
        ("Zone", "a"),
        ("core", "0"),
    )
    assert published.series[0].points == ((world.now_ms, 42.0),)


async def test_heartbeat_is_acknowledged_and_publishes_nothing(world, ack):
    response = await world.send(world.batch())
    assert response.status_code == 202
    assert ack(response).ack_seq == 1
    assert world.bus.batches == []


async def test_partly_bad_batch_is_accepted_in_part(world, ack):
    batch = world.batch(world.series("good"), world.series("bad", float("nan")), world.series("  "))
    response = await world.send(batch)
    assert response.status_code == 202
    answer = ack(response)
    assert (answer.accepted_points, answer.dropped_points) == (1, 2)
    assert [(one.index, one.code, one.points) for one in answer.rejected] == [
        (1, "not_finite", 1),
        (2, "bad_name", 1),
    ]
    text = world.metrics.exposition().decode()
    assert 'ahc_ingest_dropped_points_total{code="not_finite"} 1.0' in text
    assert "ahc_ingest_points_total 1.0" in text


async def test_batch_with_nothing_acceptable_is_422_with_an_ack(world, ack):
    response = await world.send(world.batch(world.series("x", float("inf"))))
    assert response.status_code == 422
    assert response.headers["x-ah-code"] == "invalid_series"
    assert ack(response).ack_seq == 1
    assert ack(response).rejected[0].code == "not_finite"
    assert world.bus.batches == []


async def test_c7_edges_of_the_time_window_are_exact_and_a_wrong_unit_is_named(world, ack):
    now = world.now_ms
    day, five = 24 * 3600_000, 300_000
    stamps = [now - day, now - day - 1, now + five, now + five + 1, 0, -1, 2**63 - 1]
    batch = world.batch(*[world.series(f"m{i}", ts_ms=ts) for i, ts in enumerate(stamps)])
    answer = ack(await world.send(batch))
    assert [(one.index, one.code) for one in answer.rejected] == [
        (1, "too_old"),
        (3, "in_future"),
        (4, "too_old"),
        (5, "too_old"),
        (6, "in_future"),
    ]
    answer = ack(await world.send(world.batch(world.series(ts_ms=now // 1000), world.series())))
    assert any("seconds" in text for text in answer.warnings)
    answer = ack(await world.send(world.batch(world.series(ts_ms=now * 10**6), world.series())))
    assert any("nanoseconds" in text for text in answer.warnings)


async def test_unknown_token_is_401_only_by_the_hubs_word(world):
    response = await world.send(world.batch(), token="nobody")
    assert response.status_code == 401
    assert response.headers["x-ah-code"] == "unauthorized"
    assert ErrorBody.FromString(response.content).code == "unauthorized"


async def test_hub_down_is_503_and_never_401(world):
    world.hub.fails = TemporaryHubError("connection refused")
    response = await world.send(world.batch())
    assert response.status_code == 503
    assert response.headers["x-ah-code"] == "unavailable"
    assert response.headers["retry-after"] == "30"
    world.hub.fails = None
    assert (await world.send(world.batch())).status_code == 202
    world.hub.fails = TemporaryHubError("connection refused")
    assert (await world.send(world.batch())).status_code == 202, "known here, so no hub is needed"


async def test_a_fleet_that_is_refused_is_warned_of_once_a_minute_and_with_its_number(
    world, caplog
):
    """B2-17: 333 warnings a second, while 10,000 agents were refused for want of Redis."""
    caplog.set_level("INFO", "ahcollector.ingest")
    world.hub.fails = TemporaryHubError("connection refused")
    for number in range(150):
        world.clock.advance(1)
        assert (await world.send(world.batch(), token=f"agent-{number}")).status_code == 503
    world.hub.fails = None
    assert (await world.send(world.batch())).status_code == 202
    own = [one for one in caplog.records if one.name == "ahcollector.ingest"]
    warned = [one for one in own if one.levelname == "WARNING"]
    assert {one.getMessage() for one in warned} == {"request refused"}
    assert all(one.code == "unavailable" and one.request_id and one.reason for one in warned)
    assert [getattr(one, "times", 1) for one in warned] == [1, 60, 60]
    [over] = [one for one in own if one.getMessage() == "requests are taken again"]
    assert over.times == 29


async def test_each_refused_request_is_in_the_log_of_who_looks_closer(world, caplog):
    """B2-17: what is warned of once a minute is there one by one at the level debug."""
    caplog.set_level("DEBUG")
    world.bus.full = True
    for _ in range(5):
        world.clock.advance(1)
        assert (await world.send(world.batch(world.series()))).status_code == 503
    refused = [one for one in caplog.records if one.getMessage() == "request refused"]
    assert [one.levelname for one in refused] == ["WARNING", *["DEBUG"] * 4]
    assert len({one.request_id for one in refused}) == 5


@pytest.mark.parametrize("path", ["enroll", "credentials/renew"])
async def test_a_hub_that_is_away_is_warned_of_once_a_minute_whatever_agents_ask(
    world, caplog, path
):
    """B2-17: the same for those who enrol, renew, or show a token that only the hub knows."""
    assert (await world.send(world.batch())).status_code == 202
    world.hub.fails = TemporaryHubError("connection refused")
    caplog.set_level("INFO")
    caplog.clear()
    for number in range(40):
        world.clock.advance(1)
        await world.client.post(
            f"/agent/v1/{path}",
            content=EnrollRequest(license=f"l-{number}", machine_id="m").SerializeToString(),
            headers=world.headers(),
        )
        await world.send(world.batch(), token=f"unknown-{number}")
    warned = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert max(warned.count(line) for line in warned) <= 2, "one a door"
    assert len(warned) <= 4


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer " + "x" * 2000])
async def test_without_a_bearer_token_nobody_is_asked(world, header):
    response = await world.client.post(
        "/agent/v1/metrics", headers={"Authorization": header, "X-AH-Proto": "1"}
    )
    assert response.status_code == 401
    assert world.hub.calls == []


async def test_revoked_pending_and_expired_tokens_do_not_count_as_a_sign_of_life(world):
    base = world.hub.records["agent-1"]
    cases = [
        (attrs.evolve(base, state=AgentState.PENDING, version=2), 401),
        (attrs.evolve(base, version=3, expires_at=datetime(2020, 1, 1, tzinfo=UTC)), 401),
        (attrs.evolve(base, state=AgentState.REVOKED, version=4), 403),
    ]
    for record, status in cases:
        await world.directory.put(record)
        response = await world.send(world.batch())
        assert response.status_code == status
        assert (await world.presence.drain_seen(10)).seen == ()
    assert response.headers["x-ah-code"] == "agent_revoked"


async def test_sign_of_life_counts_whatever_the_answer_is(world):
    await world.send(world.batch())
    await world.presence.confirm_seen(await world.presence.drain_seen(10))
    requests = [
        ("413", {"content": b"x" * (2 << 20)}),
        ("400", {"content": b"\xff\xff\xff"}),
        ("415", {"content": b"", "headers": {"Content-Encoding": "br"}}),
        ("426", {"content": b"", "headers": {"X-AH-Proto": "9"}}),
    ]
    for status, request in requests:
        world.clock.advance(20)
        headers = {**world.headers(), **request.pop("headers", {})}
        response = await world.client.post("/agent/v1/metrics", headers=headers, **request)
        assert str(response.status_code) == status
        lease = await world.presence.drain_seen(10)
        assert [one.last_seen for one in lease.seen] == [world.clock.time()], status
        await world.presence.confirm_seen(lease)
    world.bus.full = True
    world.clock.advance(20)
    response = await world.send(world.batch(world.series()))
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    assert len((await world.presence.drain_seen(10)).seen) == 1


async def test_other_routes_are_no_sign_of_life(world):
    for path in ("config", "ping"):
        await world.client.get(f"/agent/v1/{path}", headers=world.headers())
    assert (await world.presence.drain_seen(10)).seen == ()


async def test_the_interval_a_batch_names_is_clamped_and_reaches_presence(world):
    for named, kept in [(60, 60.0), (1, 10.0), (100_000, 300.0), (0, 300.0)]:
        world.clock.advance(60)
        await world.send(world.batch(stats=AgentStats(interval_seconds=named)))
        (agent,) = await world.presence.agents()
        assert agent.interval_seconds == kept


async def test_agents_are_watched_by_what_is_set_for_their_company(world):
    """From the first contact after the hub was heard on, and by all doors alike."""
    world.hub.company["acme"] = CompanySettings(
        down_min_seconds=600, agent=AgentSettings(interval_seconds=250)
    )
    await world.send(world.batch())
    (agent,) = await world.presence.agents()
    assert (agent.interval_seconds, agent.deadline) == (30.0, world.clock.time() + 90)
    await world.settings.get("acme")
    world.clock.advance(30)
    await world.send(world.batch())
    (agent,) = await world.presence.agents()
    assert (agent.interval_seconds, agent.deadline) == (250.0, world.clock.time() + 750)
    world.clock.advance(30)
    await world.send(world.batch(stats=AgentStats(interval_seconds=20)))
    (agent,) = await world.presence.agents()
    assert (agent.interval_seconds, agent.deadline) == (20.0, world.clock.time() + 600)


async def test_presence_failing_costs_no_data(world, caplog):
    class Broken:
        async def touch(self, *args, **kwargs):
            raise PresenceError("no answer")

    gate_presence = Broken()
    from ahcollector.ingest._gate import Gate
    from ahcollector.presence.base import AgentRef

    gate = Gate(
        resolver=world.resolver,
        presence=gate_presence,
        settings=world.settings,
        clock=world.clock,
        limits=IngestLimits(),
    )
    agent = AgentRef(agent_id="a", company_id="c", server_id="s")
    await gate.touch(agent, None)
    await gate.touch(agent, None)
    assert caplog.text.count("signs of life cannot be kept") == 1


async def test_rate_is_a_burst_of_ten_then_four_a_minute(world):
    statuses = [(await world.send(world.batch())).status_code for _ in range(11)]
    assert statuses == [202] * 10 + [429]
    response = await world.send(world.batch())
    assert response.headers["x-ah-code"] == "rate_limited"
    assert 1 <= int(response.headers["retry-after"]) <= 60
    world.clock.advance(15)
    assert (await world.send(world.batch())).status_code == 202
    assert (await world.send(world.batch())).status_code == 429


async def test_bus_full_is_503_with_retry_after_5_and_the_resend_is_no_new_series(make_world):
    world = make_world(budget=SeriesBudget(per_hour=1, first_hour=1))
    world.hub.active("agent-1", world.token)
    world.bus.full = True
    batch = world.batch(world.series("only"))
    response = await world.send(batch)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    world.bus.full = False
    assert (await world.send(batch)).status_code == 202


async def test_series_over_the_budget_are_named_and_known_ones_flow(make_world, ack):
    world = make_world(limits=IngestLimits(series_first_hour=2, series_per_hour=1))
    world.hub.active("agent-1", world.token)
    answer = ack(await world.send(world.batch(*[world.series(f"m{i}") for i in range(3)])))
    assert [(one.index, one.code, one.points) for one in answer.rejected] == [
        (2, "series_limit", 1)
    ]
    assert answer.accepted_points == 2
    answer = ack(await world.send(world.batch(world.series("m0"))))
    assert answer.accepted_points == 1
    assert (await world.send(world.batch(world.series("m9")))).status_code == 422
    world.clock.advance(3600)
    answer = ack(await world.send(world.batch(world.series("m9"), world.series("m10"))))
    assert [one.index for one in answer.rejected] == [1]


async def test_too_many_points_are_413_so_that_the_agent_splits(world):
    series = Series(name="m", points=[Point(ts_ms=world.now_ms, value=1.0)] * 20_001)
    response = await world.send(world.batch(series))
    assert response.status_code == 413
    assert response.headers["x-ah-code"] == "too_large"


async def test_json_is_read_and_answered(world):
    body = {
        "seq": "7",
        "unknownField": 1,
        "series": [{"name": "m", "points": [{"tsMs": str(world.now_ms), "value": 2.5}]}],
    }
    response = await world.client.post(
        "/agent/v1/metrics",
        content=json.dumps(body),
        headers=world.headers(Content_Type="application/json; charset=utf-8"),
    )
    assert response.status_code == 202
    assert response.headers["content-type"] == "application/json"
    assert response.json()["ackSeq"] == "7"
    assert world.bus.batches[0].series[0].points == ((world.now_ms, 2.5),)


async def test_error_body_comes_in_the_format_that_accept_asks_for(world):
    response = await world.send(world.batch(), token="nobody", Accept="application/json")
    assert response.json()["code"] == "unauthorized"
    response = await world.send(world.batch(), token="nobody", Accept="text/html, */*;q=0.1")
    assert response.headers["content-type"] == "application/x-protobuf"


@pytest.mark.parametrize("version", [None, "", "2", "1.0"])
async def test_another_protocol_is_426(world, version):
    headers = world.headers()
    del headers["X-AH-Proto"]
    if version is not None:
        headers["X-AH-Proto"] = version
    response = await world.client.post("/agent/v1/metrics", headers=headers)
    assert response.status_code == 426
    assert response.headers["x-ah-code"] == "upgrade_required"


async def test_a_request_without_a_fit_id_gets_one(world):
    for given in (None, "x" * 65, "a b", "a\tb"):
        more = {} if given is None else {"X_Request_Id": given}
        response = await world.send(world.batch(), **more)
        assert len(response.headers["x-request-id"]) == 16
        assert response.headers["x-request-id"] != given


async def test_a_defect_is_answered_500_and_logged_with_the_request_id(world, caplog):
    async def broken(batch):
        raise RuntimeError("a defect")

    world.bus.publish = broken
    response = await world.send(world.batch(world.series()), X_Request_Id="abcdef0123456789")
    assert response.status_code == 500
    assert response.headers["x-ah-code"] == "server_error"
    assert any(
        getattr(record, "request_id", None) == "abcdef0123456789" for record in caplog.records
    )


async def test_token_never_reaches_a_log_or_an_answer(world, caplog):
    caplog.set_level(logging.DEBUG)
    token_hash = world.hub.hash_of(world.token)
    answers = [
        await world.send(world.batch(world.series())),
        await world.send(b"\xff"),
        await world.client.get("/agent/v1/config", headers=world.headers()),
    ]
    world.hub.fails = TemporaryHubError("down")
    answers.append(await world.send(world.batch(), token=world.token + "x"))
    await world.directory.revoke("agent-1")
    answers.append(await world.send(world.batch()))
    shown = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    for answer in answers:
        shown += answer.text + str(answer.headers)
    assert world.token not in shown
    assert token_hash not in shown
    assert world.hub.hash_of(world.token + "x") not in shown


async def test_renewal_is_advised_near_the_end_and_not_with_every_batch(world, ack):
    end = datetime.fromtimestamp(world.clock.time(), UTC) + timedelta(hours=25)
    await world.directory.put(attrs.evolve(world.hub.records["agent-1"], expires_at=end, version=2))
    assert not ack(await world.send(world.batch())).renew_token
    world.clock.advance(2 * 3600)
    assert ack(await world.send(world.batch())).renew_token
    assert not ack(await world.send(world.batch())).renew_token
    world.clock.advance(600)
    assert ack(await world.send(world.batch())).renew_token


async def test_body_that_comes_too_slowly_is_408_and_no_slot_is_held(world):
    from ahcollector.errors import RequestRefusedError
    from ahcollector.ingest._body import read_body

    async def slow():
        yield b"x"
        await anyio.sleep_forever()

    with pytest.raises(RequestRefusedError) as caught:
        await read_body(
            slow(),
            coding=None,
            declared_bytes=None,
            compressed_bytes_max=10,
            plain_bytes_max=10,
            timeout_seconds=0.01,
        )
    assert caught.value.code == "timeout"


async def test_the_same_batch_three_times_is_acknowledged_three_times(world, ack):
    batch = world.batch(world.series())
    for _ in range(3):
        assert ack(await world.send(batch)).ack_seq == batch.seq
    assert len({published.series for published in world.bus.batches}) == 1


async def test_an_empty_body_is_a_heartbeat_of_seq_zero(world):
    response = await world.client.post("/agent/v1/metrics", headers=world.headers())
    assert response.status_code == 202
    assert MetricsAck.FromString(response.content).ack_seq == 0


async def test_c2_invalid_utf8_is_400_never_500(world):
    good = MetricsBatch(seq=1, series=[Series(name="m", labels=[{"name": "k", "value": "abcd"}])])
    bad = good.SerializeToString()
    for piece in (b"ab\xff\xfe", "äö".encode()[:3] + b"a"):
        response = await world.send(bad.replace(b"abcd", piece))
        assert response.status_code == 400, piece
        assert response.headers["x-ah-code"] == "bad_request"
    for text in ('{"series":[{"name":"\\ud800"}]}', '{"series":[{"name":"x\xff"}]}'):
        response = await world.client.post(
            "/agent/v1/metrics",
            content=text.encode("latin-1"),
            headers=world.headers(Content_Type="application/json"),
        )
        assert response.status_code == 400, text
