"""What the sender needs of a queue."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import attrs


class DropReason(StrEnum):
    """Why a queue gave up an entry that nobody had removed."""

    AGE = "age"
    SIZE = "size"
    DAMAGED = "damaged"
    QUARANTINE = "quarantine"


def _frozen_counts(counts: Mapping[str, int]) -> Mapping[str, int]:
    return MappingProxyType(dict(counts))


@attrs.frozen(kw_only=True)
class Entry:
    """One entry of a queue.

    Attributes:
        id: Unique for the life of the queue, also over restarts where the queue is durable.
            Always positive. Larger means appended later, not farther back: see `Queue.replace`.
        data: What was appended, byte for byte.
        unix_ms: When it was appended, Unix milliseconds. A replacement has the time of what it
            replaced.
    """

    id: int
    data: bytes
    unix_ms: int


@attrs.frozen(kw_only=True)
class Stats:
    """Figures of a queue at one moment.

    Attributes:
        batches: Entries that are waiting.
        bytes: What the queue holds of its medium: all that counts against `max_bytes`.
        dropped: Entries given up since the queue was opened; the sum of `dropped_by_reason`.
        dropped_by_reason: `DropReason` to count. `quarantine` counts entries that were to be set
            aside, or had been, and for which there was no room.
        quarantined: Entries set aside and still kept.
        quarantine_bytes: The part of `bytes` they hold, damaged pieces included.
    """

    batches: int
    bytes: int
    dropped: int
    dropped_by_reason: Mapping[str, int] = attrs.field(
        factory=dict[str, int], converter=_frozen_counts
    )
    quarantined: int = 0
    quarantine_bytes: int = 0


@runtime_checkable
class Queue(Protocol):
    """A first-in, first-out queue whose entries stay until they are removed.

    Order: entries are read in the order they were appended; what `replace` put in stands where the
    replaced entry stood. Delivery: at least once, because reading does not remove. Durability: that
    of the implementation; where it is durable, `append` and `replace` return only after the data
    is safe from a power cut. Idempotence: `remove`, `quarantine` and `close` may be repeated.

    Every method blocks and may be called from any thread; call them through a worker thread from
    an event loop, except `stats`, which never waits for the disk. After `close` each but `close`
    raises `QueueClosedError`. Implementations are checked by `ahwal.testing.QueueContract`.
    """

    def append(self, data: bytes) -> int:
        """Store a copy of `data` at the end.

        Args:
            data: Any bytes-like object, which may be empty.

        Returns:
            The new entry's id.

        Raises:
            EntryTooLargeError: It can never fit.
            TypeError: It is no bytes-like object.
            QueueError: It could not be stored; the queue is as before and goes on working.
        """
        ...

    def oldest(self) -> Entry | None:
        """Read the first entry without removing it; None when the queue is empty.

        Raises:
            QueueError: It could not be read.
        """
        ...

    def newest(self) -> Entry | None:
        """Read the waiting entry with the largest id; None when the queue is empty.

        None too when that entry is damaged: it is a hint about what was used before, and nothing
        is given up because of it.

        Raises:
            QueueError: It could not be read.
        """
        ...

    def peek(self, max_entries: int, max_bytes: int) -> list[Entry]:
        """Read the first entries without removing them.

        Args:
            max_entries: At most that many.
            max_bytes: At most that many bytes of `data` in all. The first entry is returned even
                when it alone is larger.

        Returns:
            The entries in order; empty when the queue is empty or `max_entries` is below 1.

        Raises:
            QueueError: The first entry could not be read.
        """
        ...

    def remove(self, entry_id: int) -> None:
        """Forget an entry, anywhere in the queue. An unknown id does nothing."""
        ...

    def replace(self, entry_id: int, replacements: Sequence[bytes]) -> list[int]:
        """Put others in the place of one entry, all or none.

        Args:
            entry_id: The entry that goes.
            replacements: What stands in its place, in this order, with its time. None at all is
                a removal.

        Returns:
            The ids of the new entries, increasing. Empty when `entry_id` is unknown: then nothing
            is stored, because what was to be replaced has been given up meanwhile.

        Raises:
            EntryTooLargeError: One of them can never fit; the entry stays.
            QueueError: They could not be stored; the entry stays.
        """
        ...

    def quarantine(self, entry_id: int) -> bool:
        """Set an entry aside: out of the queue, kept where the implementation can keep it.

        Returns:
            True when it is kept. False when the id is unknown, or there was no room: then the
            entry is gone and counted in `Stats.dropped_by_reason`.

        Raises:
            QueueError: It could not be written; the entry stays in the queue.
        """
        ...

    def stats(self) -> Stats:
        """The figures of this moment. Never waits for the disk."""
        ...

    def close(self) -> None:
        """Give up all resources. Durable queues keep their entries."""
        ...


def own_copies(items: Iterable[bytes]) -> list[bytes]:
    """Copies that the caller can no longer change (a bytes object is its own copy).

    Raises:
        TypeError: One of them is no bytes-like object.
    """
    copies = []
    for item in items:
        require_bytes(item)
        copies.append(bytes(item))
    return copies


def require_bytes(item: object) -> None:
    """Refuse what is no bytes-like object; of a number `bytes` would make that many zeros.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(item, bytes):
        try:
            memoryview(item)  # type: ignore[arg-type]  # it is asked whether it is one
        except TypeError:
            raise TypeError(
                f"an entry is bytes, not {type(item).__name__}: encode a text or an object first"
            ) from None
