"""C1: bodies that mean harm. A stranger's is never inflated, and none is ever held whole."""

import gzip
import json
import threading
import tracemalloc
import zlib

import anyio.lowlevel
import pytest
import zstandard
from agent_floods import FLOODS, sent
from google.protobuf import json_format
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from otlp_floods import field, grown_mib_elsewhere

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest import IngestLimits
from ahcollector.ingest._body import BodyReader
from ahcollector.ingest._headers import Format
from ahwire.agent_pb2 import EnrollRequest, Inventory, MetricsBatch
from ahwire.limits import Limits

pytestmark = pytest.mark.anyio


def gzip_bomb(plain_bytes: int) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    pieces = [deflater.compress(block) for _ in range(plain_bytes >> 20)]
    return b"".join(pieces) + deflater.flush()


BOMB = gzip_bomb(1 << 30)


async def post(world, body, coding, token=None, **more):
    return await world.client.post(
        "/agent/v1/metrics",
        content=body,
        headers=world.headers(token or world.token, Content_Encoding=coding, **more),
    )


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (BOMB, "gzip"),
        (zstandard.ZstdCompressor().compress(bytes(64 << 20)), "zstd"),
        (gzip.compress(bytes(5 << 20)) * 2, "gzip"),
        (bytes((1 << 20) + 1), "identity"),
        (bytes((1 << 20) + 1), "gzip"),
    ],
    ids=["gzip bomb", "zstd bomb", "members over the limit", "over 1 MiB", "over 1 MiB coded"],
)
async def test_bomb_stops_at_the_limit(world, body, coding):
    await world.send(world.batch())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        response = await post(world, body, coding)
        grown = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert response.status_code == 413
    assert response.headers["x-ah-code"] == "too_large"
    assert grown <= 16 << 20


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, gzip"])
async def test_unknown_token_is_answered_before_a_byte_is_read(world, coding):
    read = []

    async def body():
        read.append(1)
        yield BOMB

    response = await world.client.post(
        "/agent/v1/metrics",
        content=body(),
        headers=world.headers("nobody", Content_Encoding=coding),
    )
    assert response.status_code == 401
    assert read == []


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "deflate", "gzip,zstd", "x"])
async def test_other_codings_are_415(world, coding):
    response = await post(world, gzip.compress(b""), coding)
    assert response.status_code == 415
    assert response.headers["x-ah-code"] == "unsupported_encoding"


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "a" * 500])
async def test_other_types_are_415(world, media):
    response = await world.client.post(
        "/agent/v1/metrics", headers=world.headers(Content_Type=media)
    )
    assert response.status_code == 415


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"abc")[:-1],
        gzip.compress(b"abc")[:5],
        gzip.compress(b"") + b"trailing",
        b"not gzip",
        gzip.compress(b"\xff\xff\xff\xff"),
    ],
    ids=["cut", "cut head", "trailing", "no gzip", "no protobuf"],
)
async def test_broken_bodies_are_400(world, body):
    response = await post(world, body, "gzip")
    assert response.status_code == 400
    assert response.headers["x-ah-code"] == "bad_request"


async def test_multi_member_gzip_within_the_limit_is_one_body(world):
    plain = MetricsBatch(seq=77).SerializeToString()
    body = gzip.compress(plain[:1]) + gzip.compress(plain[1:])
    assert (await post(world, body, "gzip")).status_code == 202


async def test_chunked_body_without_a_length_is_bounded(world):
    sent = []

    async def endless():
        for number in range(100):
            sent.append(number)
            yield bytes(100_000)

    response = await world.client.post(
        "/agent/v1/metrics", content=endless(), headers=world.headers()
    )
    assert response.status_code == 413
    assert len(sent) <= 12


