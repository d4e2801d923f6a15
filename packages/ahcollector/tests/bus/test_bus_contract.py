"""Every bus keeps the contract."""

import logging
import uuid

import anyio
import pytest

from ahcollector.bus import InProcessBus
from ahcollector.clock import SystemClock
from ahcollector.testing._contracts.bus import batch_of
from ahcollector.testing.contracts import BusContract


class OurBusContract(BusContract):
    @pytest.mark.fault
    async def test_a_reason_that_has_no_utf_8_stops_nobody(self, caplog):
        """C9: half a surrogate pair in what a handler raises."""
        # It is in the line about the failed try, too, which what reports of tests cannot hold.
        caplog.set_level(logging.ERROR, logger="ahcollector.bus")
        bus = await self.new()
        await bus.publish(batch_of(0))
        await bus.publish(batch_of(1))
        done = anyio.Event()

        async def handler(delivery):
            if delivery.batch == batch_of(0):
                raise LookupError("no \ud800")
            await delivery.ack()
            done.set()

        await self.until(bus, handler, done)
        [letter] = await bus.dead.letters()
        assert letter.reason == r"LookupError: no \ud800"


@pytest.mark.anyio
class TestInProcessBus(OurBusContract):
    async def new(self, *, queue_batches_max=256):
        return InProcessBus(
            clock=SystemClock(), queue_batches_max=queue_batches_max, retry_seconds=0.001
        )


@pytest.mark.service
@pytest.mark.anyio
class TestRedisBus(OurBusContract):
    @pytest.fixture(autouse=True)
    def _buses(self, buses):
        self.buses = buses

    async def new(self, *, queue_batches_max=256):
        self.buses.prefix = f"test-{uuid.uuid4().hex}:"
        # Nothing here may need the sweep: its time is longer than a test waits.
        return self.buses(queue_batches_max=queue_batches_max, claim_idle_seconds=60.0)


@pytest.mark.service
@pytest.mark.anyio
class TestJetStreamBus(OurBusContract):
    @pytest.fixture(autouse=True)
    def _buses(self, nats_buses):
        self.buses = nats_buses

    async def new(self, *, queue_batches_max=256):
        self.buses.prefix = f"test-{uuid.uuid4().hex}"
        # Nothing here may need a lease to end: its time is longer than a test waits.
        return self.buses(queue_batches_max=queue_batches_max, lease_seconds=60.0)
