"""HTTP/2: spoken where both sides can, quiet about the token, and never believed half-way."""

import logging
import socket
import sys

import anyio
import pytest

from ahwal import WAL, Client, DeliveryState, Sample, Sender, TransportError
from ahwal.testing import FakeClock, ScriptedCollector

pytest.importorskip("h2", reason="the extra ahwal[http2]")

CANARY = "canary-c0ffee-token"


@pytest.fixture
def connect(http2_port, ca_file):
    def make(**options):
        options = {"ca_file": ca_file, "token": CANARY, **options}
        return Client(collector_url=f"https://127.0.0.1:{http2_port}", **options)

    return make


async def _answer(client):
    return (await client._request("GET", "/config")).headers


@pytest.mark.anyio
async def test_http2_is_spoken_where_the_server_offers_it_and_one_connection_is_kept(connect):
    async with connect() as client:
        first = await _answer(client)
        second = await _answer(client)
        assert await client.ping()
    assert first["x-spoken"] == "2"
    assert second["x-client-port"] == first["x-client-port"]


@pytest.mark.anyio
async def test_without_the_extra_http_1_1_is_spoken(connect, monkeypatch):
    # What an import meets where the package is not installed.
    monkeypatch.setitem(sys.modules, "h2", None)
    monkeypatch.setitem(sys.modules, "h2.connection", None)
    async with connect() as client:
        assert (await _answer(client))["x-spoken"] == "1.1"


@pytest.mark.anyio
async def test_http2_can_be_switched_off(connect):
    async with connect(http2=False) as client:
        assert (await _answer(client))["x-spoken"] == "1.1"


@pytest.mark.anyio
async def test_a_server_without_http2_is_spoken_to_in_http_1_1(server_context, ca_file):
    with ScriptedCollector(tls=server_context()) as server:
        async with (
            Client(collector_url=server.url, ca_file=ca_file) as client,
            anyio.create_task_group() as group,
        ):
            for _ in range(4):
                group.start_soon(client.ping)
        assert len(server.requests("/ping")) == 4


@pytest.mark.anyio
async def test_many_requests_share_one_connection(connect):
    ports = set()

    async def ask(client):
        ports.add((await _answer(client))["x-client-port"])

    async with connect() as client:
        await ask(client)
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(ask, client)
    assert len(ports) == 1


@pytest.mark.anyio
async def test_the_token_is_in_no_log_line_of_http2_at_debug(connect, caplog):
    # W24. The server repeats the token in a header of its answer, too.
    from hpack import Encoder

    # Coded as Huffman it only looks like noise, and anyone can read it.
    coded = Encoder().encode([(b"authorization", f"Bearer {CANARY}".encode())])
    for name in ("", "httpx", "httpcore", "hpack"):  # another test may have left them quiet
        caplog.set_level(logging.DEBUG, name)
    async with connect() as client:
        assert CANARY in (await _answer(client))["x-repeats"]
        await _answer(client)
    assert {"httpcore.http2", "httpx"} <= {record.name for record in caplog.records}
    shown = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert CANARY not in shown
    assert repr(coded[-12:])[2:-1] not in shown
    assert not [record for record in caplog.records if record.name.startswith("hpack")]


@pytest.mark.anyio
async def test_what_others_log_with_the_same_libraries_stays(connect, caplog):
    from hpack import Encoder

    for name in ("", "httpx", "httpcore", "hpack"):  # another test may have left them quiet
        caplog.set_level(logging.DEBUG, name)
    async with connect() as client:
        await client.ping()
        Encoder().encode([(b"x-mine", b"theirs")])
    assert "theirs" in caplog.text


def _speak(act):
    """Return a server that speaks HTTP/2 up to a whole request, and then does `act`."""
    import h2.config
    import h2.connection
    import h2.events
    import h2.exceptions

    def handle(sock):
        state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        state.initiate_connection()
        sock.sendall(state.data_to_send())
        while data := sock.recv(65536):
            try:
                events = state.receive_data(data)
            except h2.exceptions.ProtocolError:
                return  # The client still wrote while this server had already gone away.
            for event in events:
                if isinstance(event, h2.events.StreamEnded):
                    act(state, event.stream_id, sock)
            sock.sendall(state.data_to_send())

    return handle


def _answers(state, stream, sock):
    state.send_headers(stream, [(":status", "200"), ("content-type", "application/x-protobuf")])
    state.send_data(stream, b"\x08\x01", end_stream=True)


def _resets(state, stream, sock):
    state.reset_stream(stream)


def _resets_in_the_body(state, stream, sock):
    state.send_headers(stream, [(":status", "202"), ("content-type", "application/x-protobuf")])
    # What came so far is a whole acknowledgement of the batch with seq 1.
    state.send_data(stream, b"\x08\x01")
    state.reset_stream(stream)


def _goes_away(state, stream, sock):
    state.close_connection(last_stream_id=stream)


