"""Memory, file and Redis keep the contract of dead batches."""

import uuid

import pytest

from ahcollector.testing.contracts import DeadBatchesContract
from ahcollector.worker import FileDeadBatches, MemoryDeadBatches

both = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@both
@pytest.mark.anyio
class TestMemoryDeadBatches(DeadBatchesContract):
    async def new(self, **bounds):
        return MemoryDeadBatches(**bounds)

    async def reopen(self, dead):
        return dead


@both
@pytest.mark.anyio
class TestFileDeadBatches(DeadBatchesContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path

    async def new(self, **bounds):
        self.bounds = bounds
        self.path = self.directory / uuid.uuid4().hex / "dead" / "batches.log"
        return await FileDeadBatches.open(self.path, **bounds)

    async def reopen(self, dead):
        return await FileDeadBatches.open(self.path, **self.bounds)


@pytest.mark.service
@pytest.mark.anyio
class TestRedisDeadBatches(DeadBatchesContract):
    @pytest.fixture(autouse=True)
    async def _clients(self, redis_server, anyio_backend):
        self.server = redis_server
        self.clients = []
        yield
        for client in self.clients:
            await client.aclose()

    def made(self, prefix, bounds):
        from ahcollector.redis import RedisClient, RedisConfig
        from ahcollector.worker.redis import RedisDeadBatches

        config = RedisConfig(port=self.server.port, prefix=prefix, timeout_seconds=10)
        self.clients.append(RedisClient(config=config))
        return RedisDeadBatches(client=self.clients[-1], **bounds)

    async def new(self, **bounds):
        self.prefix, self.bounds = f"{uuid.uuid4().hex}:", bounds
        return self.made(self.prefix, bounds)

    async def reopen(self, dead):
        return self.made(self.prefix, self.bounds)
