"""The way through a real proxy: which one is taken, what it sees, and what its faults cost."""

import logging
import traceback

import pytest

from ahwal import WAL, Client, ConfigError, DeliveryState, Sample, Sender, TransportError
from ahwal.testing import FakeClock, ScriptedCollector

CANARY = "canary-c0ffee-token"
PASSWORD = "proxy-canary"


def _unresolved(host, port):
    raise AssertionError(f"{host} was looked up here, and not by the proxy")


@pytest.fixture
def secure(server_context):
    with ScriptedCollector(tls=server_context()) as server:
        yield server


@pytest.fixture
def connect(secure, ca_file):
    def make(**options):
        options = {"token": CANARY, "ca_file": ca_file, "resolve": _unresolved, **options}
        return Client(collector_url=f"https://collector.test:{secure.port}", **options)

    return make


@pytest.mark.anyio
async def test_the_proxy_of_the_setting_makes_a_tunnel_and_never_sees_the_token(
    connect, secure, proxy, caplog
):
    caplog.set_level(logging.DEBUG)
    with proxy() as way:
        async with connect(proxy_url=f"http://user:{PASSWORD}@127.0.0.1:{way.port}") as client:
            assert (await client.get_config()).status == 200
            assert (await client.get_config()).status == 200
            assert PASSWORD not in repr(client)
    (head,) = way.heads
    assert head.startswith(f"CONNECT collector.test:{secure.port} HTTP/1.1")
    assert "Proxy-Authorization: Basic " in head
    assert "uthorization: Bearer" not in head
    assert way.tunnelled
    assert CANARY not in head + way.tunnelled.decode("latin-1")
    assert len(secure.requests("/config")) == 2
    assert "proxy-authorization" not in secure.requests()[0].headers
    assert PASSWORD not in caplog.text
    # In base64, as it is sent.
    assert head.partition("Basic ")[2].split()[0] not in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
async def test_the_proxy_of_the_environment_is_used(connect, secure, proxy, monkeypatch, name):
    with proxy() as way:
        monkeypatch.setenv(name, f"http://127.0.0.1:{way.port}")
        async with connect() as client:
            assert (await client.get_config()).status == 200
    assert len(way.heads) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("value", ["collector.test", ".test", "other, collector.test", "*"])
async def test_no_proxy_of_the_environment_is_obeyed(connect, secure, proxy, monkeypatch, value):
    with proxy() as way:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{way.port}")
        monkeypatch.setenv("NO_PROXY", value)
        async with connect(resolve=lambda host, port: ["127.0.0.1"]) as client:
            assert (await client.get_config()).status == 200
    assert way.heads == []


@pytest.mark.anyio
async def test_no_proxy_with_a_port_is_obeyed(connect, secure, proxy, monkeypatch):
    with proxy() as way:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{way.port}")
        monkeypatch.setenv("NO_PROXY", f"collector.test:{secure.port}")
        async with connect(resolve=lambda host, port: ["127.0.0.1"]) as client:
            assert (await client.get_config()).status == 200
    assert way.heads == []


@pytest.mark.anyio
async def test_the_setting_wins_over_the_environment(connect, secure, proxy, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "*")
    with proxy() as way:
        async with connect(proxy_url=f"http://127.0.0.1:{way.port}") as client:
            assert (await client.get_config()).status == 200
    assert len(way.heads) == 1


@pytest.mark.anyio
async def test_this_machines_own_addresses_are_not_asked_of_the_environments_proxy(
    collector, proxy, monkeypatch
):
    # Over plain http the token would leave the machine in clear.
    with proxy() as way:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{way.port}")
        async with Client(collector_url=collector.url, token=CANARY) as client:
            assert (await client.get_config()).status == 200
    assert way.heads == []


