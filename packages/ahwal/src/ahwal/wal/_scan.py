"""Finding the records in a segment, whatever has happened to the file.

Records are read one after another as long as they hold. Where one does not, the next one is looked
for, and what lies between is damage. A file that ends inside a record, or in zeros, has damage at
its end: a torn tail. What the disk cannot read is damage too, sector by sector.

Where the next one begins depends on what is damaged. With a bad length the bytes behind are
searched, one by one, for the next place where a header and its CRC hold with a higher id. With a
good length the record is skipped as a whole: its payload may hold anything, whole records of
another WAL too, and none of those may come out of this one. What tells the two apart is that the
CRC does not cover the length: when it holds for the bytes up to a later record, it was the length
that was damaged and nothing else.
"""

import itertools
import re
from collections.abc import Iterator

import google_crc32c

from ahwal.wal._record import (
    HEADER_BYTES,
    ID_MAX,
    PAYLOAD_BYTES_MAX,
    Header,
    checksum,
    read_header,
)
from ahwal.wal._segment import Segment, first_id_of
from ahwal.wal._storage import File, is_medium_error

_WINDOW_BYTES = 256 * 1024
_SECTOR_BYTES = 4096
# A file made to look like headers everywhere would cost the square of its size to search: so many
# times its size is looked at, and the rest counts as damage.
_SEARCH_FACTOR = 64
_SEARCH_BYTES_MIN = 64 * 1024 * 1024
# An id that is so little above the one before was hardly made by damage.
_NEAR_IDS = 2**20
# So many places are tried as the end of a payload whose length may be damaged.
_ENDS_MAX = 64
# Where a header can begin: a length that is not zero and not over 16 MiB, an id that is not zero
# and not over 2**62 by much. In random bytes one place in 500 passes, in zeros none.
_PLAUSIBLE = re.compile(
    rb"(?=(?!\x00{4})...[\x00\x01].{4}(?!\x00{8}).{7}[\x00-\x40].{8})", re.DOTALL
)


class _Window:
    """A file read in blocks, so that small reads cost no system call."""

    def __init__(self, file: File, size_bytes: int) -> None:
        self._file = file
        self._size = size_bytes
        self._start = 0
        self._block = b""

    def get(self, offset: int, size: int) -> bytes:
        """The bytes there; fewer only where the file ends."""
        size = min(size, self._size - offset)
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._block):
            wanted = min(max(size, _WINDOW_BYTES), self._size - offset)
            self._block = self._read(offset, wanted)
            self._start, begin = offset, 0
        return self._block[begin : begin + size]

    def next_data(self, offset: int) -> int:
        """The first offset from `offset` on where there may be anything but a hole."""
        return self._file.next_data(offset) if offset < self._size else self._size

    def _read(self, offset: int, size: int) -> bytes:
        """The bytes there, with zeros for those that the disk cannot give, unless it gives none."""
        try:
            return self._file.read(offset, size)
        except OSError as error:
            if not is_medium_error(error):
                raise
            refused = error
        pieces: list[bytes] = []
        read = 0
        for begin in range(offset, offset + size, _SECTOR_BYTES):
            wanted = min(_SECTOR_BYTES, offset + size - begin)
            try:
                pieces.append(self._file.read(begin, wanted))
                read += 1
            except OSError:
                pieces.append(bytes(wanted))
        if not read:
            raise refused
        return b"".join(pieces)


