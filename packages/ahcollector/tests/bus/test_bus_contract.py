"""Every bus keeps the contract."""

import uuid

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


@pytest.mark.service
@pytest.mark.anyio
class TestRedisBus(BusContract):
    @pytest.fixture(autouse=True)
    def _buses(self, buses):
        self.buses = buses

    async def new(self, *, queue_batches_max=256):
        self.buses.prefix = f"test-{uuid.uuid4().hex}:"
        # Nothing here may need the sweep: its time is longer than a test waits.
        return self.buses(queue_batches_max=queue_batches_max, claim_idle_seconds=60.0)


@pytest.mark.service
@pytest.mark.anyio
class TestJetStreamBus(BusContract):
    @pytest.fixture(autouse=True)
    def _buses(self, nats_buses):
        self.buses = nats_buses

    async def new(self, *, queue_batches_max=256):
        self.buses.prefix = f"test-{uuid.uuid4().hex}"
        # Nothing here may need a lease to end: its time is longer than a test waits.
        return self.buses(queue_batches_max=queue_batches_max, lease_seconds=60.0)