@pytest.mark.parametrize("length", ["99999999", "9" * 5_000], ids=["long", "no number for Python"])
async def test_a_declared_length_over_the_limit_is_refused_unread(world, length):
    read = []

    async def body():
        read.append(1)
        yield b"x"

    response = await world.client.post(
        "/agent/v1/metrics", content=body(), headers=world.headers(Content_Length=length)
    )
    assert response.status_code == 413
    assert read == []


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"series":' * 100_000,
        b"{" + b'"a":{' * 90_000 + b"}" * 90_000 + b"}",
        b"\xff\xfe{}",
        b'{"seq":"99999999999999999999999"}',
        b'{"seq":1e400}',
        b'{"seq":9223372036854775808000}',
        b'{"sentAtMs":9223372036854775808}',
        b'{"sentAtMs":"-9223372036854775809"}',
        b'{"seq":1.5}',
        b'{"seq":true}',
        b'{"seq":1,"seq":2}',
        b'{"x":{"a":1,"a":1}}',
        b'{"series":[{"points":[{"value":NaN}]}]}',
        b'{"series":[{"points":[{"value":-Infinity}]}]}',
        b'{"series":[{"points":[{"value":1e999}]}]}',
        b'{"series":[{"points":[{"value":1' + b"0" * 400 + b"}]}]}",
        b'{"series":[{"points":[{"value":1' + b"0" * 5_000 + b"}]}]}",
        b'{"x":NaN}',
        b'{"series":[null]}',
        b'{"series":[[1]]}',
        b"\xef\xbb\xbf{}",
        b"",
        b"null",
        b"[]",
    ],
)
async def test_hostile_json_is_400(world, body):
    response = await world.client.post(
        "/agent/v1/metrics", content=body, headers=world.headers(Content_Type="application/json")
    )
    assert response.status_code == 400


@pytest.mark.parametrize("name", FLOODS)
async def test_c1_a_flood_is_answered(world, name):
    body, headers = sent(name)
    response = await world.send(body, coding=None, **headers)
    assert response.status_code == FLOODS[name][2]
    if response.status_code != 202:
        assert (
            response.headers["x-ah-code"]
            == {400: "bad_request", 413: "too_large"}[response.status_code]
        )


@pytest.mark.nightly
@pytest.mark.parametrize("name", FLOODS)
def test_c1_a_flood_takes_bounded_memory(name):
    assert grown_mib_elsewhere("agent_floods", name) <= FLOODS[name][3]


# The fixture is a class, so the examples share nothing.
many = settings(deadline=None, suppress_health_check=list(HealthCheck))
NAMES = st.sampled_from(
    [
        "seq",
        "sentAtMs",
        "sent_at_ms",
        "series",
        "stats",
        "name",
        "labels",
        "points",
        "tsMs",
        "value",
    ]
)
DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["NaN", "-Infinity", "1e999", "1", "\ud800", 10**400, 1_790_000_000_000]),
    lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=4),
    max_leaves=12,
)


@many
@given(found=st.dictionaries(NAMES, DOCUMENTS, max_size=4))
@example(found={"series": [{"name": "m", "points": [{"value": 10**400}]}]})
def test_any_json_is_answered_and_never_with_a_defect(make_world, found):
    async def scenario():
        world = make_world()
        world.hub.active("agent-1", world.token)
        response = await world.client.post(
            "/agent/v1/metrics",
            content=json.dumps(found).encode(),
            headers=world.headers(Content_Type="application/json"),
        )
        assert response.status_code in {202, 400, 422}

    anyio.run(scenario)


@pytest.mark.parametrize("message", [EnrollRequest, Inventory])
@pytest.mark.parametrize("piece", [b"{},", b"0,"])
async def test_small_bodies_of_json_are_bounded_too(message, piece):
    body = b'{"x":[' + (piece * 80_000).rstrip(b",") + b"]}"
    with pytest.raises(RequestRefusedError, match="send less at once"):
        await BodyReader().small(body, message, Format.JSON)


