"""Every queue of this package keeps the contract."""

from itertools import count
from random import Random

import pytest

from ahwal.queue import MemoryQueue
from ahwal.testing import QueueContract, SimulatedDisk
from ahwal.wal import WAL


class TestMemoryQueue(QueueContract):
    def make_queue(self):
        return MemoryQueue(500_000)


class TestWAL(QueueContract):
    @pytest.fixture(autouse=True)
    def _directories(self, tmp_path):
        self.directories = (tmp_path / str(number) for number in count())

    def make_queue(self):
        return WAL.open(next(self.directories), max_bytes=1_000_000, segment_bytes=1000)


class TestWALOnADiskWithShortWrites(QueueContract):
    def make_queue(self):
        disk = SimulatedDisk(Random(1), short_writes=True)
        return WAL.open("simulated", storage=disk.storage(), max_bytes=1_000_000)
