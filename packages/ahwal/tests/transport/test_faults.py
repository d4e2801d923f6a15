"""Every failure of the network keeps the batch, and the next good moment sends it: W26."""

import socket
import struct

import pytest

from ahwal import WAL, Client, DeliveryState, Sample, Sender
from ahwal.testing import FakeClock

_HEAD = b"HTTP/1.1 202 Accepted\r\nContent-Type: application/x-protobuf\r\n"
# In itself a whole acknowledgement of the batch with seq 1.
_ACK = b"\x08\x01"


def _reset(sock):
    # Lingering for 0 seconds turns the close into a reset.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _says(answer, then=lambda sock: None):
    def handle(sock):
        sock.recv(65536)
        sock.sendall(answer)
        then(sock)

    return handle


def _waits(sock):
    # Until the client gives up and closes.
    while sock.recv(65536):
        pass


BROKEN = {
    "closed before the answer": _says(b""),
    "closed in the headers": _says(_HEAD),
    "reset before the answer": _says(b"", _reset),
    "reset in the body": _says(_HEAD + b"Content-Length: 100\r\n\r\n" + _ACK, _reset),
    "truncated": _says(_HEAD + b"Content-Length: 100\r\n\r\n" + _ACK),
    "truncated chunks": _says(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n" + _ACK + b"\r\n"),
    "read timeout": _waits,
    "read timeout in the body": _says(_HEAD + b"Content-Length: 100\r\n\r\n" + _ACK, _waits),
    "not http": _says(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "expired certificate": _says(b""),
    "not tls": _says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "refused": None,
    "no such name": None,
}


def _unknown(host, port):
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.anyio
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_failure_of_the_network_keeps_the_batch_and_the_next_try_sends_it(
    raw_server, server_context, ca_file, collector, tmp_path, kind
):
    # W26.
    clock = FakeClock()
    options = {"ca_file": ca_file, "send_timeout_seconds": 0.3, "allow_plain_http": True}
    tls = server_context("expired") if kind == "expired certificate" else None
    with raw_server(BROKEN[kind] or _waits, tls) as server:
        url = server.url
        if kind == "not tls":
            url = url.replace("http:", "https:")
        elif kind == "no such name":
            url, options["resolve"] = "http://nowhere.test:1", _unknown
        elif kind == "refused":
            url = "http://127.0.0.1:1"
        with WAL.open(tmp_path, clock=clock) as queue:
            async with Client(collector_url=url, **options) as client:
                sender = Sender(queue=queue, transport=client, clock=clock)
                await sender.enqueue([Sample("work", 1, {})])
                clock.step(30)
                assert await sender.tick() == 0
                status = sender.status()
            assert sender.state is DeliveryState.BACKOFF
            assert status.queued == 1
            assert status.send_failures == 1
            assert not any(status.dropped.values())
            async with Client(collector_url=collector.url) as client:
                sender.use_transport(client)
                clock.step(600)
                assert await sender.tick() == 1
            assert sender.status().delivered == 1