@pytest.mark.anyio
async def test_a_plain_proxy_passes_plain_requests_on(collector, proxy):
    with proxy() as way:
        async with Client(
            collector_url=f"http://collector.test:{collector.port}",
            allow_plain_http=True,
            proxy_url=f"http://user:p%40ss@127.0.0.1:{way.port}",
            resolve=_unresolved,
        ) as client:
            assert await client.ping()
    (head,) = way.heads
    assert head.startswith(f"GET http://collector.test:{collector.port}/agent/v1/ping ")
    assert "Proxy-Authorization: Basic dXNlcjpwQHNz" in head
    assert len(collector.requests("/ping")) == 1


@pytest.mark.anyio
async def test_a_proxy_that_speaks_tls_is_verified_with_the_systems_authorities(
    connect, secure, proxy, server_context, ca_file, certificates, monkeypatch
):
    with proxy(tls=server_context()) as way:
        address = f"https://127.0.0.1:{way.port}"
        # The pinned authority is the collector's; it vouches for nobody else.
        async with connect(proxy_url=address) as client:
            with pytest.raises(TransportError, match=r"(?i)certificate"):
                await client.get_config()
        monkeypatch.setenv("SSL_CERT_FILE", ca_file)
        async with connect(proxy_url=address) as client:
            assert (await client.get_config()).status == 200


@pytest.mark.anyio
async def test_http2_is_spoken_through_a_proxy(proxy, http2_port, ca_file):
    pytest.importorskip("h2", reason="the extra ahwal[http2]")
    with proxy() as way:
        async with Client(
            collector_url=f"https://collector.test:{http2_port}",
            ca_file=ca_file,
            proxy_url=f"http://127.0.0.1:{way.port}",
        ) as client:
            answers = [await client._request("GET", "/config") for _ in range(2)]
    assert [answer.headers["x-spoken"] for answer in answers] == ["2", "2"]
    assert len(way.heads) == 1


_HTML = b"Content-Type: text/html\r\nContent-Length: 15\r\n\r\n<html>log in</h"
ANSWERS = {
    "407": b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n" + _HTML,
    "502": b"HTTP/1.1 502 Bad Gateway\r\n" + _HTML,
    "html": b"HTTP/1.1 200 OK\r\n" + _HTML,
    "403": b"HTTP/1.1 403 Forbidden\r\n" + _HTML,
    "302": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n" + _HTML,
    "nonsense": b"\x00\x01\x02\r\n\r\n",
    "silence": b"",
}


@pytest.mark.anyio
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_proxy_that_refuses_costs_no_data(
    proxy, ca_file, tmp_path, collector, scheme, answer
):
    # W25, W26.
    clock = FakeClock()
    with proxy(answer=ANSWERS[answer]) as way, WAL.open(tmp_path, clock=clock) as queue:
        async with Client(
            collector_url=f"{scheme}://collector.test:443",
            allow_plain_http=True,
            token=CANARY,
            ca_file=ca_file,
            proxy_url=f"http://user:{PASSWORD}@127.0.0.1:{way.port}",
        ) as client:
            sender = Sender(queue=queue, transport=client, clock=clock)
            await sender.enqueue([Sample("work", 1, {})])
            clock.step(30)
            await sender.tick()
            status = sender.status()
            assert sender.state is DeliveryState.BACKOFF
            assert client.has_token
    assert status.queued == 1
    assert not any(status.dropped.values())
    assert PASSWORD not in status.last_error
    assert len(way.heads) == 1
    assert (CANARY in way.heads[0]) == (scheme == "http")


@pytest.mark.parametrize(
    "url", [f"ftp://user:{PASSWORD}@x", f"http://user:{PASSWORD}@x:99999", f"user:{PASSWORD}@x"]
)
def test_a_wrong_proxy_is_refused_without_its_password(url):
    given = {"proxy_url": url}
    with pytest.raises(ConfigError, match="proxy_url") as caught:
        Client(collector_url="https://127.0.0.1:1", **given)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    # The first frame is this test's own.
    del shown.stack[0]
    assert PASSWORD not in "".join(shown.format())
