import tracemalloc

import pytest

from ahwal.queue import DropReason, MemoryQueue
from ahwal.queue.memory import ENTRY_BYTES


def test_drops_the_oldest_when_full():
    queue = MemoryQueue(2 * (40 + ENTRY_BYTES) + 20)
    ids = [queue.append(bytes(40)) for _ in range(5)]
    assert [entry.id for entry in queue.peek(10, 1000)] == ids[-2:]
    stats = queue.stats()
    assert (stats.batches, stats.bytes, stats.dropped) == (2, 2 * (40 + ENTRY_BYTES), 3)
    assert stats.dropped_by_reason == {DropReason.SIZE: 3}


def test_small_and_empty_entries_are_not_free():
    """Each costs an object: half a million empty ones are no queue of a mebibyte."""
    queue = MemoryQueue(1 << 20)
    tracemalloc.start()
    for _ in range(30_000):
        queue.append(b"")
    (newest,) = queue.replace(queue.newest().id, [b""])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stats = queue.stats()
    assert held < 1 << 20
    assert stats.batches * ENTRY_BYTES == stats.bytes <= 1 << 20
    queue.remove(newest)
    for entry in queue.peek(1 << 20, 1):
        queue.remove(entry.id)
    assert queue.stats().bytes == 0


def test_keeps_the_newest_even_when_oversized():
    queue = MemoryQueue(100)
    queue.append(b"small")
    newest = queue.append(bytes(1000))
    entry = queue.oldest()
    assert entry is not None
    assert entry.id == newest
    assert queue.stats().batches == 1


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="max_bytes is 0; it must be at least 1"):
        MemoryQueue(0)


def test_stats_cannot_be_changed_by_who_reads_them():
    queue = MemoryQueue(100)
    counts = queue.stats().dropped_by_reason
    with pytest.raises(TypeError):
        counts["size"] = 7
