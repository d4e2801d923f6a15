"""What every `Queue` must do, as tests that any implementation can run.

Subclass `QueueContract`, say how to make a queue, and let pytest, or any runner that calls
`test_` methods, collect the class::

    class TestMemoryQueue(QueueContract):
        def make_queue(self) -> Queue:
            return MemoryQueue(max_bytes=1_000_000)
"""

import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from ahwal.errors import QueueClosedError
from ahwal.queue import Queue

_MANY = 1_000_000


class QueueContract:
    """The contract of `ahwal.queue.Queue`. Queues must hold at least 500,000 bytes."""

    @abstractmethod
    def make_queue(self) -> Queue:
        """Make an empty queue that shares nothing with those made before."""
        raise NotImplementedError

    def test_follows_the_protocol(self) -> None:
        """It has all methods."""
        with closing(self.make_queue()) as queue:
            assert isinstance(queue, Queue)

    def test_is_empty_at_first(self) -> None:
        """Nothing comes out of a new queue."""
        with closing(self.make_queue()) as queue:
            assert queue.oldest() is None
            assert queue.peek(10, _MANY) == []
            assert queue.stats().batches == 0

    def test_gives_back_in_the_order_of_appending(self) -> None:
        """First in, first out, byte for byte."""
        with closing(self.make_queue()) as queue:
            items = [b"", b"a", bytes(range(256)) * 40, b"\x00" * 1000, b"last"]
            ids = [queue.append(item) for item in items]
            assert ids == sorted(set(ids))
            assert all(entry_id > 0 for entry_id in ids)
            for entry_id, item in zip(ids, items, strict=True):
                entry = queue.oldest()
                assert entry is not None
                assert (entry.id, entry.data) == (entry_id, item)
                queue.remove(entry_id)
            assert queue.oldest() is None

    def test_reading_does_not_remove(self) -> None:
        """The same entry comes until it is removed."""
        with closing(self.make_queue()) as queue:
            queue.append(b"one")
            assert queue.oldest() == queue.oldest() == queue.peek(1, _MANY)[0]
            assert queue.stats().batches == 1

    def test_the_newest_is_the_waiting_entry_with_the_largest_id(self) -> None:
        """Also where a replacement, which has a larger id, stands before others."""
        with closing(self.make_queue()) as queue:
            assert queue.newest() is None
            first, middle, last = (queue.append(item) for item in (b"1", b"2", b"3"))

            def newest_id() -> int:
                entry = queue.newest()
                assert entry is not None
                return entry.id

            assert queue.newest() == queue.peek(3, _MANY)[-1]
            queue.remove(middle)
            assert newest_id() == last
            queue.remove(last)
            assert newest_id() == first
            (replacement,) = queue.replace(first, [b"4"])
            assert newest_id() == replacement
            queue.remove(replacement)
            assert queue.newest() is None

    def test_appended_data_is_copied(self) -> None:
        """What the caller does to its buffer later is not seen."""
        with closing(self.make_queue()) as queue:
            buffer: Any = bytearray(b"before")
            queue.append(buffer)
            buffer[:] = b"after!"
            entry = queue.oldest()
            assert entry is not None
            assert entry.data == b"before"

    def test_peek_keeps_both_limits(self) -> None:
        """Neither more entries nor more bytes than asked, but for one oversized first."""
        with closing(self.make_queue()) as queue:
            for _ in range(5):
                queue.append(b"x" * 10)
            assert len(queue.peek(3, _MANY)) == 3
            assert len(queue.peek(_MANY, 30)) == 3
            assert len(queue.peek(_MANY, 29)) == 2
            assert len(queue.peek(_MANY, 1)) == 1
            assert queue.peek(0, _MANY) == []

    def test_removing_out_of_order_leaves_the_others(self) -> None:
        """An entry in the middle can go first."""
        with closing(self.make_queue()) as queue:
            first, middle, last = (queue.append(item) for item in (b"1", b"2", b"3"))
            queue.remove(middle)
            assert [entry.id for entry in queue.peek(10, _MANY)] == [first, last]
            queue.remove(last)
            queue.remove(first)
            assert queue.oldest() is None

    def test_removing_an_unknown_id_does_nothing(self) -> None:
        """Also twice the same."""
        with closing(self.make_queue()) as queue:
            entry_id = queue.append(b"1")
            for unknown in (0, -1, entry_id + 1, 2**63, 2**70):
                queue.remove(unknown)
            assert queue.stats().batches == 1
            queue.remove(entry_id)
            queue.remove(entry_id)
            assert queue.stats().batches == 0

    def test_replacements_stand_in_the_old_place(self) -> None:
        """Halves of a half, too; with the time of the first."""
        with closing(self.make_queue()) as queue:
            _, middle, _ = (queue.append(item) for item in (b"1", b"2", b"3"))
            born = queue.peek(10, _MANY)[1].unix_ms
            halves = queue.replace(middle, [b"2a", b"2b"])
            assert halves == sorted(halves)
            assert len(halves) == 2
            quarters = queue.replace(halves[0], [b"2aa", b"2ab"])
            entries = queue.peek(10, _MANY)
            assert [entry.data for entry in entries] == [b"1", b"2aa", b"2ab", b"2b", b"3"]
            assert [entry.id for entry in entries[1:4]] == [*quarters, halves[1]]
            assert {entry.unix_ms for entry in entries[1:4]} == {born}
            assert queue.stats().batches == 5

    def test_replacing_an_unknown_id_stores_nothing(self) -> None:
        """What was to be replaced has been given up meanwhile."""
        with closing(self.make_queue()) as queue:
            entry_id = queue.append(b"1")
            queue.remove(entry_id)
            assert queue.replace(entry_id, [b"1a", b"1b"]) == []
            assert queue.oldest() is None

    def test_replacing_by_nothing_removes(self) -> None:
        """An empty list is a removal."""
        with closing(self.make_queue()) as queue:
            entry_id = queue.append(b"1")
            assert queue.replace(entry_id, []) == []
            assert queue.oldest() is None

    def test_ids_are_not_given_out_again(self) -> None:
        """Not by replacing, not after the queue was empty."""
        with closing(self.make_queue()) as queue:
            seen: set[int] = set()
            for _ in range(5):
                entry_id = queue.append(b"x")
                fresh = {entry_id, *queue.replace(entry_id, [b"y", b"z"])}
                assert not fresh & seen
                seen |= fresh
                for entry in queue.peek(10, _MANY):
                    queue.remove(entry.id)

    def test_quarantine_takes_out_of_the_queue(self) -> None:
        """Kept, or dropped and counted: never both, never neither."""
        with closing(self.make_queue()) as queue:
            entry_id, other = queue.append(b"1"), queue.append(b"2")
            kept = queue.quarantine(entry_id)
            assert [entry.id for entry in queue.peek(10, _MANY)] == [other]
            stats = queue.stats()
            assert (stats.quarantined, stats.dropped) == ((1, 0) if kept else (0, 1))
            assert not queue.quarantine(entry_id)
            assert queue.stats() == stats

    def test_counts_what_waits(self) -> None:
        """Entries and bytes."""
        with closing(self.make_queue()) as queue:
            queue.append(b"x" * 100)
            queue.append(bytes(range(256)))
            stats = queue.stats()
            assert stats.batches == 2
            assert stats.bytes > 0
            assert stats.dropped == 0

    def test_refuses_use_after_close(self) -> None:
        """Every method but `close`."""
        queue = self.make_queue()
        entry_id = queue.append(b"1")
        queue.close()
        queue.close()
        uses: list[Callable[[], object]] = [
            lambda: queue.append(b"2"),
            queue.oldest,
            queue.newest,
            lambda: queue.peek(1, 1),
            lambda: queue.remove(entry_id),
            lambda: queue.replace(entry_id, [b"2"]),
            lambda: queue.quarantine(entry_id),
            queue.stats,
        ]
        refused = 0
        for use in uses:
            with suppress(QueueClosedError):
                use()
                continue
            refused += 1
        assert refused == len(uses)

    def test_may_be_used_from_several_threads(self) -> None:
        """Nothing is lost and nothing comes twice between two writers and a reader."""
        with closing(self.make_queue()) as queue:
            count = 50
            taken: list[bytes] = []

            def write(letter: bytes) -> None:
                for number in range(count):
                    queue.append(letter + b"%d" % number)

            def read() -> None:
                while len(taken) < 2 * count:
                    for entry in queue.peek(7, _MANY):
                        taken.append(entry.data)
                        queue.remove(entry.id)

            threads = [
                threading.Thread(target=write, args=(b"a",)),
                threading.Thread(target=write, args=(b"b",)),
                threading.Thread(target=read, daemon=True),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=60)
            assert len(taken) == len(set(taken)) == 2 * count
            for letter in (b"a", b"b"):
                mine = [data for data in taken if data.startswith(letter)]
                assert mine == [letter + b"%d" % number for number in range(count)]
