"""Prometheus remote write 1.0 and 2.0: what is taken, what is refused, what a sender is told."""

import math
import struct

import anyio
import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from remote_write_sender import (
    ONE,
    ONE_NAMED,
    STALE,
    TWO,
    block,
    chunk,
    headers,
    message_1,
    message_2,
    sample,
    varint,
    write,
)

from ahcollector._buckets import Buckets
from ahcollector.errors import TemporaryHubError
from ahcollector.ingest import IngestLimits
from ahcollector.ingest._remote_write import Version, version_named
from ahcollector.ingest._remote_write_bodies import translate_1, translate_2
from ahwire.limits import Limits
from ahwire.remote_write_pb2 import Request, WriteRequest

pytestmark = pytest.mark.anyio

MESSAGES = pytest.mark.parametrize(
    ("content_type", "message"),
    [(ONE, message_1), (ONE_NAMED, message_1), (TWO, message_2)],
    ids=["1.0", "1.0 named", "2.0"],
)
WRITTEN = "x-prometheus-remote-write-{}-written"


def written(response):
    return tuple(
        response.headers.get(WRITTEN.format(kind))
        for kind in ("samples", "histograms", "exemplars")
    )


def stored(world):
    """{labels: points} of all that is on the bus."""
    found = {}
    for batch in world.bus.batches:
        for series in batch.series:
            found.setdefault(series.labels, []).extend(series.points)
    return found


def tenant(name, *labels):
    return (("__name__", name), ("company_id", "acme"), ("server_id", "web-1"), *labels)


@MESSAGES
async def test_every_sample_is_on_the_bus_with_its_tenant_before_the_204(
    world, content_type, message
):
    now = world.now_ms
    response = await write(
        world,
        message(
            (
                {"__name__": "http_requests_total", "code": "200", "job": "api"},
                [(now - 15_000, 41.0), (now, 42.5)],
            ),
            ({"__name__": "ah_kept:sum", "empty": "", "zone": "Ünï"}, [(now, 0.0)]),
        ),
        content_type,
        X_Request_Id="00ff00ff00ff00ff",
    )
    assert response.status_code == 204
    assert response.content == b""
    assert "x-ah-code" not in response.headers
    assert response.headers["x-request-id"] == "00ff00ff00ff00ff"
    assert written(response) == (("3", "0", "0") if content_type == TWO else (None, None, None))
    assert stored(world) == {
        tenant("ah_http_requests_total", ("code", "200"), ("job", "api")): [
            (now - 15_000, 41.0),
            (now, 42.5),
        ],
        tenant("ah_kept_sum", ("zone", "Ünï")): [(now, 0.0)],
    }
    assert world.bus.batches[0].request_id == "00ff00ff00ff00ff"
    assert "ahc_ingest_points_total 3.0" in world.metrics.exposition().decode()


async def test_no_header_of_ours_is_asked_for_and_metadata_alone_is_taken(world):
    response = await write(world, message_1(metadata=["up", "go_goroutines"]))
    assert response.status_code == 204
    assert world.bus.batches == []


async def test_created_times_and_metadata_of_2_change_nothing(world):
    response = await write(
        world, message_2(({"__name__": "m"}, [(world.now_ms, 1.0)]), created=True), TWO
    )
    assert response.status_code == 204
    assert stored(world) == {tenant("ah_m"): [(world.now_ms, 1.0)]}


@MESSAGES
async def test_what_is_refused_is_told_in_one_line_and_the_rest_is_stored(
    world, content_type, message
):
    now = world.now_ms
    many = {"__name__": "wide", **{f"l{number}": "x" for number in range(28)}}
    response = await write(
        world,
        message(
            ({"__name__": "good"}, [(now, 1.0)]),
            (many, [(now, 1.0)]),
            ({"__name__": "old"}, [(now - 25 * 3_600_000, 1.0), (now, 2.0)]),
            ({"job": "x"}, [(now, 3.0)]),
            ({"__name__": "endless"}, [(now, math.inf)]),
        ),
        content_type,
    )
    assert response.status_code == 400
    assert response.headers["x-ah-code"] == "invalid_series"
    assert response.headers["content-type"].startswith("text/plain")
    assert written(response)[0] == ("2" if content_type == TWO else None)
    assert response.text == (
        "4 of 6 points refused, others stored: "
        "series 'wide': it has too many labels: drop some before sending "
        "(too_many_labels, 1 point); "
        "series 'old': the points are older than is taken (too_old, 1 point); "
        "series '': it has no name (bad_name, 1 point); "
        "series 'endless': the values are infinite (not_finite, 1 point)"
    )
    assert stored(world) == {tenant("ah_good"): [(now, 1.0)], tenant("ah_old"): [(now, 2.0)]}
    text = world.metrics.exposition().decode()
    for code in ("too_many_labels", "too_old", "bad_name", "not_finite"):
        assert f'ahc_ingest_dropped_points_total{{code="{code}"}} 1.0' in text
    assert 'ahc_ingest_requests_total{code="invalid_series"} 1.0' in text


