"""Every row of the status table, over real HTTP."""

import socket
import threading

import pytest

from ahwal import Client, DeliveryState, DropReason
from ahwal.testing import ScriptedAnswer, acknowledge, protobuf, refuse
from ahwire.agent_pb2 import MetricsAck, RejectedSeries

pytestmark = pytest.mark.anyio


async def test_an_acknowledged_batch_leaves_the_queue(rig):
    await rig.enqueue(3)
    assert await rig.tick() == 1
    assert rig.status.delivered == 3
    assert rig.status.queued_batches == 0
    assert rig.sender.state is DeliveryState.OK


async def test_status_200_with_an_acknowledgement_is_accepted_too(rig):
    def answer(request):
        ack = MetricsAck(ack_seq=request.batch.seq)
        return protobuf(ack.SerializeToString(), status=200)

    rig.collector.script(answer)
    await rig.enqueue()
    assert await rig.tick() == 1


async def test_an_acknowledgement_in_json_is_accepted(rig):
    def answer(request):
        body = f'{{"ackSeq": "{request.batch.seq}", "somethingNew": 1}}'.encode()
        return ScriptedAnswer(
            status=202, headers={"Content-Type": "application/json; charset=utf-8"}, body=body
        )

    rig.collector.script(answer)
    await rig.enqueue()
    assert await rig.tick() == 1


async def test_points_that_the_collector_refused_are_counted(rig):
    fault = RejectedSeries(index=1, code="series_limit", points=1)
    rig.collector.script(acknowledge(dropped_points=1, rejected=[fault]))
    await rig.enqueue(3)
    await rig.tick()
    assert rig.status.delivered == 2
    assert rig.status.dropped[DropReason.REFUSED] == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refuse(400, "bad_request"), DropReason.BAD_REQUEST),
        (
            protobuf(
                MetricsAck(
                    rejected=[RejectedSeries(index=0, code="bad_name", points=2)]
                ).SerializeToString(),
                status=422,
            ),
            DropReason.INVALID_SERIES,
        ),
    ],
    ids=["400", "422"],
)
async def test_a_batch_that_can_never_be_accepted_is_dropped_and_the_next_one_is_sent(
    rig, answer, reason
):
    rig.collector.script(answer)
    await rig.enqueue(2)
    await rig.tick()
    assert rig.status.dropped[reason] == 2
    assert rig.status.queued_batches == 0
    assert rig.sender.state is DeliveryState.OK
    await rig.enqueue()
    assert await rig.tick() == 1


@pytest.mark.parametrize("status", [400, 403, 415, 422])
async def test_without_the_rows_code_nothing_is_dropped_and_nobody_is_revoked(rig, status):
    rig.collector.script(refuse(status, message="<html>blocked by policy</html>"))
    await rig.enqueue()
    await rig.tick()
    assert rig.status.queued_batches == 1
    assert rig.sender.state is DeliveryState.BACKOFF
    assert rig.client.has_token


async def test_401_stops_sending_and_a_probe_every_ten_minutes_resumes_in_the_same_tick(
    rig, caplog
):
    # W28: 401 for ten minutes, then 202.
    rig.collector.always(refuse(401, "unauthorized"))
    rig.collector.always(refuse(401, "unauthorized"), "/config")
    await rig.enqueue(2)
    await rig.tick()
    assert rig.sender.state is DeliveryState.UNAUTHORIZED
    assert "enrol again with `ahagent enroll --force`, or stop the other agent" in caplog.text
    for _ in range(39):
        await rig.tick(wait_seconds=30)
        await rig.enqueue()
    assert rig.posts == 1
    assert len(rig.collector.requests("/config")) == 1
    rig.collector.always(None)
    rig.collector.always(None, "/config")
    acknowledged = await rig.tick(wait_seconds=30)
    assert acknowledged >= 1
    assert len(rig.collector.requests("/config")) == 2
    assert rig.sender.state is DeliveryState.OK


async def test_403_stops_for_good_clears_the_token_and_keeps_the_data(rig):
    rig.collector.script(refuse(403, "agent_revoked"))
    await rig.enqueue(2)
    await rig.tick()
    assert rig.sender.state is DeliveryState.AGENT_REVOKED
    assert not rig.client.has_token
    for _ in range(30):
        await rig.enqueue()
        await rig.tick(wait_seconds=600)
    assert rig.posts == 1
    assert rig.collector.requests("/config") == []
    assert rig.status.queued_batches == 31
    assert rig.sender.due_in_seconds() is None


async def test_a_probe_that_learns_of_the_revocation_stops_for_good(rig):
    rig.collector.script(refuse(401, "unauthorized"))
    rig.collector.script(refuse(403, "agent_revoked"), path="/config")
    await rig.enqueue()
    await rig.tick()
    await rig.tick(wait_seconds=601)
    assert rig.sender.state is DeliveryState.AGENT_REVOKED
    assert not rig.client.has_token


async def test_426_flags_an_upgrade_until_the_next_success(rig):
    rig.collector.script(refuse(426, "upgrade_required"))
    await rig.enqueue()
    await rig.tick()
    assert rig.status.upgrade_required
    assert "upgrade_required=true" in rig.status.line()
    assert rig.status.queued_batches == 1
    await rig.tick()
    assert not rig.status.upgrade_required
    assert rig.status.queued_batches == 0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 599])
