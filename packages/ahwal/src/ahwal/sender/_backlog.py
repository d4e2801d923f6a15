"""The two queues behind a sender: the disk, and memory for when the disk fails.

Law of this file: batches leave in the order in which they came, the disk's before the memory's; a
batch waits in memory only while the disk refuses it, and moves over at the first append that works.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from attrs import frozen
from google.protobuf.message import DecodeError

from ahwal.errors import AhwalError
from ahwal.queue import MemoryQueue, Queue, Stats
from ahwal.sender._batch import SEQ_MAX
from ahwal.sender._books import Key
from ahwire.agent_pb2 import MetricsBatch

# What a failing disk raises, through our own WAL or another implementation of the queue.
QUEUE_ERRORS = (AhwalError, OSError)


@frozen(kw_only=True)
class Held:
    """A batch in one of the queues, as bytes."""

    key: Key
    data: bytes


def seq_of(data: bytes) -> int:
    """Return the sequence number in a batch's bytes; 0 when they are no batch."""
    try:
        return MetricsBatch.FromString(data).seq
    except DecodeError:
        return 0


class Backlog:
    """Both queues as one. Blocking; its lock makes each method one step for several threads.

    Args:
        durable: The queue on disk; None while it cannot be opened.
        memory: Takes what the disk refuses.
        on_durable: Called with the bytes of each batch that has just become durable, after the
            append returned, in the appending thread.
        on_moved: Called with the old and the new key of a batch that moved to the disk.
    """

    def __init__(
        self,
        *,
        durable: Queue | None,
        memory: MemoryQueue,
        on_durable: Callable[[bytes], None],
        on_moved: Callable[[Key, Key], None],
    ) -> None:
        self.lock = threading.RLock()
        self._durable = durable
        self._memory = memory
        self._on_durable = on_durable
        self._on_moved = on_moved
        self._forward: dict[Key, Key] = {}
        self.last_error: Exception | None = None
        self.read_error: Exception | None = None

    @property
    def on_disk(self) -> bool:
        """Whether there is a queue on disk, and its last append worked."""
        return self._durable is not None and self.last_error is None

    def attach(self, durable: Queue) -> None:
        """Begin to use a queue on disk, and move to it what waits in memory."""
        with self.lock:
            self._durable = durable
            self.last_error = None
            try:
                self._move_memory(durable)
            except Exception as error:  # noqa: BLE001 - see `append`
                self.last_error = error

    def largest_seq(self) -> int:
        """Return the largest sequence number on disk, judged by the newest entry; 0 for none.

        Numbers rise with the order of appending, so the newest entry has the largest. Only one that
        was put back from the quarantine has an old number; for its sake the time counts too.
        """
        with self.lock:
            try:
                newest = None if self._durable is None else self._durable.newest()
                # Each for itself, so that one that is absurd leaves the other.
                used = () if newest is None else (newest.unix_ms, seq_of(newest.data))
                return max((number for number in used if number <= SEQ_MAX), default=0)
            except QUEUE_ERRORS:
                # The numbers then begin at the clock's time, which is nearly always above.
                return 0

    def save(self) -> int:
        """Move what waits in memory to the disk, if it takes it.

        Returns:
            The batches that still are in memory only.
        """
        with self.lock:
            if self._durable is not None:
                try:
                    self._move_memory(self._durable)
                except Exception as error:  # noqa: BLE001 - see `append`
                    self.last_error = error
            return self._memory.stats().batches

    def append(self, data: bytes) -> Key:
        """Put a batch at the end; in memory the oldest may lose its place for it."""
        with self.lock:
            if self._durable is not None:
                try:
                    self._move_memory(self._durable)
                    key = Key(durable=True, id=self._durable.append(data))
                except Exception as error:  # noqa: BLE001 - see below
                    # Whatever a queue raises, a mistake in it included, must not cost the batch.
                    self.last_error = error
                else:
                    self.last_error = None
                    self._on_durable(data)
                    return key
            return Key(durable=False, id=self._memory.append(data))

    def read(self, *, durable: bool, entries_max: int, bytes_max: int) -> list[Held] | None:
        """Return batches from the head of one queue, at least one if there is one.

        Returns:
            Oldest first; None when the queue cannot be read now, which is not the same as empty.
        """
        with self.lock:
            queue = self._queue(durable)
            if queue is None:
                return []
            self._forward.clear()
            try:
                entries = queue.peek(entries_max, bytes_max)
            except QUEUE_ERRORS as error:
                self.read_error = error
                return None
            if durable:
                self.read_error = None
            return [Held(key=Key(durable=durable, id=e.id), data=e.data) for e in entries]

    def head(self, *, durable: bool) -> list[Held]:
        """Return the first batch of one queue, or nothing; unlike `read` for looking only.

        Raises:
            AhwalError, OSError: It cannot be read now.
        """
        queue = self._queue(durable)
        entry = None if queue is None else queue.oldest()
        return (
            [] if entry is None else [Held(key=Key(durable=durable, id=entry.id), data=entry.data)]
        )

    def remove(self, key: Key) -> Key:
        """Take a batch out for good.

        Returns:
            The key under which it was found: another one when it moved since it was read.
        """
        with self.lock:
            key = self._forward.get(key, key)
            queue = self._queue(key.durable)
            if queue is not None:
                queue.remove(key.id)
            return key

    def replace(self, key: Key, parts: Sequence[bytes]) -> tuple[Key, list[int]]:
        """Put parts in the place of a batch.

        Returns:
            The key under which it was found, and the ids of the parts; no ids when the queue had
            given the batch up meanwhile.
        """
        with self.lock:
            key = self._forward.get(key, key)
            queue = self._queue(key.durable)
            return key, [] if queue is None else queue.replace(key.id, parts)

    def set_aside(self, key: Key) -> Key:
        """Take a batch out of its queue, into the quarantine."""
        with self.lock:
            key = self._forward.get(key, key)
            queue = self._queue(key.durable)
            if queue is not None:
                queue.quarantine(key.id)
            return key

    def stats(self) -> Stats:
        """Return the sums of both queues; never waits for the disk."""
        # Without the lock, which an append holds as long as the disk takes.
        memory, durable = self._memory.stats(), self._durable
        if durable is None:
            return memory
        disk = durable.stats()
        return Stats(
            batches=disk.batches + memory.batches,
            bytes=disk.bytes + memory.bytes,
            dropped=disk.dropped + memory.dropped,
            dropped_by_reason=Counter(disk.dropped_by_reason) + Counter(memory.dropped_by_reason),
        )

    def _queue(self, durable: bool) -> Queue | None:
        return self._durable if durable else self._memory

    def _move_memory(self, durable: Queue) -> None:
        # One by one, so that an error in the middle leaves each batch in exactly one queue.
        while (entry := self._memory.oldest()) is not None:
            old = Key(durable=False, id=entry.id)
            new = Key(durable=True, id=durable.append(entry.data))
            self._memory.remove(entry.id)
            self._forward[old] = new
            self._on_moved(old, new)
            self._on_durable(entry.data)
