import contextlib
import datetime as dt
import ipaddress
import os
import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from ahwal.testing import ScriptedCollector

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def no_proxy_of_the_developers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def collector() -> Iterator[ScriptedCollector]:
    with ScriptedCollector() as running:
        yield running


class RawServer:
    """Hands each connection, its TLS handshake done, to a function in a thread of its own."""

    def __init__(
        self, handle: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None
    ) -> None:
        self._handle = handle
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.connections = 0
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # The shutdown wakes the thread that waits in accept, and those that wait to read.
        for opened in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._open.append(connection)
            self._handle(connection)
        except OSError:
            pass  # The client went away, which most of these tests make it do.
        finally:
            connection.close()


@pytest.fixture
def raw_server() -> type[RawServer]:
    return RawServer


class Proxy(RawServer):
    """A real HTTP proxy: tunnels for CONNECT, and plain requests passed on.

    Every name leads to this machine. `heads` holds what it could read: requests, never tunnels.
    """

    def __init__(self, *, answer: bytes | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._proxy, tls)
        self.heads: list[str] = []
        self.tunnelled = bytearray()
        self._answer = answer

    def _proxy(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(65536) or b"\r\n\r\n"
        self.heads.append(head.decode("latin-1"))
        if self._answer is not None:
            client.sendall(self._answer)
            return
        method, target, _ = head.split(b" ", 2)
        address = target if method == b"CONNECT" else target.split(b"/")[2]
        with socket.create_connection(("127.0.0.1", int(address.rpartition(b":")[2]))) as server:
            self._open.append(server)
            if method == b"CONNECT":
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                server.sendall(head.replace(b"http://" + address, b"", 1))
            self._pump(client, server)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for ready in select.select([client, server], [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    return
                if ready is client:
                    self.tunnelled += data
                (server if ready is client else client).sendall(data)


@pytest.fixture
def proxy() -> type[Proxy]:
    return Proxy


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority (`ca.pem`), and certificates with their keys.

    `good` is for 127.0.0.1 and collector.test; the others are what they are called.
    """
    pytest.importorskip("cryptography", reason="makes the test's certificates")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder = tmp_path_factory.mktemp("tls")
    now = dt.datetime.now(dt.UTC)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])

    def make(
        label,
        *,
        days=30,
        names=("collector.test",),
        own=False,
        authority=False,
        coding=serialization.NoEncryption(),  # noqa: B008 - has no state
    ) -> None:
        key = authority_key if authority else ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, label)])
        own = own or authority
        certificate = (
            x509.CertificateBuilder()
            .subject_name(authority_name if authority else name)
            .issuer_name(authority_name if not own or authority else name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=60))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        x509.IPAddress(ipaddress.ip_address(n))
                        if n[0].isdigit()
                        else x509.DNSName(n)
                        for n in names
                    ]
                ),
                critical=False,
            )
            .sign(key if own else authority_key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        if not authority:
            pem += key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                coding,
            )
        (folder / f"{label}.pem").write_bytes(pem)

    here = ("127.0.0.1", "collector.test")
    make("ca", authority=True)
    make("good", names=here)
    make("client")
    make("encrypted", coding=serialization.BestAvailableEncryption(b"passphrase"))
    make("expired", days=-1, names=here)
    make("self-signed", names=here, own=True)
    make("wrong-name", names=("127.0.0.9", "other.test"))
    return folder


@pytest.fixture(scope="session")
def ca_file(certificates: Path) -> str:
    return str(certificates / "ca.pem")


@pytest.fixture(scope="session")
def server_context(certificates: Path) -> Callable[..., ssl.SSLContext]:
    def make(label: str = "good", alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / f"{label}.pem")
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    return make


# A collector of few words behind a real HTTP/2 server. It says which version was spoken, and to
# how many requests of one connection it answered.
_HTTP2_SERVER = """
import asyncio, sys
from hypercorn.asyncio import serve
from hypercorn.config import Config
from ahwire.agent_pb2 import MetricsAck, MetricsBatch
from ahwire.codec import decompress

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = dict(scope["headers"])
    answer, kind = b"ok", b"text/plain"
    if scope["path"].endswith("/metrics"):
        batch = MetricsBatch.FromString(
            decompress(body, headers[b"content-encoding"].decode(), 1 << 20)
        )
        answer, kind = MetricsAck(ack_seq=batch.seq).SerializeToString(), b"application/x-protobuf"
    await send({"type": "http.response.start", "status": 200, "headers": [
        (b"content-type", kind),
        (b"x-spoken", scope["http_version"].encode()),
        (b"x-client-port", str(scope["client"][1]).encode()),
        (b"x-repeats", headers.get(b"authorization", b"")),
    ]})
    await send({"type": "http.response.body", "body": answer})

config = Config()
config.bind = [f"fd://{sys.argv[1]}"]
config.certfile = config.keyfile = sys.argv[2]
config.errorlog = None
asyncio.run(serve(app, config))
"""


@pytest.fixture(scope="session")
def http2_port(certificates: Path) -> Iterator[int]:
    """The port of a hypercorn of its own process, so that its logs are not the client's."""
    pytest.importorskip("hypercorn", reason="the HTTP/2 server of the tests")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # It listens already, so nobody has to wait until the process is up.
        descriptor = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-c", _HTTP2_SERVER, str(descriptor), str(certificates / "good.pem")],
            pass_fds=[descriptor],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        yield listener.getsockname()[1]
    process.terminate()
    process.wait(timeout=20)