async def test_a_temporary_answer_keeps_the_batch_and_backs_off(rig, status):
    rig.collector.script(refuse(status))
    await rig.enqueue()
    await rig.tick()
    assert rig.sender.state is DeliveryState.BACKOFF
    assert rig.status.send_failures == 1
    await rig.tick(wait_seconds=4.9)
    assert rig.posts == 1
    await rig.tick(wait_seconds=60)
    assert rig.posts == 2
    assert rig.sender.state is DeliveryState.OK
    assert rig.status.delivered == 1


@pytest.mark.parametrize(
    ("retry_after", "wait_seconds"),
    # W18. The whole first step is 5 s in this test, and nothing asks for less than it.
    [
        ("0", 5),
        ("-5", 5),
        ("1.5", 5),
        ("9999999999", 3600),
        ("nan", 5),
        (" 10 ", 10),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 5),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 5),
        ("Sun Nov  6 08:49:37 1994", 5),
        ("garbage", 5),
        ("120", 120),
    ],
)
async def test_retry_after_is_obeyed_within_an_hour_and_never_believed_blindly(
    rig, retry_after, wait_seconds
):
    rig.collector.script(refuse(503, "unavailable", retry_after=retry_after))
    await rig.enqueue()
    await rig.tick()
    assert rig.sender.due_in_seconds() == pytest.approx(wait_seconds, abs=0.5)


@pytest.mark.parametrize(
    "answer",
    [
        ScriptedAnswer(status=204),
        ScriptedAnswer(status=206),
        ScriptedAnswer(status=301, headers={"Location": "/elsewhere"}),
        ScriptedAnswer(status=302, headers={"Location": "/elsewhere"}),
        ScriptedAnswer(status=307, headers={"Location": "/elsewhere"}),
        ScriptedAnswer(status=308, headers={"Location": "/elsewhere"}),
        ScriptedAnswer(status=304),
        ScriptedAnswer(status=200, headers={"Content-Type": "text/html"}, body=b"<html>log in"),
        ScriptedAnswer(status=202, headers={"Content-Type": "application/x-protobuf"}),
        protobuf(MetricsAck(ack_seq=1).SerializeToString(), status=202),
        ScriptedAnswer(status=404),
        refuse(409, "already_enrolled"),
    ],
    ids=[
        "204",
        "206",
        "301",
        "302",
        "307",
        "308",
        "304",
        "portal",
        "empty",
        "other seq",
        "404",
        "409",
    ],
)
async def test_what_is_no_acknowledgement_keeps_the_batch(rig, answer):
    # W25, and every status outside the table.
    rig.collector.script(answer)
    await rig.enqueue()
    await rig.tick()
    assert rig.status.queued_batches == 1
    assert rig.sender.state is DeliveryState.BACKOFF
    assert rig.status.dropped == dict.fromkeys(DropReason, 0)
    assert {r.path for r in rig.collector.requests()} == {"/metrics"}


async def test_415_is_sent_once_more_as_gzip_and_then_dropped(rig):
    rig.collector.always(refuse(415, "unsupported_encoding"))
    await rig.enqueue(2)
    await rig.tick()
    assert rig.posts == 2
    assert rig.status.dropped[DropReason.UNSUPPORTED_ENCODING] == 2
    rig.collector.always(None)
    await rig.enqueue()
    assert await rig.tick() == 1


@pytest.mark.parametrize("broken", [ScriptedAnswer(reset=True), "cut", "hang"])
async def test_a_broken_connection_keeps_the_batch(rig, broken):
    # W26: reset, truncated answer, read timeout.
    if broken == "cut":
        broken = ScriptedAnswer(
            status=202, headers={"Content-Type": "application/x-protobuf"}, body=b"x" * 50, cut=True
        )
    elif broken == "hang":
        broken = ScriptedAnswer(delay_seconds=0.6)
        rig.sender.use_transport(Client(collector_url=rig.collector.url, send_timeout_seconds=0.2))
    rig.collector.script(broken)
    await rig.enqueue()
    await rig.tick()
    assert rig.status.queued_batches == 1
    assert rig.sender.state is DeliveryState.BACKOFF
    rig.sender.use_transport(rig.client)
    assert await rig.tick() == 1


async def test_a_refused_connection_keeps_the_batch(rig):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with Client(collector_url=f"http://127.0.0.1:{port}") as nowhere:
        rig.sender.use_transport(nowhere)
        await rig.enqueue()
        await rig.tick()
    assert rig.status.queued_batches == 1
    assert rig.sender.state is DeliveryState.BACKOFF


async def test_of_two_retry_after_headers_the_longer_wait_counts(rig):
    # W18.
    headers = {"Retry-After": "60", "retry-after": "20"}
    rig.collector.script(ScriptedAnswer(status=503, headers=headers))
    await rig.enqueue()
    await rig.tick()
    assert rig.sender.due_in_seconds() == pytest.approx(60, abs=0.5)


