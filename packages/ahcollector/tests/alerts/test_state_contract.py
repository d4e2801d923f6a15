"""Memory, file and Redis keep the contract of the store of alert states."""

import pytest

from ahcollector.alerts import FileAlertStateStore, MemoryAlertStateStore
from ahcollector.testing.contracts import AlertStateContract


@pytest.mark.anyio
class TestMemoryAlertState(AlertStateContract):
    async def new(self):
        return MemoryAlertStateStore()

    async def reopen(self, store):
        return store


@pytest.mark.anyio
class TestFileAlertState(AlertStateContract):
    @pytest.fixture(autouse=True)
    async def _directory(self, tmp_path, anyio_backend):
        self.directory = tmp_path / "rules"
        self.stores = []
        yield
        for store in self.stores:
            await store.close()

    async def new(self):
        self.stores.append(await FileAlertStateStore.open(self.directory))
        return self.stores[-1]

    async def reopen(self, store):
        await store.close()
        return await self.new()


@pytest.mark.service
@pytest.mark.anyio
class TestRedisAlertState(AlertStateContract):
    @pytest.fixture(autouse=True)
    def _client(self, client):
        self.client = client

    async def new(self):
        from ahcollector.alerts.redis import RedisAlertStateStore

        return RedisAlertStateStore(client=self.client)

    async def reopen(self, store):
        return await self.new()


def test_store_that_forgets_warns_of_it(caplog):
    MemoryAlertStateStore()
    assert "use a FileAlertStateStore or a RedisAlertStateStore" in caplog.text
