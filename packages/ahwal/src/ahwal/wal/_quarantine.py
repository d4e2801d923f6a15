"""The folder `quarantine`: what was given up on and may still be wanted.

Two kinds of file::

    <id, 16 hex digits>.seg                    one record, as in a segment: an entry set aside
    <first id>-<offset, 8 hex digits>.bad      bytes of a segment in which nothing valid was found

The folder holds at most a tenth of the WAL's limit, a file counted as the whole blocks of 4 KiB
that it takes on a disk: small entries are many files. For a new entry the oldest damaged pieces go
first, then the oldest entries; a damaged piece never drives out an entry. What goes is counted.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Final

from ahwal.wal._record import HEADER_BYTES, PAYLOAD_BYTES_MAX
from ahwal.wal._segment import first_id_of, segment_name
from ahwal.wal._storage import File, Storage, read_whole, write_all

FOLDER: Final = "quarantine"
_OURS = re.compile(r"[0-9a-f]{16}(\.seg|-[0-9a-f]{8,}\.bad)")
_PIECE_BYTES = 256 * 1024
_BLOCK_BYTES = 4096
# A folder for less than so many blocks counts in smaller ones, or it could hold nothing.
_FILES_MIN = 16
_ENTRY: Final = ".seg"
_DAMAGE: Final = ".bad"


class Quarantine:
    """The folder and what is in it.

    Attributes:
        bytes: What all files take, in whole blocks.
        entries: How many entries are set aside.
        lost: How many entries were driven out or did not fit, since it was opened.
    """

    def __init__(self, storage: Storage, bytes_max: int) -> None:
        """Look at the folder, which need not exist.

        Raises:
            OSError: It cannot be read.
        """
        self._storage = storage
        self._bytes_max = bytes_max
        self._block_bytes = min(_BLOCK_BYTES, max(1, bytes_max // _FILES_MIN))
        self._sizes: dict[str, int] = {}
        # In order, oldest first, because the oldest goes for each new one when the folder is full.
        self._names: dict[str, list[str]] = {_ENTRY: [], _DAMAGE: []}
        self._ready = False
        self.bytes = 0
        self.lost = 0
        for name in sorted(storage.list(FOLDER)):
            size = storage.size(f"{FOLDER}/{name}") if _OURS.fullmatch(name) else None
            if size is not None:
                self._count(name, size)

    @property
    def entries(self) -> int:
        """How many entries are set aside."""
        return len(self._names[_ENTRY])

    def shrink(self) -> None:
        """Give up the oldest entries while the entries alone are more than the folder may hold.

        Raises:
            OSError: One could not be taken away.
        """
        held = sum(self._sizes[name] for name in self._names[_ENTRY])
        while held > self._bytes_max:
            name = self._names[_ENTRY][0]
            held -= self._sizes[name]
            self._drop(name)
            self.lost += 1

    @property
    def entry_ids(self) -> list[int]:
        """The ids of the entries set aside, in order."""
        ids = (first_id_of(name) for name in self._names[_ENTRY])
        return [entry_id for entry_id in ids if entry_id is not None]

    def keep_entry(self, entry_id: int, record: bytes) -> bool:
        """Set a record aside; False when it is larger than the folder may be.

        Raises:
            OSError: It could not be written.
        """
        if not self._make_room(len(record), damaged_only=False):
            self.lost += 1
            return False
        self._write(segment_name(entry_id), [record])
        return True

    def keep_damage(self, segment: str, file: File, offset: int, size: int) -> bool:
        """Set a range of a segment's file aside; False when there is no room.

        Raises:
            OSError: It could not be read or written.
        """
        if not self._make_room(size, damaged_only=True):
            return False
        self._write(damage_name(segment, offset), _pieces(file, offset, size))
        return True

    def take_file(self, segment: str, size: int) -> None:
        """Move a whole file of the WAL here, whatever it is and whatever room there is.

        Raises:
            OSError: It could not be moved.
        """
        self._prepare()
        name = damage_name(segment, 0)
        self._storage.rename(segment, f"{FOLDER}/{name}")
        self._count(name, size)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes fit without driving anything out."""
        return self.bytes + self._on_disk(size) <= self._bytes_max

    def read(self, entry_id: int) -> bytes | None:
        """A record set aside, as it is in its file; None when there is none of that id.

        Raises:
            OSError: It cannot be read.
        """
        name = segment_name(entry_id)
        if name not in self._sizes:
            return None
        return read_whole(self._storage, f"{FOLDER}/{name}", HEADER_BYTES + PAYLOAD_BYTES_MAX)

    def forget(self, entry_id: int) -> None:
        """Take an entry away for good.

        Raises:
            OSError: It is still there.
        """
        self._drop(segment_name(entry_id))

    def _make_room(self, size: int, *, damaged_only: bool) -> bool:
        if self._on_disk(size) > self._bytes_max:
            return False
        for kind in (_DAMAGE,) if damaged_only else (_DAMAGE, _ENTRY):
            while self._names[kind] and not self.has_room(size):
                self._drop(self._names[kind][0])
                self.lost += kind == _ENTRY
        return self.has_room(size)

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        self._prepare()
        path = f"{FOLDER}/{name}"
        if name in self._sizes:
            self._drop(name)
        file = self._storage.create(path)
        size = 0
        try:
            for piece in pieces:
                write_all(file, piece)
                size += len(piece)
            file.datasync()
        except OSError:
            # Half a record is worth nothing and would take the room of whole ones.
            self._storage.unlink(path)
            raise
        finally:
            file.close()
        self._count(name, size)
        self._storage.sync_directory(FOLDER)

    def _prepare(self) -> None:
        if not self._ready:
            self._storage.make_folder(FOLDER)
            self._storage.sync_directory()
            self._ready = True

    def _on_disk(self, size: int) -> int:
        return max(1, -(-size // self._block_bytes)) * self._block_bytes

    def _count(self, name: str, size: int) -> None:
        if name not in self._sizes:
            insort(self._names[name[-4:]], name)
        size = self._on_disk(size)
        self.bytes += size - self._sizes.get(name, 0)
        self._sizes[name] = size

    def _drop(self, name: str) -> None:
        self._storage.unlink(f"{FOLDER}/{name}")
        self.bytes -= self._sizes.pop(name)
        names = self._names[name[-4:]]
        del names[bisect_left(names, name)]


def damage_name(segment: str, offset: int) -> str:
    """The name under which a range of a segment is set aside."""
    return f"{segment.removesuffix('.seg')}-{offset:08x}.bad"


def _pieces(file: File, offset: int, size: int) -> Iterator[bytes]:
    end = offset + size
    while offset < end:
        piece = file.read(offset, min(_PIECE_BYTES, end - offset))
        if not piece:
            return
        yield piece
        offset += len(piece)
