"""The in-process bus keeps the contract."""

import pytest

from ahcollector.bus import InProcessBus
from ahcollector.clock import SystemClock
from ahcollector.testing.contracts import BusContract


@pytest.mark.anyio
class TestInProcessBus(BusContract):
    async def new(self, *, queue_batches_max=256):
        return InProcessBus(
            clock=SystemClock(), queue_batches_max=queue_batches_max, retry_seconds=0.001
        )