def _goes_away_in_the_body(state, stream, sock):
    state.send_headers(stream, [(":status", "202"), ("content-type", "application/x-protobuf")])
    state.send_data(stream, b"\x08\x01")
    state.close_connection(last_stream_id=stream)


def _closes(state, stream, sock):
    sock.shutdown(socket.SHUT_RDWR)


def _closes_in_the_body(state, stream, sock):
    state.send_headers(stream, [(":status", "202"), ("content-type", "application/x-protobuf")])
    state.send_data(stream, b"\x08\x01")
    sock.sendall(state.data_to_send())
    sock.shutdown(socket.SHUT_RDWR)


def _talks_nonsense(state, stream, sock):
    sock.sendall(b"\x00\x00\x05\xff<html>" * 5000)


def _talks_nonsense_in_the_body(state, stream, sock):
    state.send_headers(stream, [(":status", "202"), ("content-type", "application/x-protobuf")])
    sock.sendall(state.data_to_send())
    # A DATA frame of a stream that nobody opened.
    sock.sendall(b"\x00\x00\x01\x00\x00\x00\x00\x00\x63x")


def _sends_too_many_headers(state, stream, sock):
    state.send_headers(stream, [(":status", "200"), *((f"x-{n}", "y" * 5000) for n in range(40))])


def _falls_silent(state, stream, sock):
    pass


BROKEN = [
    _resets,
    _resets_in_the_body,
    _goes_away,
    _goes_away_in_the_body,
    _closes,
    _closes_in_the_body,
    _talks_nonsense,
    _talks_nonsense_in_the_body,
    _sends_too_many_headers,
    _falls_silent,
]


@pytest.mark.anyio
@pytest.mark.parametrize("broken", BROKEN, ids=lambda act: act.__name__.strip("_"))
async def test_a_broken_http2_answer_is_no_acknowledgement_and_the_batch_is_sent_again(
    raw_server, server_context, ca_file, http2_port, tmp_path, broken
):
    # W26 over HTTP/2.
    clock = FakeClock()
    tls = server_context(alpn=("h2",))
    with raw_server(_speak(broken), tls) as server, WAL.open(tmp_path, clock=clock) as queue:
        async with Client(
            collector_url=server.url, ca_file=ca_file, send_timeout_seconds=0.5
        ) as client:
            sender = Sender(queue=queue, transport=client, clock=clock)
            await sender.enqueue([Sample("work", 1, {})])
            clock.step(30)
            await sender.tick()
            assert sender.state is DeliveryState.BACKOFF
            assert sender.status().queued_batches == 1
            assert sender.status().send_failures == 1
            assert server.connections == 1
        async with Client(
            collector_url=f"https://127.0.0.1:{http2_port}", ca_file=ca_file
        ) as other:
            sender.use_transport(other)
            clock.step(600)
            assert await sender.tick() == 1


@pytest.mark.anyio
async def test_a_connection_on_which_a_request_was_given_up_is_not_used_again(
    raw_server, server_context, ca_file
):
    # A dead path would otherwise swallow every try until TCP gives up, a quarter of an hour later.
    silent = [True]

    def act(state, stream, sock):
        if not silent:
            _answers(state, stream, sock)
        silent.clear()

    with raw_server(_speak(act), server_context(alpn=("h2",))) as server:
        async with Client(
            collector_url=server.url, ca_file=ca_file, send_timeout_seconds=0.5
        ) as client:
            with pytest.raises(TransportError, match="no whole answer"):
                await client.get_config()
            assert (await client.get_config()).status == 200
        assert server.connections == 2


@pytest.mark.anyio
async def test_an_idle_connection_that_the_server_closed_is_not_used_again(
    raw_server, server_context, ca_file
):
    # A server's idle time is often shorter than the interval; no cycle may fail because of it.
    def act(state, stream, sock):
        _answers(state, stream, sock)
        sock.sendall(state.data_to_send())
        state.close_connection(last_stream_id=stream)
        sock.sendall(state.data_to_send())
        sock.shutdown(socket.SHUT_RDWR)

    with raw_server(_speak(act), server_context(alpn=("h2",))) as server:
        async with Client(collector_url=server.url, ca_file=ca_file) as client:
            for _ in range(3):
                assert (await client.get_config()).status == 200
                await anyio.sleep(0.02)
        assert server.connections == 3


@pytest.mark.anyio
async def test_after_a_cancelled_http2_request_the_client_goes_on(
    raw_server, server_context, ca_file
):
    with raw_server(_speak(_falls_silent), server_context(alpn=("h2",))) as server:
        async with Client(collector_url=server.url, ca_file=ca_file) as client:
            for _ in range(5):
                with anyio.move_on_after(0.1) as scope:
                    await client.get_config()
                assert scope.cancelled_caught
        # Each was given up on a connection of its own; none waits for one of the others.
        assert server.connections == 5
