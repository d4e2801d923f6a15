"""Finding the records in a segment, whatever has happened to the file.

Records are read one after another as long as they hold. Where one does not, the bytes behind it are
searched, one by one, for the next place where a header and its CRC hold with a higher id: a
damaged length says nothing about where the next record begins, and neither does the length of a
record whose CRC failed, since it may be the length that is damaged. What lies between is damage.
A file that ends inside a record, or in zeros, has damage at its end: a torn tail.
"""

import re
from collections.abc import Iterator

from ahwal.wal._record import HEADER_BYTES, ID_MAX, PAYLOAD_BYTES_MAX, Header, read_header
from ahwal.wal._segment import Segment
from ahwal.wal._storage import File

_WINDOW_BYTES = 256 * 1024
# A file made to look like headers everywhere would cost the square of its size to search: so many
# times its size is looked at, and the rest counts as damage.
_SEARCH_FACTOR = 64
_SEARCH_BYTES_MIN = 64 * 1024 * 1024
# Where a header can begin: a length that is not zero and not over 16 MiB, an id that is not zero
# and not over 2**62. In random bytes one place in 500 passes, in zeros none.
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
            self._block = self._file.read(offset, wanted)
            self._start, begin = offset, 0
        return self._block[begin : begin + size]


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
                found = self._search(offset + 1, last_id)
                end = self._size if found is None else found
                self._segment.damage.append((offset, end - offset))
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
        # Refused by what the file can hold before anything of that length is read.
        room = self._size - offset - HEADER_BYTES
        if not 1 <= header.length_bytes <= min(room, PAYLOAD_BYTES_MAX):
            return None
        if not last_id < header.id <= ID_MAX:
            return None
        payload = self._window.get(offset + HEADER_BYTES, header.length_bytes)
        self._search_bytes_left -= len(payload)
        return header if header.holds(payload) else None

    def _search(self, offset: int, last_id: int) -> int | None:
        for candidate in self._candidates(offset):
            if self._search_bytes_left < 0:
                return None
            if self._valid(candidate, last_id) is not None:
                return candidate
        return None

    def _candidates(self, offset: int) -> Iterator[int]:
        while offset + HEADER_BYTES <= self._size:
            block = self._window.get(offset, _WINDOW_BYTES)
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
    while offset < end:
        block = file.read(offset, min(_WINDOW_BYTES, end - offset))
        if not block:
            break
        if block.count(0) != len(block):
            return False
        offset += len(block)
    return True
