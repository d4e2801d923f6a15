"""TLS against real servers: whom the client believes, and what it shows of itself."""

import logging
import socket
import ssl
import time
import warnings

import httpcore
import pytest

from ahwal import Client, ConfigError, TransportError
from ahwal.testing import ScriptedCollector
from ahwal.transport._network import ResolvingBackend


@pytest.mark.anyio
async def test_a_pinned_authority_is_believed(server_context, ca_file):
    with ScriptedCollector(tls=server_context()) as server:
        async with Client(collector_url=server.url, ca_file=ca_file) as client:
            assert await client.ping()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("self-signed", "certificate"),
        ("wrong-name", "IP address mismatch"),
        ("expired", "expired"),
    ],
)
async def test_a_bad_certificate_is_refused_before_a_request_is_sent(
    server_context, ca_file, label, reason
):
    # W26.
    with ScriptedCollector(tls=server_context(label)) as server:
        async with Client(collector_url=server.url, ca_file=ca_file, token="canary") as client:
            with pytest.raises(TransportError, match=rf"(?i){reason}"):
                await client.get_config()
        assert server.requests() == []


@pytest.mark.anyio
async def test_a_certificate_for_another_name_is_refused(server_context, ca_file):
    with ScriptedCollector(tls=server_context("wrong-name")) as server:
        async with Client(
            collector_url=f"https://collector.test:{server.port}",
            ca_file=ca_file,
            resolve=lambda host, port: ["127.0.0.1"],
        ) as client:
            with pytest.raises(TransportError, match="Hostname mismatch"):
                await client.ping()


@pytest.mark.anyio
async def test_an_authority_that_is_not_the_systems_is_not_believed_without_pinning(
    server_context,
):
    with ScriptedCollector(tls=server_context()) as server:
        async with Client(collector_url=server.url) as client:
            with pytest.raises(TransportError, match=r"(?i)certificate"):
                await client.ping()


@pytest.mark.anyio
async def test_with_pinning_the_systems_authorities_are_not_believed(
    server_context, ca_file, certificates, monkeypatch
):
    # The system's authorities, for this test: the one that signed the server's certificate.
    monkeypatch.setenv("SSL_CERT_FILE", ca_file)
    other = str(certificates / "self-signed.pem")
    with ScriptedCollector(tls=server_context()) as server:
        async with Client(collector_url=server.url) as client:
            assert await client.ping()
        async with Client(collector_url=server.url, ca_file=other) as client:
            with pytest.raises(TransportError, match=r"(?i)certificate"):
                await client.ping()


@pytest.mark.anyio
async def test_verification_can_be_switched_off_and_a_warning_says_so(server_context, caplog):
    with ScriptedCollector(tls=server_context("self-signed")) as server:
        async with Client(collector_url=server.url, insecure_skip_verify=True) as client:
            assert await client.ping()
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert record.name == "ahwal.transport"
    assert "insecure_skip_verify is on" in record.getMessage()


def _talk(url, context):
    host, port = url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return secure.version()


@pytest.mark.anyio
async def test_tls_1_1_is_refused_though_the_server_really_speaks_it(server_context, ca_file):
    def old(context):
        with warnings.catch_warnings(action="ignore"):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        return context

    with ScriptedCollector(tls=old(server_context())) as server:
        lax = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        lax.load_verify_locations(ca_file)
        assert _talk(server.url, old(lax)) == "TLSv1.1"
        async with Client(collector_url=server.url, ca_file=ca_file, token="canary") as client:
            with pytest.raises(TransportError, match=r"(?i)protocol|version"):
                await client.get_config()
        assert server.requests() == []


@pytest.mark.anyio
async def test_tls_1_2_is_the_oldest_that_is_spoken(server_context, ca_file):
    context = server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with ScriptedCollector(tls=context) as server:
        async with Client(collector_url=server.url, ca_file=ca_file) as client:
            assert await client.ping()


@pytest.mark.anyio
async def test_a_client_certificate_is_presented_where_the_server_asks(
    raw_server, server_context, ca_file, certificates
):
    context = server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca_file)
    subjects = []

    def handle(sock):
        subjects.append(dict(part[0] for part in sock.getpeercert()["subject"])["commonName"])
        sock.recv(65536)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    options = {"ca_file": ca_file, "client_cert": str(certificates / "client.pem")}
    with raw_server(handle, context) as server:
        async with Client(collector_url=server.url, **options) as client:
            assert await client.ping()
        del options["client_cert"]
        async with Client(collector_url=server.url, **options) as client:
            with pytest.raises(TransportError):
                await client.ping()
    assert subjects == ["client"]


def test_a_missing_or_wrong_pem_file_is_named(tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for options in (
        {"ca_file": str(tmp_path / "missing.pem")},
        {"ca_file": str(wrong)},
        {"client_cert": str(wrong)},
    ):
        with pytest.raises(ConfigError, match=next(iter(options))):
            Client(collector_url="https://127.0.0.1:1", **options)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(certificates):
    with pytest.raises(ConfigError, match="without a passphrase"):
        Client(collector_url="https://127.0.0.1:1", client_cert=str(certificates / "encrypted.pem"))


@pytest.mark.anyio
async def test_connecting_and_the_handshake_share_one_limit(raw_server):
    # The server takes the connection and never answers the handshake.
    with raw_server(lambda sock: sock.recv(65536) and sock.recv(65536)) as server:
        stream = await ResolvingBackend().connect_tcp("127.0.0.1", server.port, timeout=0.1)
        started = time.monotonic()
        with pytest.raises(httpcore.ConnectTimeout):
            await stream.start_tls(ssl.create_default_context(), "127.0.0.1", timeout=30.0)
        assert time.monotonic() - started < 10
