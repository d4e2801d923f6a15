"""Memory, file and Redis keep the contract of the outbox."""

import os

import pytest

from ahcollector.outbox import FileOutbox, MemoryOutbox, OutboxBounds
from ahcollector.testing.contracts import OutboxContract

T0 = 1_700_000_000.0
BOUNDS = OutboxBounds(dead_max=100)


@pytest.mark.anyio
class TestMemoryOutbox(OutboxContract):
    async def new(self, bounds=BOUNDS):
        return MemoryOutbox(bounds=bounds)


@pytest.mark.anyio
class TestFileOutbox(OutboxContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path / "outbox"

    async def new(self, bounds=BOUNDS):
        self.bounds = bounds
        return await FileOutbox.open(self.directory, now=T0, bounds=self.bounds)

    async def reopen(self, outbox):
        # A killed process says no goodbye: only its lock goes with it.
        os.close(outbox._lock_descriptor)
        outbox._lock_descriptor = None
        return await FileOutbox.open(self.directory, now=T0, bounds=self.bounds)


@pytest.mark.anyio
@pytest.mark.service
class TestRedisOutbox(OutboxContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _redis(self, outboxes):
        self.client = outboxes.client

    async def new(self, bounds=BOUNDS):
        from ahcollector.outbox.redis import RedisOutbox

        self.bounds = bounds
        return RedisOutbox(client=self.client(), bounds=bounds)

    async def reopen(self, outbox):
        return await self.new(self.bounds)