@MESSAGES
async def test_histograms_and_exemplars_are_refused_and_counted_and_the_samples_stored(
    world, content_type, message
):
    now = world.now_ms
    response = await write(
        world,
        message(
            ({"__name__": "latency"}, [], 2),
            ({"__name__": "hits"}, [(now, 7.0)], 0, 3),
        ),
        content_type,
    )
    assert response.status_code == 400
    assert written(response) == (("1", "0", "0") if content_type == TWO else (None, None, None))
    assert response.text == (
        "5 of 6 points refused, others stored: native histograms are not stored: send classic "
        "buckets (series 'latency') (native_histogram, 2 points); exemplars are not stored: set "
        "send_exemplars to false (series 'hits') (exemplar, 3 points)"
    )
    assert stored(world) == {tenant("ah_hits"): [(now, 7.0)]}
    text = world.metrics.exposition().decode()
    assert 'ahc_ingest_dropped_points_total{code="native_histogram"} 2.0' in text
    assert 'ahc_ingest_dropped_points_total{code="exemplar"} 3.0' in text


@MESSAGES
async def test_marks_of_an_end_and_missing_values_are_no_fault_and_each_is_counted(
    world, content_type, message
):
    now = world.now_ms
    response = await write(
        world, message(({"__name__": "gone"}, [(now - 1, 4.0), (now, STALE)])), content_type
    )
    assert response.status_code == 204
    assert written(response)[0] == ("2" if content_type == TWO else None)
    assert stored(world) == {tenant("ah_gone"): [(now - 1, 4.0)]}
    text = world.metrics.exposition().decode()
    assert 'ahc_ingest_dropped_points_total{code="stale_marker"} 1.0' in text
    for bits in (0x7FF0000000000001, 0xFFF0000000000002, 0x7FF8000000000002):
        (value,) = struct.unpack("<d", struct.pack("<Q", bits))
        response = await write(world, message(({"__name__": "gone"}, [(now, value)])), content_type)
        assert response.status_code == 204, hex(bits)
    text = world.metrics.exposition().decode()
    assert 'ahc_ingest_dropped_points_total{code="not_a_number"} 3.0' in text
    assert 'ahc_ingest_dropped_points_total{code="stale_marker"} 1.0' in text
    assert stored(world) == {tenant("ah_gone"): [(now - 1, 4.0)]}


@MESSAGES
async def test_samples_again_and_out_of_order_are_taken(world, content_type, message):
    now = world.now_ms
    body = message(({"__name__": "m"}, [(now, 2.0), (now - 60_000, 1.0), (now, 2.0)]))
    for _ in range(2):
        assert (await write(world, body, content_type)).status_code == 204
    assert stored(world)[tenant("ah_m")] == [(now, 2.0), (now - 60_000, 1.0), (now, 2.0)] * 2


@pytest.mark.parametrize(
    ("content_type", "found"),
    [
        ("application/x-protobuf", Version.ONE),
        ("Application/X-Protobuf ; charset=x", Version.ONE),
        ("application/x-protobuf;proto=prometheus.WriteRequest", Version.ONE),
        ('application/x-protobuf; Proto="io.prometheus.write.v2.Request"', Version.TWO),
        ("application/x-protobuf;proto=io.prometheus.write.v3.Request", None),
        ("application/x-protobuf;proto=", None),
        ("application/protobuf", None),
        ("application/json", None),
        ("", None),
        (None, None),
    ],
)
def test_the_content_type_names_the_message(content_type, found):
    assert version_named(content_type) is found


