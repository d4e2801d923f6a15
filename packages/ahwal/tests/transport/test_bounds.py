"""No answer can lead the client elsewhere, fill its memory, or hold it longer than agreed."""

import gzip
import time
import tracemalloc

import pytest

from ahwal import Client, TransportError
from ahwal.testing import ScriptedAnswer, ScriptedCollector, protobuf
from ahwire.agent_pb2 import AgentConfig


@pytest.mark.anyio
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed_and_cookies_not_kept(collector, status):
    with ScriptedCollector() as other:
        redirect = ScriptedAnswer(
            status=status,
            headers={"Location": other.url + "/agent/v1/config", "Set-Cookie": "id=1; Path=/"},
        )
        for path in ("/config", "/metrics", "/enroll"):
            collector.script(redirect, path=path)
        async with Client(collector_url=collector.url, token="canary") as client:
            assert (await client.get_config()).status == status
            assert (await client.post_metrics(b"")).status == status
            assert (await client._post("/enroll", b"")).status == status
            await client.get_config()
        assert other.requests() == []
    assert len(collector.requests()) == 4
    assert all("cookie" not in request.headers for request in collector.requests())


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"


def _sends(first, again, pause_seconds=0.0):
    def handle(sock):
        sock.recv(65536)
        sock.sendall(first)
        while True:
            time.sleep(pause_seconds)
            sock.sendall(again)

    return handle


ENDLESS = {
    "chunks": _sends(
        _HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n%b\r\n" % bytes(4096)
    ),
    "no length": _sends(_HEAD + b"Connection: close\r\n\r\n", bytes(65536)),
    "length of 10 GB": _sends(_HEAD + b"Content-Length: 10000000000\r\n\r\n", bytes(65536)),
    "gzip": _sends(
        _HEAD + b"Content-Encoding: gzip\r\nContent-Length: 10000000000\r\n\r\n", bytes(65536)
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ENDLESS)
async def test_a_body_without_an_end_is_refused_at_one_mebibyte(raw_server, kind):
    with raw_server(ENDLESS[kind]) as server:
        async with Client(collector_url=server.url) as client:
            with pytest.raises(TransportError, match="the answer is over 1048576 bytes"):
                await client.get_config()


HEADERS = {
    "headers": _sends(_HEAD, b"X-More: and more\r\n" * 100),
    "one header": _sends(_HEAD + b"X-Long: ", b"a" * 4096),
    "status line": _sends(b"HTTP/1.1 200 ", b"a" * 4096),
    "trailers": _sends(
        _HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-More: and more\r\n" * 100
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", HEADERS)
async def test_headers_without_an_end_are_refused(raw_server, kind):
    with raw_server(HEADERS[kind]) as server:
        async with Client(collector_url=server.url) as client:
            with pytest.raises(TransportError, match="RemoteProtocolError") as caught:
                await client.get_config()
    # What is quoted of them is short and fit for a terminal.
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


SLOW = {
    "status line": _sends(b"", b"H", 0.05),
    "headers": _sends(_HEAD, b"X: y\r\n", 0.05),
    "body": _sends(_HEAD + b"Content-Length: 1000\r\n\r\n", b"x", 0.05),
    "tiny chunks": _sends(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 999),
    "interim answers": _sends(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01),
    "many interim answers": _sends(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0.001),
    "nothing": lambda sock: [sock.recv(65536) for _ in range(2)],
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", SLOW)
async def test_an_answer_that_drips_ends_at_the_limit_for_the_whole_request(raw_server, kind):
    # W26: no single read of it ever takes long.
    started = time.monotonic()
    with raw_server(SLOW[kind]) as server:
        async with Client(collector_url=server.url, send_timeout_seconds=0.3) as client:
            with pytest.raises(TransportError, match=r"no whole answer within 0\.3 s"):
                await client.get_config()
    assert time.monotonic() - started < 3


@pytest.mark.anyio
async def test_an_answer_with_an_unasked_coding_is_not_inflated(collector):
    body = AgentConfig(etag="v").SerializeToString()
    collector.script(protobuf(body, headers={"Content-Encoding": "gzip"}), path="/config")
    async with Client(collector_url=collector.url) as client:
        reply = await client.get_config()
    assert reply.config is None
    assert collector.requests()[0].headers["accept-encoding"] == "identity"


@pytest.mark.anyio
async def test_a_bomb_is_not_inflated(collector):
    # 200 MiB of nothing, twice compressed, so that it fits under the limit for answers.
    bomb = gzip.compress(gzip.compress(bytes(200 << 20), 1))
    assert len(bomb) < 1 << 20
    for coding in ("gzip", "gzip, gzip"):
        collector.script(protobuf(bomb, headers={"Content-Encoding": coding}), path="/config")
    async with Client(collector_url=collector.url) as client:
        tracemalloc.start()
        try:
            for _ in range(2):
                assert (await client.get_config()).config is None
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.anyio
async def test_an_idle_connection_is_kept_for_90_seconds(raw_server):
    def handle(sock):
        while sock.recv(65536):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with raw_server(handle) as server:
        async with Client(collector_url=server.url) as client:
            for _ in range(3):
                assert await client.ping()
            # The library's clock cannot be moved, so its setting is read.
            pool = client._http._transport._pool
            assert pool._keepalive_expiry == 90.0
    assert server.connections == 1