async def test_an_inventory_of_thousands_of_facts_is_read():
    facts = {f"package.{number}": "1.0" for number in range(5_000)}
    body = json_format.MessageToJson(Inventory(facts=facts), indent=None).encode()
    read = await BodyReader().small(body, Inventory, Format.JSON)
    assert dict(read.facts) == facts


async def test_what_takes_long_is_understood_beside_the_event_loop_and_no_more_at_once():
    reader = BodyReader(threads_max=2)
    free, lock, running, most = threading.Event(), threading.Lock(), [0], [0]

    def understand():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        assert free.wait(30)
        with lock:
            running[0] -= 1
        return "understood"

    async def read():
        assert await reader.aside(understand, slow=True) == "understood"

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(read)
            while most[0] < 2:
                await anyio.lowlevel.checkpoint()
            assert await reader.aside(lambda: 1, slow=False) == 1
            free.set()
    assert (most, running) == ([2], [0])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (field(3, b"\x12\x00" * 40) * 10, "more in it than 290 "),
        (b"\x1a\x00" * 100, "more in it than 72 "),
        (b"\x08\x00" * 2_000 + b"\x1a\x00" * 100, "more in it than 72 "),
    ],
    ids=["as much as no full batch has", "more series than are cut", "other fields"],
)
async def test_what_has_more_in_it_than_a_full_batch_is_refused_unparsed(body, said):
    with pytest.raises(RequestRefusedError, match=said) as caught:
        await BodyReader().batch(body, Format.PROTOBUF, Limits(points_per_batch=10))
    assert caught.value.code == "too_large"


async def test_others_have_their_turn_while_many_new_series_are_judged(world):
    turns = [0]

    async def other():
        while True:
            turns[0] += 1
            await anyio.lowlevel.checkpoint()

    new = [world.series(f"m{number}", labels=[("a", "x" * 100)]) for number in range(4_000)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        first = await world.send(world.batch(*new))
        between, turns[0] = turns[0], 0
        again = await world.send(world.batch(*new))
        tasks.cancel_scope.cancel()
    assert (first.status_code, again.status_code) == (202, 202)
    # 500 KB of them, and what is known is judged at once.
    assert between - turns[0] >= 10


async def test_client_that_goes_away_in_its_body_harms_nobody(world):
    sent = []
    messages = iter([{"type": "http.request", "body": b"x", "more_body": True}])

    async def receive():
        return next(messages, {"type": "http.disconnect"})

    async def send(message):
        sent.append(message)

    headers = [(name.lower().encode(), value.encode()) for name, value in world.headers().items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/agent/v1/metrics",
        "raw_path": b"/agent/v1/metrics",
        "query_string": b"",
        "headers": headers,
        "client": ("192.0.2.1", 1),
        "server": ("collector", 80),
        "scheme": "http",
    }
    await world.app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert (await world.send(world.batch())).status_code == 202


@pytest.mark.parametrize("labels", [0, 3])
async def test_a_full_batch_of_json_is_taken_and_one_series_more_refused(make_world, labels):
    most = 400
    world = make_world(limits=IngestLimits(batch=Limits(points_per_batch=most)))
    world.hub.active("agent-1", world.token)
    own = [{"name": f"l{at}", "value": "points"} for at in range(labels)]

    def body(series, more=()):
        points = [{"tsMs": str(world.now_ms), "value": 1}]
        rows = [{"name": f"m{at}", "labels": own, "points": points} for at in range(series)]
        return json.dumps({"series": [*rows, *more]}).encode()

    as_json = {"Content_Type": "application/json"}
    assert (await world.send(body(most), coding=None, **as_json)).status_code == 202
    empty = [{"name": "no point"}]
    for refused in (body(most + 1), body(most, empty), body(1, empty * 2 * most)):
        response = await world.send(refused, coding=None, **as_json)
        assert (response.status_code, response.headers["x-ah-code"]) == (413, "too_large")