@pytest.mark.parametrize(
    "more",
    [
        {"Content_Type": "application/json"},
        {"Content_Type": "application/x-protobuf;proto=io.prometheus.write.v3.Request"},
        {"Content_Encoding": "zstd"},
        {"Content_Encoding": "snappy, snappy"},
        {"Content_Encoding": "identity"},
        {"Content_Encoding": ""},
    ],
    ids=str,
)
async def test_another_type_or_coding_is_415(world, more):
    content = {**headers(world.token), **{name.replace("_", "-"): it for name, it in more.items()}}
    response = await world.client.post("/api/v1/write", content=block(message_1()), headers=content)
    assert response.status_code == 415
    assert response.headers["x-ah-code"] == "unsupported_encoding"
    assert "send " in response.text
    assert "\n" not in response.text


@pytest.mark.parametrize("content_type", [ONE, TWO])
async def test_a_message_of_the_other_version_is_400_and_not_taken_for_an_empty_one(
    world, content_type
):
    message = message_2 if content_type == ONE else message_1
    body = message(({"__name__": "m"}, [(world.now_ms, 1.0)]))
    response = await write(world, body, content_type)
    assert response.status_code == 400
    assert response.headers["x-ah-code"] == "bad_request"
    assert "proto" in response.text


def symbols(*texts):
    return b"".join(chunk(4, text) for text in texts)


def referring(references, ts_ms):
    return chunk(5, chunk(1, b"".join(map(varint, references))) + chunk(2, sample(ts_ms, 1.0)))


@pytest.mark.parametrize(
    ("references", "said"),
    [
        ([1, 2, 3], "3 references to symbols, an odd number"),
        ([1, 5], "names symbol 5 of a table of 5"),
        ([1, 2**32 - 1], "names symbol 4294967295 of a table of 5"),
    ],
    ids=["odd", "one past the table", "far out"],
)
async def test_a_reference_to_no_symbol_refuses_its_series_and_not_its_neighbours(
    world, references, said
):
    now = world.now_ms
    table = symbols("", "__name__", "a", "b", "c")
    body = table + referring([1, 2], now) + referring(references, now) + referring([1, 3], now)
    response = await write(world, body, TWO)
    assert response.status_code == 400
    assert "series 1 of the body: it" in response.text
    assert said in response.text
    assert "bad_reference" in response.text
    assert written(response) == ("2", "0", "0")
    assert set(stored(world)) == {tenant("ah_a"), tenant("ah_b")}


async def test_labels_without_a_reference_are_a_series_without_a_name(world):
    response = await write(world, symbols("") + referring([], world.now_ms), TWO)
    assert response.status_code == 400
    assert "bad_name" in response.text


@pytest.mark.parametrize("table", [(), ("__name__", "a")], ids=["none", "no empty text first"])
async def test_a_table_that_does_not_begin_with_the_empty_text_is_400(world, table):
    response = await write(world, symbols(*table) + referring([0, 1], world.now_ms), TWO)
    assert response.status_code == 400
    assert response.headers["x-ah-code"] == "bad_request"
    assert written(response) == ("0", "0", "0")
    assert world.bus.batches == []


async def test_a_token_that_is_unknown_is_401_and_a_revoked_one_403(world):
    body = message_2(({"__name__": "m"}, [(world.now_ms, 1.0)]))
    response = await write(world, body, TWO, token="nobody")
    assert (response.status_code, response.headers["x-ah-code"]) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"
    assert written(response) == ("0", "0", "0")
    await write(world, body, TWO)
    await world.directory.revoke("agent-1")
    response = await write(world, body, TWO)
    assert (response.status_code, response.headers["x-ah-code"]) == (403, "agent_revoked")


async def test_a_hub_that_cannot_be_asked_is_503_and_never_401(world):
    world.hub.fails = TemporaryHubError("down")
    response = await write(world, message_1(), token="another")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "30"
    assert response.headers["x-ah-code"] == "unavailable"


async def test_a_full_bus_is_503_and_the_same_request_is_taken_later(make_world):
    world = make_world(limits=IngestLimits(points_per_minute=1, batch=Limits(points_per_batch=1)))
    world.hub.active("agent-1", world.token)
    body = message_1(({"__name__": "m"}, [(world.now_ms, 1.0)]))
    world.bus.full = True
    for _ in range(3):
        response = await write(world, body)
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    world.bus.full = False
    # The points of what was not taken count for nothing, so the rate lets it in.
    assert (await write(world, body)).status_code == 204
    assert (await write(world, body)).headers["x-ah-code"] == "rate_limited"