class _Scanner:
    def __init__(self, file: File, segment: Segment) -> None:
        self._window = _Window(file, segment.size_bytes)
        self._segment = segment
        self._size = segment.size_bytes
        self._search_bytes_left = max(_SEARCH_FACTOR * self._size, _SEARCH_BYTES_MIN)

    def run(self, last_id: int) -> None:
        offset = 0
        while offset < self._size:
            header = self._valid(offset, last_id)
            if header is None:
                end = self._next(offset, last_id)
                # What reaches the end may be what an append left that was cut short.
                self._segment.add_damage(offset, end - offset, apart=end == self._size)
                offset = end
                continue
            self._segment.add(header.id, offset, header.length_bytes, header.unix_ms)
            last_id = header.id
            offset += HEADER_BYTES + header.length_bytes

    def _valid(self, offset: int, last_id: int) -> Header | None:
        """The header at `offset`, if it and its payload hold and its id is higher."""
        head = self._window.get(offset, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return None
        header = read_header(head)
        if not last_id < header.id <= ID_MAX:
            return None
        return header if self._holds(offset, header) else None

    def _holds(self, offset: int, header: Header) -> bool:
        # Refused by what the file can hold before anything of that length is read.
        room = self._size - offset - HEADER_BYTES
        if not 1 <= header.length_bytes <= min(room, PAYLOAD_BYTES_MAX):
            return False
        payload = self._window.get(offset + HEADER_BYTES, header.length_bytes)
        self._search_bytes_left -= len(payload)
        return header.holds(payload)

    def _next(self, offset: int, last_id: int) -> int:
        """Where what may follow the damaged record at `offset` begins, or the file ends."""
        end = self._end(offset, last_id)
        if end is not None:
            return min(end, self._size)
        found = (c for c in self._candidates(offset + 1) if self._is_start(c, last_id))
        return next(found, self._size)

    def _end(self, offset: int, last_id: int) -> int | None:
        """Where the damaged record at `offset` ends; None when nothing tells."""
        head = self._window.get(offset, HEADER_BYTES)
        if len(head) < HEADER_BYTES or self._search_bytes_left < 0:
            return None
        header = read_header(head)
        end = offset + HEADER_BYTES + header.length_bytes
        possible = 1 <= header.length_bytes <= PAYLOAD_BYTES_MAX
        leads_on = possible and (self._leads_on(end, last_id) or self._holds(offset, header))
        if not leads_on and not self._is_near(header.id, last_id):
            return None
        limit = end if leads_on else self._size
        proven = self._end_of_payload(offset, header, limit, last_id)
        return proven or (end if possible else None)

    def _leads_on(self, end: int, last_id: int) -> bool:
        """Whether what stands at `end` is what may stand behind a record."""
        if end >= self._size:
            return end == self._size
        return self._valid(end, last_id) is not None or not any(self._window.get(end, HEADER_BYTES))

    def _is_near(self, record_id: int, last_id: int) -> bool:
        """Whether an id is one that may well stand here, so that damage hardly made it."""
        named = (first_id_of(self._segment.name) or 1) - 1
        return any(before < record_id <= before + _NEAR_IDS for before in (last_id, named))

    def _is_start(self, offset: int, last_id: int) -> bool:
        return self._search_bytes_left >= 0 and self._valid(offset, last_id) is not None

    def _end_of_payload(self, offset: int, header: Header, limit: int, last_id: int) -> int | None:
        """Where the payload ends if only its length is damaged; None when more is."""
        at = offset + HEADER_BYTES
        crc = checksum(header.id, header.unix_ms, b"")
        starts = (c for c in self._candidates(at + 1, limit) if self._is_start(c, last_id))
        for end in itertools.chain(itertools.islice(starts, _ENDS_MAX), [limit]):
            while at < end:
                piece = self._window.get(at, min(_WINDOW_BYTES, end - at))
                crc = google_crc32c.extend(crc, piece)
                at += len(piece)
                self._search_bytes_left -= len(piece)
            if crc == header.crc:
                return end
        return None

    def _candidates(self, offset: int, limit: int | None = None) -> Iterator[int]:
        limit = self._size if limit is None else limit
        while offset + HEADER_BYTES <= limit:
            block = self._window.get(offset, min(_WINDOW_BYTES, limit - offset))
            if block == bytes(len(block)):
                # A header begins at most so far before the first byte that is not zero.
                data = self._window.next_data(offset + len(block))
                offset = max(data - HEADER_BYTES + 1, offset + 1)
                continue
            for match in _PLAUSIBLE.finditer(block):
                yield offset + match.start()
            # Blocks overlap, so that a header across their border is seen once.
            offset += max(len(block) - HEADER_BYTES + 1, 1)


def scan(file: File, name: str, size_bytes: int, *, last_id: int) -> Segment:
    """Index a segment's file. Memory is that of the index and one record.

    Args:
        file: The open file.
        name: Its name.
        size_bytes: Its size.
        last_id: Records up to this id are not new: they count as damage.

    Raises:
        OSError: The file cannot be read.
    """
    segment = Segment(name, size_bytes)
    _Scanner(file, segment).run(last_id)
    return segment


def is_zeros(file: File, offset: int, size: int) -> bool:
    """Whether a range of a file holds nothing but zeros."""
    end = offset + size
    while (offset := file.next_data(offset)) < end:
        block = file.read(offset, min(_WINDOW_BYTES, end - offset))
        if not block:
            break
        if block != bytes(len(block)):
            return False
        offset += len(block)
    return True