async def test_an_answer_over_one_mebibyte_is_refused(rig):
    rig.collector.script(
        ScriptedAnswer(
            status=202,
            headers={"Content-Type": "application/x-protobuf"},
            body=b"\0" * ((1 << 20) + 1),
        )
    )
    await rig.enqueue()
    await rig.tick()
    assert rig.status.queued_batches == 1
    assert "1048576" in rig.status.last_error


async def test_a_config_etag_is_told_once_for_each_new_one(rig):
    for etag in ("a", "a", "b", "b", "a"):
        rig.collector.script(acknowledge(config_etag=etag))
        await rig.enqueue()
        await rig.tick()
    assert rig.etags == ["a", "b", "a"]


async def test_the_wish_for_a_new_token_is_passed_on(rig):
    rig.collector.script(acknowledge(renew_token=True))
    await rig.enqueue()
    await rig.tick()
    assert rig.renewals == [True]


async def test_clock_skew_is_the_servers_time_minus_ours(rig):
    server_ms = round((rig.clock.time() + 30 + 120) * 1000)
    rig.collector.script(acknowledge(server_time_ms=server_ms))
    await rig.enqueue()
    await rig.tick()
    assert rig.status.clock_skew_seconds == pytest.approx(120, abs=1)


async def test_every_request_carries_the_headers_of_the_protocol(rig):
    await rig.enqueue()
    await rig.tick()
    (request,) = rig.collector.requests("/metrics")
    assert request.headers["authorization"] == "Bearer canary-token-1f6e0c"
    assert request.headers["x-ah-proto"] == "1"
    assert request.headers["x-ah-agent-version"]
    assert len(bytes.fromhex(request.headers["x-request-id"])) == 8
    assert request.headers["user-agent"].startswith("ahwal/")
    assert request.headers["content-encoding"] == "gzip"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert "cookie" not in request.headers


async def test_sent_at_is_the_time_of_the_real_send_and_points_keep_theirs(rig):
    collected_ms = round(rig.clock.time() * 1000)
    rig.collector.script(refuse(503))
    await rig.enqueue()
    await rig.tick()
    await rig.tick(wait_seconds=300)
    first, second = rig.collector.batches()
    assert second.sent_at_ms - first.sent_at_ms == 300_000
    assert first.collected_at_ms == second.collected_at_ms == collected_ms
    assert second.series[0].points[0].ts_ms == collected_ms
    assert first.seq == second.seq


async def test_a_cancelled_request_loses_nothing(rig):
    import anyio

    rig.collector.script(ScriptedAnswer(delay_seconds=1.0))
    await rig.enqueue()
    rig.clock.step(30)
    with anyio.move_on_after(0.2):
        await rig.sender.tick()
    assert rig.status.queued_batches == 1
    assert await rig.tick() == 1
    assert threading.active_count() < 20


def ids_in(caplog):
    return {r.request_id for r in caplog.records if getattr(r, "request_id", "")}


@pytest.mark.parametrize(
    "answer",
    [
        refuse(400, "bad_request"),
        refuse(401, "unauthorized"),
        refuse(403, "agent_revoked"),
        refuse(404),
        refuse(408, "timeout"),
        refuse(413, "too_large"),
        refuse(413),
        refuse(415, "unsupported_encoding"),
        protobuf(MetricsAck(rejected=[RejectedSeries(points=1)]).SerializeToString(), status=422),
        refuse(426, "upgrade_required"),
        refuse(429, "rate_limited"),
        refuse(500),
        refuse(503, "unavailable"),
        ScriptedAnswer(status=204),
        ScriptedAnswer(status=302),
        ScriptedAnswer(reset=True),
        acknowledge(dropped_points=1, rejected=[RejectedSeries(points=1)]),
        acknowledge(warnings=["soon"]),
    ],
    ids=lambda answer: str(getattr(answer, "status", "partly")),
)
@pytest.mark.parametrize("points", [1, 2])
async def test_every_failure_is_logged_with_the_id_under_which_the_server_knows_it(
    rig, caplog, answer, points
):
    caplog.set_level("INFO", "ahwal")
    rig.collector.script(answer)
    await rig.enqueue(points)
    await rig.tick()
    first = rig.collector.requests("/metrics")[0]
    assert first.headers["x-request-id"] in ids_in(caplog)


async def test_a_probe_that_fails_is_logged_with_its_id(rig, caplog):
    rig.collector.script(refuse(401, "unauthorized"))
    rig.collector.always(refuse(401, "unauthorized"), "/config")
    await rig.enqueue()
    await rig.tick()
    await rig.tick(wait_seconds=601)
    (probe,) = rig.collector.requests("/config")
    assert probe.headers["x-request-id"] in ids_in(caplog)


async def test_a_429_is_never_tried_again_before_its_retry_after_and_slows_the_pace(rig):
    rig.collector.script(refuse(429, "rate_limited", retry_after="90"))
    await rig.enqueue()
    await rig.tick()
    assert rig.sender.due_in_seconds() >= 90
    await rig.tick(wait_seconds=89)
    assert rig.posts == 1
    assert await rig.tick(wait_seconds=2) == 1