async def test_the_rate_is_in_points_and_over_it_is_503_with_retry_after(make_world):
    world = make_world(limits=IngestLimits(points_per_minute=60, batch=Limits(points_per_batch=40)))
    for agent in ("agent-1", "agent-2"):
        world.hub.active(agent, f"{world.token}-{agent}")
    token = f"{world.token}-agent-1"

    def body(count):
        return message_1(({"__name__": "m"}, [(world.now_ms, 1.0)] * count))

    assert (await write(world, body(40), token=token)).status_code == 204
    response = await write(world, body(40), token=token)
    assert (response.status_code, response.headers["retry-after"]) == (503, "20")
    assert response.headers["x-ah-code"] == "rate_limited"
    assert "60 a minute" in response.text
    assert (await write(world, body(20), token=token)).status_code == 204, "nothing was taken"
    assert (await write(world, body(40), token=f"{world.token}-agent-2")).status_code == 204
    world.clock.advance(40)
    assert (await write(world, body(40), token=token)).status_code == 204


async def test_a_body_of_a_full_batch_is_taken_whatever_the_rate(make_world):
    world = make_world(limits=IngestLimits(points_per_minute=6, batch=Limits(points_per_batch=30)))
    world.hub.active("agent-1", world.token)
    body = message_1(({"__name__": "m"}, [(world.now_ms, 1.0)] * 30))
    assert (await write(world, body)).status_code == 204
    waited = 0
    while (response := await write(world, body)).status_code == 503:
        world.clock.advance(int(response.headers["retry-after"]))
        waited += int(response.headers["retry-after"])
    assert response.status_code == 204
    assert waited == 300


@MESSAGES
async def test_more_points_than_a_batch_may_have_are_413_and_cost_less_than_points(
    make_world, content_type, message
):
    world = make_world(limits=IngestLimits(points_per_minute=6, batch=Limits(points_per_batch=3)))
    world.hub.active("agent-1", world.token)
    now = world.now_ms
    points = message(({"__name__": "m"}, [(now, 1.0)] * 4))
    histograms = message(({"__name__": "m"}, [(now, 1.0)] * 2, 1, 1))
    series = message(*[({"__name__": f"m{number}"}, []) for number in range(4)])
    for body in (points, histograms, series):
        response = await write(world, body, content_type)
        assert (response.status_code, response.headers["x-ah-code"]) == (413, "too_large")
    assert world.bus.batches == []
    good = message(({"__name__": "m"}, [(now, 1.0)] * 3))
    assert (await write(world, good, content_type)).status_code == 204


async def test_every_request_with_a_good_token_is_a_sign_of_life(world):
    await write(world, message_1())
    await world.presence.confirm_seen(await world.presence.drain_seen(10))
    world.bus.full = True
    for body, more in [
        (b"", {}),
        (b"\xff\xff", {}),
        (message_1(), {"Content_Encoding": "br"}),
        (message_1(({"__name__": "m"}, [(world.now_ms, 1.0)])), {}),
    ]:
        world.clock.advance(20)
        await write(world, body, **more)
        lease = await world.presence.drain_seen(10)
        assert [one.last_seen for one in lease.seen] == [world.clock.time()]
        await world.presence.confirm_seen(lease)
    await write(world, message_1(), token="nobody")
    assert (await world.presence.drain_seen(10)).seen == ()


async def test_a_body_that_comes_too_slowly_is_503_since_senders_drop_at_408(make_world):
    world = make_world(limits=IngestLimits(body_timeout_seconds=0.01))
    world.hub.active("agent-1", world.token)

    async def slow():
        yield b"\x05"
        await anyio.sleep_forever()

    response = await world.client.post(
        "/api/v1/write", content=slow(), headers=headers(world.token)
    )
    assert response.status_code == 503
    assert response.headers["x-ah-code"] == "timeout"
    assert response.headers["retry-after"] == "5"


async def test_a_series_over_the_budget_is_refused_and_known_ones_flow(make_world):
    world = make_world(limits=IngestLimits(series_first_hour=1))
    world.hub.active("agent-1", world.token)
    now = world.now_ms
    both = message_1(({"__name__": "a"}, [(now, 1.0)]), ({"__name__": "b"}, [(now, 1.0)]))
    response = await write(world, both)
    assert response.status_code == 400
    assert "series_limit" in response.text
    assert set(stored(world)) == {tenant("ah_a")}


