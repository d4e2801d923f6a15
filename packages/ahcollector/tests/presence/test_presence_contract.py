"""All forms of presence keep the contract."""

import pytest

from ahcollector.presence import MemoryPresence
from ahcollector.testing.contracts import PresenceContract


@pytest.mark.anyio
class TestMemoryPresence(PresenceContract):
    @pytest.fixture(autouse=True)
    def _ids(self, event_ids):
        self.ids = event_ids

    async def new(self):
        return MemoryPresence(event_ids=self.ids)


@pytest.mark.anyio
class TestMemoryPresenceWithSnapshot(PresenceContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _path(self, tmp_path, event_ids):
        self.path = tmp_path / "state" / "presence.jsonl"
        self.ids = event_ids

    async def new(self):
        return await MemoryPresence.open(self.path, event_ids=self.ids)

    async def reopen(self, presence):
        del presence
        return await MemoryPresence.open(self.path, event_ids=self.ids)


@pytest.mark.service
@pytest.mark.anyio
class TestRedisPresence(PresenceContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _presence(self, shared):
        self.make = lambda: shared(name="collector-1")

    async def new(self):
        return self.make()

    async def reopen(self, presence):
        del presence
        return self.make()
