"""C1 to C7 at the door of OTLP: bodies that mean harm are answered, and cost little."""

import tracemalloc

import anyio
import pytest
from any_messages import messages
from google.protobuf import json_format
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_exports import (
    JSON,
    NOW_MS,
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
    summarised,
    summary,
    value,
)
from otlp_floods import FLOODS, grown_mib_elsewhere

from ahcollector.ingest import IngestLimits
from ahcollector.store.memory import MemoryStore
from ahwire.limits import Limits

pytestmark = pytest.mark.anyio

# What a request may take beside its own body, whatever it says.
GROWN_MIB_MAX = 128


@pytest.mark.parametrize("coding", ["gzip", "br"])
async def test_c1_an_unknown_token_is_answered_before_a_byte_is_read(world, coding):
    read = []

    async def body():
        read.append(1)
        yield FLOODS["gzip bomb"][1]()

    response = await world.client.post(
        "/v1/metrics",
        content=body(),
        headers={
            "Authorization": "Bearer nobody",
            "Content-Type": PROTOBUF,
            "Content-Encoding": coding,
        },
    )
    assert response.status_code == 401
    assert read == []


async def test_c1_a_bomb_stops_at_the_limit(world):
    await send(world, export())
    bomb = FLOODS["gzip bomb"][1]()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        response = await send(world, bomb, Content_Encoding="gzip")
        grown = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert response.status_code == 413
    assert grown <= 16 << 20


@pytest.mark.parametrize("name", FLOODS)
async def test_c1_a_flood_is_answered(world, name):
    headers, body, statuses = FLOODS[name]
    response = await send(world, body(), **headers)
    assert response.status_code in statuses
    assert response.headers.get("x-ah-code") != "server_error"


@pytest.mark.nightly
@pytest.mark.parametrize("name", FLOODS)
def test_c1_a_flood_takes_bounded_memory(name):
    assert grown_mib_elsewhere("otlp_floods", name) <= GROWN_MIB_MAX


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"resourceMetrics":[' * 40_000,
        b'{"a":' * 90_000 + b"1" + b"}" * 90_000,
        b"\xff\xfe{}",
        b"",
        b"null",
        b"[]",
        b'{"resourceMetrics":{}}',
        b'{"resourceMetrics":[1]}',
        b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{},"sum":{}}]}]}]}',
        b'{"resourceMetrics":[{"resource":{"attributes":[{"key":"\\ud800"}]}}]}',
        b'{"resourceMetrics":[{"resource":{"attributes":[{"key":5}]}}]}',
    ],
)
async def test_hostile_json_is_400(world, body):
    response = await send(world, body, media=JSON)
    assert response.status_code == 400
    assert response.json()["message"]


async def test_c2_text_that_is_no_utf_8_is_400(world):
    body = export(gauge("abcd", number(1))).SerializeToString().replace(b"abcd", b"ab\xff\xfe")
    assert (await send(world, body)).status_code == 400


async def test_c3_values_that_are_no_numbers_are_refused_and_their_neighbours_stored(world):
    values = [float("nan"), float("inf"), -float("inf"), -0.0, 5e-324, 1.7e308, 1.0]
    request = export(gauge("m", *[number(one, {"n": n}) for n, one in enumerate(values)]))
    partial = reply_of(await send(world, request)).partial_success
    assert partial.rejected_data_points == 2
    assert counted(world, "not_a_number") == 1
    assert sorted(point[0][1] for point in stored(world).values()) == sorted(values[3:])


async def test_c3_a_sum_or_a_quantile_that_is_not_a_number_is_no_value_and_no_fault(world):
    nan = float("nan")
    request = export(
        histogram("h", bucketed([1], [1, 2], sum=nan)),
        summary("s", summarised({0.5: nan, 0.9: nan})),
    )
    assert not reply_of(await send(world, request)).HasField("partial_success")
    assert counted(world, "not_a_number") == 3
    names = {name for name, *_ in stored(world)}
    assert names == {"ah_h_bucket", "ah_h_count", "ah_s_sum", "ah_s_count"}