async def test_the_line_for_the_log_stays_short_whatever_is_refused(world):
    now = world.now_ms
    names = [f"x{number}\n\x1b[31m" + "é" * 150 for number in range(50)]
    response = await write(
        world, message_1(*[({"__name__": name}, [(now, 1.0)]) for name in names])
    )
    assert response.status_code == 400
    assert "and 40 more reasons" in response.text or response.text.endswith(" ...")
    assert len(response.text) <= 1000
    assert response.text.isprintable()
    response = await write(world, message_1(({"__name__": "m"}, [(now // 1000, 1.0)])))
    assert "looks like seconds" in response.text


async def test_a_refusal_is_in_our_log_with_the_request_and_without_the_token(world, caplog):
    caplog.set_level("DEBUG")
    await write(
        world,
        message_1(({"__name__": "m"}, [(0, 1.0)])),
        X_Request_Id="abcdef0123456789",
    )
    (record,) = [one for one in caplog.records if one.message == "points refused"]
    assert record.request_id == "abcdef0123456789"
    assert record.agent_id == "agent-1"
    assert "too_old" in record.reason
    shown = caplog.text + "".join(str(vars(one)) for one in caplog.records)
    assert world.token not in shown


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
async def test_another_method_is_405(world, method):
    response = await world.client.request(method, "/api/v1/write")
    assert response.status_code == 405


names = st.sampled_from(["__name__", "job", "instance", "le", "a", "Ä", "", "__x__"])
label_lists = st.lists(st.tuples(names, st.text(max_size=5)), max_size=6)
values = st.floats() | st.just(STALE)
samples = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), values), max_size=4)
series_lists = st.lists(
    st.tuples(label_lists, samples, st.integers(0, 2), st.integers(0, 2)), max_size=5
)


def bits(value):
    return struct.pack("<d", value)


@given(sent=series_lists)
@example(sent=[([("__name__", "a"), ("__name__", "b")], [(1, 1.0)], 0, 0)])
def test_both_versions_come_to_the_same_and_no_sample_is_lost(sent):
    one = translate_1(WriteRequest.FromString(message_1(*sent)), limits=Limits(), bytes_max=10_000)
    two = translate_2(Request.FromString(message_2(*sent)), limits=Limits(), bytes_max=10_000)
    assert attrs.evolve(one, batch=two.batch) == two
    assert one.batch.SerializeToString() == two.batch.SerializeToString()
    counts = {each.code: each.points for each in (*one.refused, *one.passed_over)}
    points = [point for series in one.batch.series for point in series.points]
    expected = [each for series in sent for each in series[1]]
    stale = [each for each in expected if bits(each[1]) == bits(STALE)]
    nothing = [each for each in expected if math.isnan(each[1])]
    kept = [(ts_ms, bits(value)) for ts_ms, value in expected if not math.isnan(value)]
    assert [(point.ts_ms, bits(point.value)) for point in points] == kept
    assert counts.pop("stale_marker", 0) == len(stale)
    assert counts.pop("not_a_number", 0) == len(nothing) - len(stale)
    assert counts.pop("native_histogram", 0) == sum(series[2] for series in sent)
    assert counts.pop("exemplar", 0) == sum(series[3] for series in sent)
    assert counts == {}


amounts = st.lists(st.tuples(st.floats(0, 5), st.integers(1, 10), st.booleans()), max_size=30)


@given(steps=amounts)
def test_a_bucket_never_gives_more_than_its_burst_and_what_time_brought(steps):
    buckets = Buckets(entries_max=1)
    now, given_out = 0.0, 0
    for pause, amount, undone in steps:
        now += pause
        wait = buckets.take("a", now=now, per_second=2.0, burst=10.0, amount=amount)
        if wait:
            assert buckets.take("a", now=now, per_second=2.0, burst=10.0, amount=amount) > 0
            now += wait + 1e-9
            assert not buckets.take("a", now=now, per_second=2.0, burst=10.0, amount=amount)
        if undone:
            buckets.give_back("a", amount)
        else:
            given_out += amount
        assert given_out <= 10.0 + 2.0 * now + 1e-6
