"""C1: bodies that mean harm. A stranger's is never inflated, and none is ever held whole."""

import gzip
import tracemalloc
import zlib

import httpx
import pytest
import zstandard

from ahwire.agent_pb2 import MetricsBatch, Series

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


async def test_a_declared_length_over_the_limit_is_refused_unread(world):
    read = []

    async def body():
        read.append(1)
        yield b"x"

    response = await world.client.post(
        "/agent/v1/metrics", content=body(), headers=world.headers(Content_Length="99999999")
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


@pytest.mark.parametrize("piece", ["series", "labels"])
async def test_millions_of_empty_pieces_are_refused_without_a_walk_through_them(world, piece):
    batch = b"\x1a\x00" * 2_000_000
    if piece == "labels":
        series = Series.FromString(b"\x12\x00" * 2_000_000)
        batch = MetricsBatch(series=[series]).SerializeToString()
    response = await world.send(batch)
    assert response.status_code == 413
    assert response.headers["x-ah-code"] == "too_large"


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
    assert isinstance(world.client, httpx.AsyncClient)
