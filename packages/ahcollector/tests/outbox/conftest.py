"""Outboxes on a real Redis, each test's behind a prefix of its own."""

import sys
import uuid
from pathlib import Path

import pytest

from ahcollector.outbox import OutboxBounds
from ahcollector.outbox.redis import RedisLease, RedisOutbox
from ahcollector.redis import RedisClient, RedisConfig

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests


class Outboxes:
    """Makes outboxes and leases that share one Redis and one prefix, each with its own client."""

    def __init__(self, port, *, prefix=None):
        self.port = port
        self.prefix = f"test-{uuid.uuid4().hex}:" if prefix is None else prefix
        self._clients = []

    def client(self, kind=RedisClient, **more):
        settings = {"timeout_seconds": 5.0} | more
        client = kind(config=RedisConfig(port=self.port, prefix=self.prefix, **settings))
        self._clients.append(client)
        return client

    def __call__(self, *, client=None, metrics=None, clock=None, **bounds):
        client = self.client() if client is None else client
        return RedisOutbox(
            client=client, bounds=OutboxBounds(**bounds), metrics=metrics, clock=clock
        )

    def lease(self, *, client=None, **settings):
        client = self.client() if client is None else client
        return RedisLease(client=client, **settings)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for client in self._clients:
            await client.aclose()


@pytest.fixture
async def outboxes(redis_server, anyio_backend):
    async with Outboxes(redis_server.port) as new:
        yield new


@pytest.fixture
def outboxes_at():
    """Make outboxes on another port: `async with outboxes_at(port) as new`."""
    return Outboxes
