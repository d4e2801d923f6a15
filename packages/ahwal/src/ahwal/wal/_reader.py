"""Reading single records back."""

from collections.abc import Callable
from logging import Logger

import attrs

from ahwal.queue.base import Entry
from ahwal.wal._index import Index, Spot
from ahwal.wal._record import HEADER_BYTES, inflate, read_header
from ahwal.wal._storage import File, Storage, away, is_medium_error
from ahwire import Clock

_TRIES = 3
_AGAIN_SECONDS = 60.0


def decode_record(record: bytes) -> Entry | None:
    """The entry in the bytes of one record; None when anything about them is wrong."""
    if len(record) <= HEADER_BYTES:
        return None
    header = read_header(record)
    payload = record[HEADER_BYTES:]
    if header.length_bytes != len(payload) or not header.holds(payload):
        return None
    data = inflate(payload)
    return None if data is None else Entry(id=header.id, data=data, unix_ms=header.unix_ms)


@attrs.frozen(kw_only=True)
class Reading:
    """What reading the first entries brought.

    Attributes:
        entries: Those that could be read, in order.
        damaged: Records before and between them that are damaged.
        refused: Why the disk refused to read one; None when it did not.
        refused_id: The entry it refused first.
    """

    entries: list[Entry]
    damaged: list[Spot]
    refused: OSError | None = None
    refused_id: int = 0


class Refusals:
    """Entries that the disk refuses to read.

    A bad sector must not hold up what stands behind it for ever, and a short trouble must not
    change the order. So the first refusals of an entry stop the reading, then it is passed over,
    and tried again once a minute. It stays in the queue, until it can be read or is too old.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: dict[int, int] = {}
        self._again_at: dict[int, float] = {}
        self._errors: dict[int, OSError] = {}

    def __len__(self) -> int:
        return len(self._tries)

    def waiting(self, entry_id: int) -> OSError | None:
        """Why an entry is passed over now; None when it may be read."""
        if self._clock.monotonic() >= self._again_at.get(entry_id, 0.0):
            return None
        return self._errors[entry_id]

    def note(self, entry_id: int, error: OSError) -> bool:
        """An entry was refused; whether it is passed over for the first time."""
        if not is_medium_error(error):
            return False
        tries = self._tries[entry_id] = self._tries.get(entry_id, 0) + 1
        if tries >= _TRIES:
            self._errors[entry_id] = error
            self._again_at[entry_id] = self._clock.monotonic() + _AGAIN_SECONDS
        return tries == _TRIES

    def forget_gone(self, index: Index) -> None:
        """Forget those that are no longer in the queue."""
        for entry_id in [known for known in self._tries if index.find(known) is None]:
            self.forget(entry_id)

    def forget(self, entry_id: int) -> None:
        """An entry could be read, or is gone."""
        for known in (self._tries, self._again_at, self._errors):
            known.pop(entry_id, None)


class Reader:
    """Reads records and keeps the file it read last open."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        logger: Logger,
        *,
        is_away: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open nothing yet.

        Args:
            storage: Where the segments are.
            clock: Measures when what was refused is tried again.
            logger: Where to log.
            is_away: Whether a file that is not there may come back with its directory.
        """
        self._storage = storage
        self._is_away = is_away
        self._refusals = Refusals(clock)
        self._logger = logger
        self._name = ""
        self._file: File | None = None

    def record(self, spot: Spot) -> bytes:
        """The bytes where a record should be; fewer, or none, when the file is shorter or gone.

        Raises:
            OSError: The disk refused.
        """
        if self._file is None or self._name != spot.segment.name:
            self.close()
            try:
                self._file = self._storage.open_read(spot.segment.name)
            except FileNotFoundError as error:
                if self._is_away():
                    # This says nothing about the entry.
                    raise away() from error
                return b""
            self._name = spot.segment.name
        offset, size = spot.segment.extent(spot.position)
        return self._file.read(offset, size)

    def entry(self, spot: Spot) -> Entry | None:
        """The entry of a record, checked; None when it is damaged.

        Raises:
            OSError: The disk refused.
        """
        entry = decode_record(self.record(spot))
        if entry is None or (entry.id, entry.unix_ms) != (spot.id, spot.unix_ms):
            return None
        return entry

    def first(self, index: Index, max_entries: int, max_bytes: int) -> Reading:
        """The first entries within both limits, at least one when there is one.

        Args:
            index: Which records there are; it is not changed.
            max_entries: At most that many.
            max_bytes: At most that many bytes of data, unless the first alone is larger.
        """
        entries: list[Entry] = []
        damaged: list[Spot] = []
        refused: OSError | None = None
        refused_id = size = 0
        for spot in index.in_order():
            if len(entries) >= max_entries:
                break
            read = self._try(index, spot)
            if isinstance(read, OSError):
                if refused is None:
                    refused, refused_id = read, spot.id
                if not self._refusals.waiting(spot.id):
                    break
            elif read is None:
                damaged.append(spot)
            else:
                size += len(read.data)
                if entries and size > max_bytes:
                    break
                entries.append(read)
        return Reading(
            entries=entries,
            damaged=damaged,
            refused=refused,
            refused_id=refused_id,
        )

    def _try(self, index: Index, spot: Spot) -> Entry | OSError | None:
        """The entry of a record; None when it is damaged, an error when it cannot be read now."""
        if self._refusals and (problem := self._refusals.waiting(spot.id)) is not None:
            return problem
        try:
            entry = self.entry(spot)
        except OSError as error:
            self._refusals.forget_gone(index)
            if self._refusals.note(spot.id, error):
                self._logger.warning(
                    "the disk refuses to read a batch of the WAL; it is passed over and tried "
                    "again every minute",
                    extra={"entry_id": spot.id, "segment": spot.segment.name, "error": str(error)},
                )
            return error
        if self._refusals:
            self._refusals.forget(spot.id)
        return entry

    def close(self) -> None:
        """Give the descriptor back; the next read opens the file again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
