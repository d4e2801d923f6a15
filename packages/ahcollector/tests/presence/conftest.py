"""What the tests of presence share: event ids that tell their order, and presences in Redis."""

import itertools
import uuid

import pytest

from ahcollector.errors import RedisError
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient, RedisConfig


class Fuse(RedisClient):
    """A client whose commands can fail: before they are sent, or with their reply lost."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.calls = 0
        self.fails = {}

    async def _settled(self, what, send):
        how = self.fails.get(self.calls, self.fails.get("always"))
        self.calls += 1
        if how == "not executed":
            raise RedisError(f"injected: {what} was not sent")
        reply = await super()._settled(what, send)
        if how == "reply lost":
            raise RedisError(f"injected: the reply to {what} was lost")
        return reply


@pytest.fixture
def event_ids():
    numbers = itertools.count(1)
    return lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"


def fuse(server, *, prefix=None):
    """Return a client of a server; without a prefix it has one of its own."""
    prefix = f"test-{uuid.uuid4().hex}:" if prefix is None else prefix
    config = RedisConfig(port=server.port, prefix=prefix, timeout_seconds=10)
    return Fuse(config=config)


@pytest.fixture
async def shared(redis_server, event_ids, anyio_backend):
    """Make presences that share one Redis and one prefix, each with a client of its own."""
    async with presences(redis_server, event_ids) as new:
        yield new


class presences:  # noqa: N801 - read as a function: `async with presences(server, ids) as new`
    """Presences of one prefix; `new(...)` makes one, whose client is `new.client(presence)`."""

    def __init__(self, server, event_ids):
        self._server = server
        self._event_ids = event_ids
        self._prefix = f"test-{uuid.uuid4().hex}:"
        self._clients = {}

    def __call__(self, **settings):
        client = fuse(self._server, prefix=self._prefix)
        presence = RedisPresence(**({"client": client, "event_ids": self._event_ids} | settings))
        self._clients[id(presence)] = (client, presence)
        return presence

    def client(self, presence):
        return self._clients[id(presence)][0]

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for client, _ in self._clients.values():
            await client.aclose()


@pytest.fixture
def presences_on(event_ids):
    """Make presences on a server of the test's own: `async with presences_on(server) as new`."""
    return lambda server: presences(server, event_ids)
