"""Memory and file keep the contract of the outbox."""

import os

import pytest

from ahcollector.outbox import FileOutbox, MemoryOutbox, OutboxBounds
from ahcollector.testing.contracts import OutboxContract

T0 = 1_700_000_000.0


@pytest.mark.anyio
class TestMemoryOutbox(OutboxContract):
    async def new(self, *, dead_max=100):
        return MemoryOutbox(bounds=OutboxBounds(dead_max=dead_max))


@pytest.mark.anyio
class TestFileOutbox(OutboxContract):
    durable = True

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path):
        self.directory = tmp_path / "outbox"

    async def new(self, *, dead_max=100):
        self.bounds = OutboxBounds(dead_max=dead_max)
        return await FileOutbox.open(self.directory, now=T0, bounds=self.bounds)

    async def reopen(self, outbox):
        # A killed process says no goodbye: only its lock goes with it.
        os.close(outbox._lock_descriptor)
        outbox._lock_descriptor = None
        return await FileOutbox.open(self.directory, now=T0, bounds=self.bounds)
