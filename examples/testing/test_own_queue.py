"""A queue of one's own, checked by the contract of queues that `ahwal.testing` brings for it.

Copy the file out of the clone, whose conftest.py needs its development environment.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from ahwal import WAL, Client, Entry, MemoryQueue, Queue, QueueError, Sample, Sender, Stats
from ahwal.testing import QueueContract, ScriptedCollector


class PoliteQueue:
    """Another queue, which takes nothing while the disk has less room than the program needs."""

    def __init__(self, inner: Queue, free_bytes: Callable[[], int], *, reserve_bytes: int) -> None:
        self._inner, self._free_bytes, self._reserve_bytes = inner, free_bytes, reserve_bytes
        # The protocol's other methods stay as they are.
        self.oldest: Callable[[], Entry | None] = inner.oldest
        self.newest: Callable[[], Entry | None] = inner.newest
        self.peek: Callable[[int, int], list[Entry]] = inner.peek
        self.remove: Callable[[int], None] = inner.remove
        self.quarantine: Callable[[int], bool] = inner.quarantine
        self.stats: Callable[[], Stats] = inner.stats
        self.close: Callable[[], None] = inner.close

    def append(self, data: bytes) -> int:
        self._check_room(len(data))
        return self._inner.append(data)

    def replace(self, entry_id: int, replacements: Sequence[bytes]) -> list[int]:
        self._check_room(sum(map(len, replacements)))
        return self._inner.replace(entry_id, replacements)

    def _check_room(self, size_bytes: int) -> None:
        if size_bytes and self._free_bytes() - size_bytes < self._reserve_bytes:
            raise QueueError(f"under {self._reserve_bytes} bytes would be free: make room")


class TestPoliteQueue(QueueContract):
    """Every test of the contract runs for it."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_queue(self) -> Queue:
        inner = WAL.open(self.folder / "queue")
        return PoliteQueue(inner, lambda: shutil.disk_usage(self.folder).free, reserve_bytes=1)


def test_without_room_the_sender_keeps_batches_in_memory() -> None:
    async def main(collector: ScriptedCollector) -> None:
        queue = PoliteQueue(MemoryQueue(1_000_000), lambda: 400, reserve_bytes=500)
        async with Client(collector_url=collector.url) as client:
            sender = Sender(queue=queue, transport=client)
            await sender.enqueue([Sample("work", 1)])
            assert not sender.status().on_disk
            assert await sender.tick() == 1

    with ScriptedCollector() as collector:
        anyio.run(main, collector)
