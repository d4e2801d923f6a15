"""Buses on a real Redis or NATS, each test's behind a prefix of its own."""

import sys
import uuid
from pathlib import Path

import pytest

from ahcollector.bus.jetstream import BufferSize, JetStreamBus
from ahcollector.bus.redis import RedisBus
from ahcollector.nats import NatsClient, NatsConfig
from ahcollector.redis import RedisClient, RedisConfig

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests

# Real times, shortened: a take-over is a matter of a second and not of twenty.
QUICK = {
    "block_seconds": 0.05,
    "lease_seconds": 1.0,
    "claim_idle_seconds": 0.5,
    "sample_seconds": 0.02,
    "retry_seconds": 0.02,
}


class Buses:
    """Makes buses that share one Redis and one prefix, each with a client of its own."""

    def __init__(self, server):
        self.server = server
        self.prefix = f"test-{uuid.uuid4().hex}:"
        self._clients = []

    def client(self, kind=RedisClient, **more):
        settings = {"timeout_seconds": 5.0} | more
        client = kind(config=RedisConfig(port=self.server.port, prefix=self.prefix, **settings))
        self._clients.append(client)
        return client

    def __call__(self, *, client=None, **settings):
        client = self.client() if client is None else client
        return RedisBus(**({"client": client} | QUICK | settings))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for client in self._clients:
            await client.aclose()


@pytest.fixture
async def buses(redis_server, anyio_backend):
    async with Buses(redis_server) as new:
        yield new


@pytest.fixture
def buses_on():
    """Make buses on a server of the test's own: `async with buses_on(server) as new`."""
    return Buses


# Likewise on NATS.
QUICK_ON_NATS = {
    "lease_seconds": 1.0,
    "pull_seconds": 2.0,
    "sample_seconds": 0.02,
    "retry_seconds": 0.02,
    "size": BufferSize(bytes_max=64 << 20, batches_max=20_000, shard_batches_max=10_000),
    "dead_bytes_max": 8 << 20,
}


class NatsBuses:
    """Makes buses that share one NATS and one prefix, each with a client of its own."""

    def __init__(self, server):
        self.server = server
        self.prefix = f"test-{uuid.uuid4().hex}"
        self._clients = []

    def client(self, kind=NatsClient, **more):
        settings = {"timeout_seconds": 5.0, "servers": (self.server.url,)} | more
        client = kind(config=NatsConfig(prefix=self.prefix, **settings))
        self._clients.append(client)
        return client

    def __call__(self, *, client=None, **settings):
        client = self.client() if client is None else client
        return JetStreamBus(**({"client": client} | QUICK_ON_NATS | settings))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for client in self._clients:
            await client.aclose()


@pytest.fixture
async def nats_buses(nats_server, anyio_backend):
    async with NatsBuses(nats_server) as new:
        yield new


@pytest.fixture
def nats_buses_on():
    """Make buses on a server of the test's own: `async with nats_buses_on(server) as new`."""
    return NatsBuses
