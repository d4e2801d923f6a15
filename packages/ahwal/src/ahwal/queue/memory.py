"""A queue in memory, for when there is no disk."""

import threading
import time
from collections import Counter
from collections.abc import Sequence

from ahwal.errors import QueueClosedError
from ahwal.queue.base import DropReason, Entry, Stats, own_copies
from ahwire import Clock, now_ms

# What an entry takes beside its data: the entry itself, its numbers, and the header of its bytes.
ENTRY_BYTES = 200


class MemoryQueue:
    """A `Queue` that is lost with the process and never larger than asked.

    When it is full the oldest entries go, counted; the newest one stays even when it alone is over
    the limit. What cannot be sent and would be set aside is dropped and counted: there is no place
    to keep it.
    """

    def __init__(self, max_bytes: int, *, clock: Clock = time) -> None:
        """Make an empty queue.

        Args:
            max_bytes: The limit for the sum of the entries' `data` and `ENTRY_BYTES` for each.
            clock: Gives the entries' times.
        """
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; it must be at least 1")
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._bytes = 0
        self._next_id = 1
        self._dropped: Counter[str] = Counter()
        self._closed = False

    def append(self, data: bytes) -> int:
        """Store a copy of `data` at the end; see `Queue.append`."""
        with self._lock:
            self._check_open()
            (entry,) = self._make([data], now_ms(self._clock))
            self._entries.append(entry)
            self._bytes += ENTRY_BYTES + len(entry.data)
            self._drop_oldest()
            return entry.id

    def oldest(self) -> Entry | None:
        """The first entry, or None; see `Queue.oldest`."""
        with self._lock:
            self._check_open()
            return self._entries[0] if self._entries else None

    def newest(self) -> Entry | None:
        """The entry with the largest id, or None; see `Queue.newest`."""
        with self._lock:
            self._check_open()
            return max(self._entries, key=lambda entry: entry.id, default=None)

    def peek(self, max_entries: int, max_bytes: int) -> list[Entry]:
        """The first entries within both limits; see `Queue.peek`."""
        with self._lock:
            self._check_open()
            found: list[Entry] = []
            room = max_bytes
            for entry in self._entries[: max(max_entries, 0)]:
                room -= len(entry.data)
                if found and room < 0:
                    break
                found.append(entry)
            return found

    def remove(self, entry_id: int) -> None:
        """Forget an entry; see `Queue.remove`."""
        with self._lock:
            self._check_open()
            position = self._position(entry_id)
            if position is not None:
                self._delete(position)

    def replace(self, entry_id: int, replacements: Sequence[bytes]) -> list[int]:
        """Put others in an entry's place; see `Queue.replace`."""
        with self._lock:
            self._check_open()
            position = self._position(entry_id)
            if position is None:
                return []
            entries = self._make(replacements, self._entries[position].unix_ms)
            self._delete(position)
            self._entries[position:position] = entries
            self._bytes += sum(ENTRY_BYTES + len(entry.data) for entry in entries)
            self._drop_oldest()
            return [entry.id for entry in entries]

    def quarantine(self, entry_id: int) -> bool:
        """Drop an entry and count it: memory has no place to set it aside."""
        with self._lock:
            self._check_open()
            position = self._position(entry_id)
            if position is not None:
                self._delete(position)
                self._dropped[DropReason.QUARANTINE] += 1
            return False

    def stats(self) -> Stats:
        """The figures of this moment; see `Queue.stats`."""
        with self._lock:
            self._check_open()
            return Stats(
                batches=len(self._entries),
                bytes=self._bytes,
                dropped=self._dropped.total(),
                dropped_by_reason=self._dropped,
            )

    def close(self) -> None:
        """Forget all entries. May be repeated."""
        with self._lock:
            self._closed = True
            self._entries.clear()
            self._bytes = 0

    def _check_open(self) -> None:
        if self._closed:
            raise QueueClosedError("the memory queue is closed: make a new one")

    def _make(self, items: Sequence[bytes], unix_ms: int) -> list[Entry]:
        entries = []
        for data in own_copies(items):
            entries.append(Entry(id=self._next_id, data=data, unix_ms=unix_ms))
            self._next_id += 1
        return entries

    def _position(self, entry_id: int) -> int | None:
        # Linear, because replacements break the order of ids; the sender asks for the first ones.
        for position, entry in enumerate(self._entries):
            if entry.id == entry_id:
                return position
        return None

    def _delete(self, position: int) -> None:
        self._bytes -= ENTRY_BYTES + len(self._entries.pop(position).data)

    def _drop_oldest(self) -> None:
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._delete(0)
            self._dropped[DropReason.SIZE] += 1
