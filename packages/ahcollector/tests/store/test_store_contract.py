"""The memory store keeps the contract."""

import pytest

from ahcollector.store import MemoryStore
from ahcollector.testing import FakeClock
from ahcollector.testing.contracts import StoreContract


@pytest.mark.anyio
class TestMemoryStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _clock(self):
        self.clock = FakeClock()

    async def new(self):
        return MemoryStore(clock=self.clock)

    def now_ms(self):
        return round(self.clock.time() * 1000)
