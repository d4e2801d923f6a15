"""Memory, file and Redis keep the contract of the store of known series."""

import uuid

import pytest

from ahcollector.budget import FileBudgetStore, MemoryBudgetStore
from ahcollector.testing.contracts import BudgetStoreContract


@pytest.mark.anyio
class TestMemoryBudgetStore(BudgetStoreContract):
    async def new(self):
        return MemoryBudgetStore()

    async def reopen(self, store):
        return store


@pytest.mark.anyio
class TestFileBudgetStore(BudgetStoreContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path / "series"

    async def new(self):
        return FileBudgetStore(directory=self.directory)

    async def reopen(self, store):
        return FileBudgetStore(directory=self.directory)


@pytest.mark.service
@pytest.mark.anyio
class TestRedisBudgetStore(BudgetStoreContract):
    @pytest.fixture(autouse=True)
    async def _client(self, redis_server, anyio_backend):
        from ahcollector.budget.redis import RedisBudgetStore
        from ahcollector.redis import RedisClient, RedisConfig

        config = RedisConfig(
            port=redis_server.port, prefix=f"{uuid.uuid4().hex}:", timeout_seconds=10
        )
        self.client = RedisClient(config=config)
        self.make = RedisBudgetStore
        yield
        await self.client.aclose()

    async def new(self):
        return self.make(client=self.client)

    async def reopen(self, store):
        return self.make(client=self.client)