def counted(world, code):
    text = world.metrics.exposition().decode()
    (line,) = [one for one in text.splitlines() if f'dropped_points_total{{code="{code}"}}' in one]
    return float(line.rpartition(" ")[2])


async def test_c3_a_histogram_with_an_infinite_sum_counts_once(world):
    request = export(histogram("h", bucketed([1], [1, 2], sum=float("inf"))))
    partial = reply_of(await send(world, request)).partial_success
    assert partial.rejected_data_points == 1
    assert {name for name, *_ in stored(world)} == {"ah_h_bucket", "ah_h_count"}


DAY_NS, MINUTES_5_NS, MS_NS = 24 * 3600 * 10**9, 300 * 10**9, 10**6


@pytest.mark.parametrize(
    ("ns", "taken"),
    [
        (NOW_NS - DAY_NS, True),
        (NOW_NS - DAY_NS - 1, False),
        (NOW_NS + MINUTES_5_NS, True),
        (NOW_NS + MINUTES_5_NS + MS_NS - 1, True),  # still the same millisecond
        (NOW_NS + MINUTES_5_NS + MS_NS, False),
        (0, False),
        (1, False),
        (2**63 - 1, False),
        (2**64 - 1, False),
        (NOW_MS, False),
        (NOW_MS // 1000, False),
    ],
)
async def test_c7_times_at_the_edges(world, ns, taken):
    response = await send(world, export(gauge("m", number(1, ns=ns))))
    assert response.status_code == 200
    assert reply_of(response).partial_success.rejected_data_points == (not taken)
    assert len(stored(world)) == taken


def answered(make_world, body, media):
    """The answer to a body, and the world after it; no answer says that we have a defect."""

    async def scenario():
        world = make_world()
        world.hub.active("agent-1", world.token)
        response = await send(world, body, media=media)
        assert response.headers.get("x-ah-code") in {None, "bad_request", "too_large"}
        return response, world

    return anyio.run(scenario)


# The fixture is a class, so the examples share nothing.
many = settings(deadline=None, suppress_health_check=list(HealthCheck))


@many
@given(request=messages(ExportMetricsServiceRequest.DESCRIPTOR), as_json=st.booleans())
@example(request=ExportMetricsServiceRequest(), as_json=True)
def test_any_message_is_answered(make_world, request, as_json):
    if as_json:
        body = json_format.MessageToJson(request, use_integers_for_enums=True).encode()
    else:
        body = request.SerializeToString()
    response, world = answered(make_world, body, JSON if as_json else PROTOBUF)
    assert response.status_code == 200
    for series in stored(world):
        assert series[1:3] == ("acme", "web-1")


async def test_c6_the_same_export_three_times_is_one_sample_a_timestamp(world):
    store = MemoryStore(clock=world.clock)
    for _ in range(3):
        assert (await send(world, WHOLE)).status_code == 200
    await store.write(world.bus.batches)
    assert len(world.bus.batches) == 3
    for one in await store.latest("acme", "web-1", since_ms=0):
        labels = dict(one.labels)
        assert one.value == next(
            series.points[0][1]
            for series in world.bus.batches[0].series
            if dict(series.labels) == labels
        )


@many
@given(body=st.binary(), as_json=st.booleans())
def test_any_bytes_are_answered(make_world, body, as_json):
    response, _ = answered(make_world, body, JSON if as_json else PROTOBUF)
    assert response.status_code in {200, 400}


WHOLE = export(
    gauge("a", number(1, {"k": ["x", {"y": b"z"}]})),
    histogram("h", bucketed([1, 2], [1, 2, 3], {"k": "v"})),
    labels={"service.name": "shop"},
    scope="s",
)


@many
@given(data=st.data(), as_json=st.booleans())
def test_a_body_with_some_bytes_changed_is_answered(make_world, data, as_json):
    if as_json:
        body = bytearray(json_format.MessageToJson(WHOLE, indent=None).encode())
    else:
        body = bytearray(WHOLE.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        end = place + data.draw(st.integers(0, 4))
        body[place:end] = data.draw(st.binary(max_size=4))
    response, _ = answered(make_world, bytes(body), JSON if as_json else PROTOBUF)
    assert response.status_code in {200, 400, 413}


RESERVED = ("company_id", "server_id", "agent_id", "vm_account_id", "vm_project_id", "__name__")


def _spelled(name):
    """Every way to write a reserved name that gives it as a label, or nearly."""
    between = st.sampled_from(["_", "-", ".", "..", "__", " ", "é", "\x00", "/", '"', "{"])
    case = st.sampled_from([str.lower, str.upper, str.title])
    return st.tuples(between, case, st.sampled_from(["", "_", "."])).map(
        lambda how: how[2] + how[1](name).replace("_", how[0])
    )


keys = st.one_of(
    st.sampled_from(RESERVED),
    st.sampled_from(RESERVED).flatmap(_spelled),
    st.sampled_from(["service.name", "service.instance.id", "service.namespace", "le", ""]),
    st.text(max_size=6),
)
texts = st.sampled_from(["globex", 'x",company_id="globex', "}", "a\nb", "\\", "", ["globex"]])
pairs = st.lists(st.tuples(keys, texts), max_size=8)


@many
@given(name=st.text(max_size=8), of_resource=pairs, scope=texts.filter(str), of_point=pairs)
@example(
    name='m{company_id="globex"}',
    of_resource=[("company.id", "globex"), ("service.name", "globex")],
    scope="globex",
    of_point=[("Company-ID", "globex"), ("server__id", "web-9")],
)
def test_c5_no_attribute_of_resource_scope_or_point_changes_the_tenant(
    make_world, name, of_resource, scope, of_point
):
    scope = scope if isinstance(scope, str) else "s"
    metric = gauge(name, number(1, of_point))
    buckets = histogram("h", bucketed([1], [1, 1], of_point))
    request = export(
        metric, buckets, gauge("plain", number(1)), labels=of_resource, scope=scope, version=scope
    )
    request.resource_metrics[0].scope_metrics[0].scope.attributes.add(
        key="company_id", value=value("globex")
    )
    _, world = answered(make_world, request.SerializeToString(), PROTOBUF)
    store = MemoryStore(clock=world.clock)

    async def read():
        await store.write(world.bus.batches)
        for company in ("globex", "", "GLOBEX"):
            assert await store.series(company) == []
            assert await store.latest(company, "web-1", since_ms=0) == []
        assert await store.latest("acme", "web-9", since_ms=0) == []
        assert await store.latest("acme", "web-1", since_ms=0) != []

    anyio.run(read)
    for batch in world.bus.batches:
        assert (batch.company_id, batch.server_id) == ("acme", "web-1")
        for series in batch.series:
            tenant, others = series.labels[:3], [key.lower() for key, _ in series.labels[3:]]
            assert tenant[1:] == (("company_id", "acme"), ("server_id", "web-1"))
            assert not set(others) & set(RESERVED)
            assert not any(key.startswith("__") for key in others)


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
async def test_a_full_honest_export_is_taken_whatever_its_points_are_like(make_world, media):
    """Senders drop what is refused so: 19,000 metrics of 18 attributes were."""
    most = 200
    world = make_world(
        limits=IngestLimits(batch=Limits(points_per_batch=most), series_first_hour=1000)
    )
    world.hub.active("agent-1", world.token)
    attributes = 27 if media == PROTOBUF else 5
    labels = {f"k{at}": "v" for at in range(attributes)}
    request = export(*[gauge(f"metric.{at}", number(1, labels)) for at in range(most)])
    response = await send(world, request, media=media)
    assert response.status_code == 200
    assert len(stored(world)) == most
