"""OTLP/HTTP at the ingest door: what is taken, what is answered."""

import json

import anyio
import pytest
from google.protobuf import json_format
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from otlp_exports import (
    DELTA,
    JSON,
    NO_RECORDED_VALUE,
    NOW_NS,
    PROTOBUF,
    bucketed,
    export,
    gauge,
    histogram,
    number,
    reply_of,
    send,
    stored,
    total,
)

from ahcollector.errors import TemporaryHubError
from ahcollector.ingest import IngestLimits

pytestmark = pytest.mark.anyio


def status_of(response):
    if response.headers["content-type"] == JSON:
        return json_format.Parse(response.content, Status())
    assert response.headers["content-type"] == PROTOBUF
    return Status.FromString(response.content)


@pytest.mark.parametrize("coding", [None, "gzip", "zstd"])
@pytest.mark.parametrize("media", [PROTOBUF, JSON, "application/json; charset=utf-8"])
async def test_an_export_is_stored_under_the_agents_tenant(world, media, coding):
    request = export(gauge("load", number(0.5, {"cpu": "1"}), unit="1"))
    if media != PROTOBUF:
        request = json_format.MessageToJson(request, use_integers_for_enums=True).encode()
    response = await send(world, request, media=media, coding=coding)
    assert response.status_code == 200
    assert stored(world) == {("ah_load_ratio", "acme", "web-1", "1"): ((NOW_NS // 10**6, 0.5),)}
    if media == PROTOBUF:
        assert response.headers["content-type"] == PROTOBUF
        assert not reply_of(response).HasField("partial_success")
    else:
        assert response.headers["content-type"] == JSON
        assert response.json() == {}
    assert len(response.headers["x-request-id"]) == 16


async def test_json_is_read_as_senders_write_it(world):
    body = {
        "resourceMetrics": [
            {
                "unknown": {"of": ["a", "later", "version"]},
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]
                },
                "scopeMetrics": [
                    {
                        "metrics": [
                            {
                                "name": "m",
                                "sum": {
                                    "aggregationTemporality": 2,
                                    "isMonotonic": True,
                                    "dataPoints": [
                                        {
                                            "timeUnixNano": str(NOW_NS),
                                            "asInt": "7",
                                            "attributes": [
                                                {"key": "n", "value": {"intValue": 5}},
                                            ],
                                            "exemplars": [
                                                {
                                                    "traceId": "5B8EFFF798038103D269B633813FC60C",
                                                    "spanId": "EEE19B7EC3C1B174",
                                                    "asDouble": 1.5,
                                                }
                                            ],
                                        }
                                    ],
                                },
                            }
                        ]
                    }
                ],
            }
        ]
    }
    response = await send(world, json.dumps(body).encode(), media=JSON)
    assert (response.status_code, response.json()) == (200, {})
    assert stored(world) == {("ah_m_total", "acme", "web-1", "s", "5"): ((NOW_NS // 10**6, 7.0),)}


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
@pytest.mark.parametrize(
    "request_",
    [ExportMetricsServiceRequest(), export(), export(gauge("m"))],
    ids=["nothing", "no metric", "no point"],
)
async def test_an_empty_export_is_a_sign_of_life_and_a_success(world, request_, media):
    assert (await send(world, request_, media=media)).status_code == 200
    assert not world.bus.batches
    assert (await world.presence.drain_seen(10)).seen


async def test_no_header_of_ours_is_asked_for_and_ours_are_not_minded(world):
    response = await send(world, export(), X_AH_Proto="99", X_Request_Id="abc")
    assert response.status_code == 200
    assert response.headers["x-request-id"] == "abc"


async def test_what_is_refused_is_told_as_partial_success_and_the_rest_is_stored(world):
    response = await send(
        world,
        export(
            gauge("good", number(1)),
            total("bad", number(1), number(2, {"a": "b"}), temporality=DELTA),
            gauge("old", number(1, ns=NOW_NS - 25 * 3600 * 10**9)),
            gauge("odd", number(float("inf"))),
        ),
    )
    assert response.status_code == 200
    partial = reply_of(response).partial_success
    assert partial.rejected_data_points == 4
    assert "metric 'bad': delta temporality" in partial.error_message
    assert "(delta, 2 points)" in partial.error_message
    assert "series 'old': the points are older than is taken (too_old, 1 point)" in (
        partial.error_message
    )
    assert "(not_finite, 1 point)" in partial.error_message
    assert list(stored(world)) == [("ah_good", "acme", "web-1")]
    dropped = "ahc_ingest_dropped_points_total"
    text = world.metrics.exposition().decode()
    assert f'{dropped}{{code="delta"}} 2.0' in text
    assert f'{dropped}{{code="too_old"}} 1.0' in text
    assert "ahc_ingest_points_total 1.0" in text


async def test_an_export_of_which_nothing_can_be_stored_is_answered_likewise(world):
    response = await send(world, export(total("bad", number(1), temporality=DELTA)), media=JSON)
    assert response.status_code == 200
    assert response.json()["partialSuccess"]["rejectedDataPoints"] == "1"
    assert not world.bus.batches


async def test_a_histogram_is_one_data_point_however_many_of_its_series_are_refused(make_world):
    # 5 series may begin: 3 buckets, the sum and the count of one point, and none of the second.
    world = make_world(limits=IngestLimits(series_first_hour=5))
    world.hub.active("agent-1", world.token)
    points = [bucketed([1, 2], [1, 1, 1], {"n": n}) for n in range(2)]
    partial = reply_of(await send(world, export(histogram("h", *points)))).partial_success
    assert partial.rejected_data_points == 1
    assert "series_limit" in partial.error_message
    assert len(stored(world)) == 5


async def test_target_info_over_the_budget_of_series_is_told_but_is_no_data_point(make_world):
    world = make_world(limits=IngestLimits(series_first_hour=1))
    world.hub.active("agent-1", world.token)
    labels = {"service.name": "shop", "host.name": "h"}
    response = await send(world, export(gauge("m", number(1)), labels=labels))
    partial = reply_of(response).partial_success
    assert partial.rejected_data_points == 0
    assert "series 'target_info'" in partial.error_message


async def test_attributes_left_out_are_a_warning_of_a_full_success(world):
    response = await send(world, export(gauge("m", number(1, [("a.b", 1), ("a-b", 2)]))))
    partial = reply_of(response).partial_success
    assert partial.rejected_data_points == 0
    assert partial.error_message.startswith("1 attributes left out")


async def test_a_point_without_a_recorded_value_is_counted_and_no_fault(world):
    response = await send(world, export(gauge("m", number(1, flags=NO_RECORDED_VALUE))))
    assert not reply_of(response).HasField("partial_success")
    assert 'ahc_ingest_dropped_points_total{code="stale_marker"} 1.0' in (
        world.metrics.exposition().decode()
    )


async def test_many_reasons_are_cut_short(world):
    metrics = [gauge("x" * 60 + str(n), number(1, ns=0)) for n in range(500)]
    faults = [gauge("y" * 199 + chr(0x2600 + n), number(1, ns=0)) for n in range(500)]
    partial = reply_of(await send(world, export(*metrics, *faults))).partial_success
    assert partial.rejected_data_points == 1000
    assert len(partial.error_message) <= 2000


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
async def test_an_unreadable_body_is_400_with_what_is_wrong_with_it(world, media):
    response = await send(world, b"\xff\xff\xff", media=media)
    assert response.status_code == 400
    assert response.headers["x-ah-code"] == "bad_request"
    status = status_of(response)
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert "ExportMetricsServiceRequest" in status.message
    fault = BadRequest()
    assert status.details[0].Unpack(fault)
    assert fault.field_violations[0].field == "body"


async def test_every_refusal_is_a_status_in_the_format_of_the_request(world):
    for media in (PROTOBUF, JSON):
        response = await send(world, export(), token="nobody", media=media)
        assert response.status_code == 401
        assert response.headers["content-type"] == media
        assert response.headers["www-authenticate"] == "Bearer"
        assert status_of(response).code == code_pb2.UNAUTHENTICATED


async def test_a_request_without_a_token_is_401_and_no_sign_of_life(world):
    response = await world.client.post("/v1/metrics", headers={"Content-Type": PROTOBUF})
    assert response.status_code == 401
    assert not (await world.presence.drain_seen(10)).seen


async def test_a_revoked_agent_is_403(world):
    await send(world, export())
    await world.directory.revoke("agent-1")
    response = await send(world, export())
    assert response.status_code == 403
    assert status_of(response).code == code_pb2.PERMISSION_DENIED


@pytest.mark.parametrize("media", ["text/plain", "application/grpc", "application/x-protobuf-x"])
async def test_another_type_is_415(world, media):
    response = await send(world, b"", media=media)
    assert response.status_code == 415
    assert media in status_of(response).message


@pytest.mark.parametrize("coding", ["deflate", "br", "gzip, gzip", "snappy"])
async def test_another_coding_is_415(world, coding):
    response = await send(world, b"", Content_Encoding=coding)
    assert response.status_code == 415
    assert response.headers["x-ah-code"] == "unsupported_encoding"
    assert status_of(response).message


async def test_over_the_rate_is_503_and_passes_later(make_world):
    world = make_world(limits=IngestLimits(points_per_minute=60, batch=_few_points(30)))
    world.hub.active("agent-1", world.token)
    request = export(*[gauge(f"m{n}", number(1)) for n in range(30)])
    assert [(await send(world, request)).status_code for _ in range(3)] == [200, 200, 503]
    response = await send(world, request)
    assert response.headers["x-ah-code"] == "rate_limited"
    assert status_of(response).code == code_pb2.RESOURCE_EXHAUSTED
    waited = 0
    while response.status_code == 503:
        world.clock.advance(float(response.headers["retry-after"]))
        waited += int(response.headers["retry-after"])
        response = await send(world, request)
    assert response.status_code == 200
    assert waited == 30


def _few_points(most):
    from ahwire.limits import Limits

    return Limits(points_per_batch=most)


async def test_a_full_bus_is_503_and_what_was_sent_passes_later(world):
    world.bus.full = True
    request = export(gauge("m", number(1)))
    response = await send(world, request)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"
    assert status_of(response).code == code_pb2.UNAVAILABLE
    world.bus.full = False
    assert (await send(world, request)).status_code == 200
    assert len(stored(world)) == 1


async def test_a_hub_that_cannot_be_asked_is_503_and_never_401(world):
    world.hub.fails = TemporaryHubError("down")
    response = await send(world, export())
    assert response.status_code == 503
    assert response.headers["retry-after"] == "30"


async def test_a_body_that_comes_too_slowly_is_503_for_it_may_be_faster_next_time(make_world):
    world = make_world(limits=IngestLimits(body_timeout_seconds=0.01))
    world.hub.active("agent-1", world.token)

    async def slow():
        yield b"\x0a"
        await anyio.sleep_forever()

    response = await world.client.post(
        "/v1/metrics",
        content=slow(),
        headers={"Authorization": f"Bearer {world.token}", "Content-Type": PROTOBUF},
    )
    assert response.status_code == 503
    assert response.headers["x-ah-code"] == "timeout"
    assert response.headers["retry-after"]


async def test_a_defect_of_ours_is_503_so_that_nothing_is_dropped(world):
    async def broken(_batch):
        raise ZeroDivisionError

    world.bus.publish = broken
    response = await send(world, export(gauge("m", number(1))))
    assert response.status_code == 503
    assert response.headers["x-ah-code"] == "server_error"
    assert response.headers["retry-after"]
    assert isinstance(status_of(response), Status)


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_another_method_is_405(world, method):
    response = await world.client.request(method, "/v1/metrics")
    assert response.status_code == 405


async def test_the_answer_of_a_success_is_the_message_of_the_protocol(world):
    response = await send(world, export())
    assert response.content == ExportMetricsServiceResponse().SerializeToString() == b""
