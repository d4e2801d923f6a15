"""Both forms of the memory presence keep the contract."""

import itertools

import pytest

from ahcollector.presence import MemoryPresence
from ahcollector.testing.contracts import PresenceContract


def event_ids():
    numbers = itertools.count(1)
    return lambda: f"018bcfe5-6800-7000-8000-{next(numbers):012x}"


@pytest.mark.anyio
class TestMemoryPresence(PresenceContract):
    async def new(self):
        return MemoryPresence(event_ids=event_ids())


@pytest.mark.anyio
class TestMemoryPresenceWithSnapshot(PresenceContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _path(self, tmp_path):
        self.path = tmp_path / "state" / "presence.jsonl"
        self.ids = event_ids()

    async def new(self):
        return await MemoryPresence.open(self.path, event_ids=self.ids)

    async def reopen(self, presence):
        del presence
        return await MemoryPresence.open(self.path, event_ids=self.ids)
