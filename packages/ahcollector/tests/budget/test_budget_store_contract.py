"""Memory, file and Redis keep the contract of the store of known series."""

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
    def _client(self, client):
        self.client = client

    async def new(self):
        from ahcollector.budget.redis import RedisBudgetStore

        return RedisBudgetStore(client=self.client)

    async def reopen(self, store):
        return await self.new()
