"""Reading single records back."""

import attrs

from ahwal.queue.base import Entry
from ahwal.wal._index import Index, Spot
from ahwal.wal._record import HEADER_BYTES, inflate, read_header
from ahwal.wal._storage import File, Storage


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
        refused: Why the disk refused to go on; None when it did not.
        refused_id: The entry it refused.
    """

    entries: list[Entry]
    damaged: list[Spot]
    refused: OSError | None = None
    refused_id: int = 0


class Reader:
    """Reads records and keeps the file it read last open."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
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
            except FileNotFoundError:
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
        size = 0
        for spot in index.in_order():
            if len(entries) >= max_entries:
                break
            try:
                entry = self.entry(spot)
            except OSError as error:
                return Reading(entries=entries, damaged=damaged, refused=error, refused_id=spot.id)
            if entry is None:
                damaged.append(spot)
                continue
            size += len(entry.data)
            if entries and size > max_bytes:
                break
            entries.append(entry)
        return Reading(entries=entries, damaged=damaged)

    def close(self) -> None:
        """Give the descriptor back; the next read opens the file again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
