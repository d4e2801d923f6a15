"""Memory, file and Redis keep the contract of the store of alert states."""

import uuid

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
    async def _client(self, redis_server, anyio_backend):
        from ahcollector.alerts.redis import RedisAlertStateStore
        from ahcollector.redis import RedisClient, RedisConfig

        config = RedisConfig(
            port=redis_server.port, prefix=f"{uuid.uuid4().hex}:", timeout_seconds=10
        )
        self.client = RedisClient(config=config)
        self.make = RedisAlertStateStore
        yield
        await self.client.aclose()

    async def new(self):
        return self.make(client=self.client)

    async def reopen(self, store):
        return self.make(client=self.client)


def test_store_that_forgets_warns_of_it(caplog):
    MemoryAlertStateStore()
    assert "set redis.addr or alerting.rules_dir" in caplog.text
