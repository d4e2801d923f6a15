"""A segment: one file of records, named `%016x.seg` by the id of its first record.

In memory it is an index of where its records are, in flat arrays: some 30 bytes a record, whatever
the size of its payload.
"""

import re
from array import array
from bisect import bisect_left

from ahwal.wal._record import HEADER_BYTES, ID_MAX, UNIX_MS_MAX

_NAME = re.compile(r"[0-9a-f]{16}\.seg")


def segment_name(first_id: int) -> str:
    """The name of the segment that begins with this id."""
    return f"{first_id:016x}.seg"


def first_id_of(name: str) -> int | None:
    """The id in a segment's name; None when it is no segment's name."""
    if not _NAME.fullmatch(name):
        return None
    first_id = int(name[:16], 16)
    return first_id if first_id <= ID_MAX else None


class Segment:
    """Where the records of one file are, and which of them are done.

    Attributes:
        name: The file's name.
        size_bytes: Of the file.
        live: How many records are not done.
        damage: Ranges of the file, (offset, size), in which nothing valid was found.
        damaged_records: How many damaged records stand in them, as far as one can tell.
    """

    __slots__ = (
        "_done",
        "_first_live",
        "_ids",
        "_offsets",
        "_payload_bytes",
        "_times",
        "damage",
        "damaged_records",
        "live",
        "name",
        "size_bytes",
    )

    def __init__(self, name: str, size_bytes: int = 0) -> None:
        self.name = name
        self.size_bytes = size_bytes
        self.live = 0
        self.damage: list[tuple[int, int]] = []
        self.damaged_records = 0
        self._ids = array("Q")
        self._offsets = array("Q")
        self._payload_bytes = array("I")
        self._times = array("q")
        self._done = bytearray()
        self._first_live = 0

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def last_id(self) -> int:
        """The largest id in it; 0 when it has no record."""
        return self._ids[-1] if self._ids else 0

    def add(self, record_id: int, offset: int, payload_bytes: int, unix_ms: int) -> None:
        """Take up the next record, whose id is larger than all before."""
        self._ids.append(record_id)
        self._offsets.append(offset)
        self._payload_bytes.append(payload_bytes)
        self._times.append(unix_ms)
        self._done.append(0)
        self.live += 1

    def add_damage(self, offset: int, size_bytes: int, *, apart: bool) -> None:
        """Take up the next damaged record, and whatever is up to the one behind it.

        Args:
            offset: Where it begins.
            size_bytes: Up to where nothing valid was found.
            apart: Whether it is a range of its own also where it follows another.
        """
        self.damaged_records += 1
        # Adjacent ones are one range: a file of nothing else must not cost memory for each.
        if self.damage and not apart and sum(self.damage[-1]) == offset:
            offset, size_bytes = self.damage[-1][0], self.damage[-1][1] + size_bytes
            self.damage.pop()
        self.damage.append((offset, size_bytes))

    def position(self, record_id: int) -> int | None:
        """Where in the index an id is; None when it is not in this segment."""
        position = bisect_left(self._ids, record_id)
        if position < len(self._ids) and self._ids[position] == record_id:
            return position
        return None

    def record_id(self, position: int) -> int:
        """The id at a position of the index."""
        return self._ids[position]

    def unix_ms(self, position: int) -> int:
        """The time at a position of the index."""
        return self._times[position]

    def extent(self, position: int) -> tuple[int, int]:
        """Offset and size in the file of the whole record at a position of the index."""
        return self._offsets[position], HEADER_BYTES + self._payload_bytes[position]

    def is_done(self, position: int) -> bool:
        """Whether the record at a position of the index is done."""
        return bool(self._done[position])

    def mark_done(self, position: int) -> None:
        """The record at a position of the index is done, if it was not already."""
        if not self._done[position]:
            self._done[position] = 1
            self.live -= 1

    def next_live(self, position: int = 0) -> int | None:
        """The first position at or after `position` whose record is not done."""
        if not self.live:
            return None
        # The prefix that is done only grows, so it is looked at once.
        start = max(position, self._first_live)
        found = self._done.find(0, start)
        if position <= self._first_live:
            self._first_live = len(self._done) if found < 0 else found
        return None if found < 0 else found

    def last_live(self) -> int | None:
        """The last position whose record is not done."""
        found = self._done.rfind(0)
        return None if found < 0 else found

    def done_ids(self) -> list[int]:
        """The ids of the records that are done."""
        return [record_id for record_id, done in zip(self._ids, self._done, strict=True) if done]

    def live_ids(self) -> list[int]:
        """The ids of the records that are not done."""
        return [
            record_id for record_id, done in zip(self._ids, self._done, strict=True) if not done
        ]

    def newest_unix_ms(self, up_to_ms: int = UNIX_MS_MAX) -> int | None:
        """The largest time of its records that is not above a limit; None when there is none."""
        newest = max(self._times, default=None)
        if newest is None or newest <= up_to_ms:
            return newest
        return max((unix_ms for unix_ms in self._times if unix_ms <= up_to_ms), default=None)
