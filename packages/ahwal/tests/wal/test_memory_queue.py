import pytest

from ahwal.queue import DropReason, MemoryQueue


def test_drops_the_oldest_when_full():
    queue = MemoryQueue(100)
    ids = [queue.append(bytes(40)) for _ in range(5)]
    assert [entry.id for entry in queue.peek(10, 1000)] == ids[-2:]
    stats = queue.stats()
    assert (stats.batches, stats.bytes, stats.dropped) == (2, 80, 3)
    assert stats.dropped_by_reason == {DropReason.SIZE: 3}


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
