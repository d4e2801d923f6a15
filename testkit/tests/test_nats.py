"""NATS JetStream through nats-py: an acknowledged message is there after kill -9."""

import nats
import pytest
from nats.js.api import StreamConfig

from testkit import NatsServer

pytestmark = [pytest.mark.service, pytest.mark.anyio]


async def _read_first(server, stream):
    client = await nats.connect(server.url, allow_reconnect=False)
    try:
        return (await client.jetstream().get_msg(stream, seq=1)).data
    finally:
        await client.close()


async def _write(server, stream, body):
    client = await nats.connect(server.url, allow_reconnect=False)
    try:
        await client.jetstream().add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))
        acknowledged = await client.jetstream().publish(f"{stream}.one", body)
        assert acknowledged.seq == 1
    finally:
        await client.close()


async def test_the_shared_server_has_jetstream(nats_server):
    await _write(nats_server, "testkit-smoke", b"hello")
    assert await _read_first(nats_server, "testkit-smoke") == b"hello"


async def test_an_acknowledged_message_survives_kill_and_restart(start_service):
    server = start_service(NatsServer)
    await _write(server, "durable", b"kept")
    server.kill()
    server.restart()
    assert await _read_first(server, "durable") == b"kept"
