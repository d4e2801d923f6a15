"""What the tests of presence share: event ids that tell their order, and a presence in Redis."""

import itertools
import uuid

import pytest

from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig


@pytest.fixture
def event_ids():
    numbers = itertools.count(1)
    return lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"


@pytest.fixture
async def connect(redis_server, anyio_backend):
    """Make clients of the shared Redis: one prefix a test, however many processes it plays."""
    prefix = f"test-{uuid.uuid4().hex}:"
    clients = []

    def new(**settings):
        config = RedisConfig(port=redis_server.port, prefix=prefix, timeout_seconds=5, **settings)
        clients.append(RedisClient(config=config))
        return clients[-1]

    yield new
    for client in clients:
        await client.aclose()


@pytest.fixture
async def shared(connect, event_ids, anyio_backend):
    """Make presences of one test's prefix."""

    def new(**settings):
        return RedisPresence(client=connect(), event_ids=event_ids, **settings)

    return new
