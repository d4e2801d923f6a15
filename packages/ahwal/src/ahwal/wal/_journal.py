r"""The file `journal`: what the checkpoint's one number cannot say.

Lines of text, each with the CRC32C of what stands before its last space, in 8 hex digits::

    ack <id> <crc>\n                      the record is done
    put <old> <new> <new> … <crc>\n       these records stand where the old one stood

A line whose CRC does not hold says nothing, and the lines behind it are read all the same. A `put`
is written and synced before its records, whose ids are reserved and contiguous. It holds when each
record it names is valid, done, or replaced by a `put` that holds: then the old one is done. Else
the old one stands, and the new ones are ignored. When the old one is gone anyway, the valid new
ones count.

`ack` lines are written without a sync of their own: they survive the death of the process at once
and a power cut after the next sync. What is acknowledged twice because an `ack` was lost is sent
twice, which is safe. After a swap the old record is acknowledged too, so that damage to a new one
later does not bring it back.

The file is rewritten together with the checkpoint, without the lines that no longer say anything.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import attrs
import google_crc32c

from ahwal.wal._checkpoint import NUMBER_MAX
from ahwal.wal._storage import File, Storage, replace_file, write_all

NAME = "journal"
# A damaged or foreign file is not read past this; ours is rewritten long before.
SIZE_BYTES_MAX = 64 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_LINE = re.compile(rb"((?:ack|put)(?: \d{1,19})+) ([0-9a-fA-F]{8})")


@attrs.frozen
class Put:
    """A replacement: `new` stand where `old` stood."""

    old: int
    new: tuple[int, ...]


@attrs.frozen(kw_only=True)
class Journal:
    """What the file says.

    Attributes:
        acks: Ids that are done.
        puts: Replacements in the order they were made.
        bad_lines: How many lines said nothing.
    """

    acks: frozenset[int]
    puts: tuple[Put, ...]
    bad_lines: int

    @property
    def largest_id(self) -> int:
        """The largest id it names, 0 when it names none."""
        named = (put.new[-1] for put in self.puts)
        return max(max(self.acks, default=0), max(named, default=0))


def encode_ack(record_id: int) -> bytes:
    """The line that says a record is done."""
    return _line(f"ack {record_id}")


def encode_put(put: Put) -> bytes:
    """The line that says a record is replaced."""
    return _line(f"put {put.old} {' '.join(map(str, put.new))}")


def decode(content: Iterable[bytes]) -> Journal:
    """What a file's content, given in pieces, says. Never fails."""
    acks: set[int] = set()
    puts: list[Put] = []
    lines = _Lines(content)
    bad_lines = 0
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or int(match[2], 16) != google_crc32c.value(match[1]):
            bad_lines += 1
            continue
        ids = [int(word) for word in match[1][4:].split()]
        if not all(1 <= record_id <= NUMBER_MAX for record_id in ids):
            bad_lines += 1
        elif line.startswith(b"ack") and len(ids) == 1:
            acks.add(ids[0])
        elif line.startswith(b"put") and len(ids) > 1 and ids == sorted(set(ids)):
            puts.append(Put(ids[0], tuple(ids[1:])))
        else:
            bad_lines += 1
    # What is behind the last newline was never finished.
    bad_lines += bool(lines.rest)
    return Journal(acks=frozenset(acks), puts=tuple(puts), bad_lines=bad_lines)


def pieces(file: File) -> Iterator[bytes]:
    """What is read of a file, in pieces.

    Raises:
        OSError: It cannot be read.
    """
    for offset in range(0, SIZE_BYTES_MAX, _PIECE_BYTES):
        piece = file.read(offset, _PIECE_BYTES)
        if not piece:
            break
        yield piece


class _Lines:
    """The lines of a content that comes in pieces.

    Attributes:
        rest: What is behind the last newline, after the last line.
    """

    def __init__(self, content: Iterable[bytes]) -> None:
        self._content = content
        self.rest = bytearray()

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._content:
            first, *others = piece.split(b"\n")
            self.rest += first
            for other in others:
                yield bytes(self.rest)
                self.rest = bytearray(other)


class JournalFile:
    """The file, opened for adding lines.

    Attributes:
        size_bytes: Its size.
        needed_bytes: What of it was needed when it was last rewritten.
        whole: False after an error that may have left half a line: rewrite it.
    """

    def __init__(self, storage: Storage, size_bytes: int, *, whole: bool) -> None:
        """Take the file as it is; it is created with the first line."""
        self._storage = storage
        self._file: File | None = None
        self._named_safely = False
        self.size_bytes = size_bytes
        self.needed_bytes = 0
        self.whole = whole

    def ack(self, record_ids: Iterable[int]) -> None:
        """Add an acknowledgement for each id, unsynced.

        Raises:
            OSError: It is not known whether they were added.
        """
        self._add(b"".join(map(encode_ack, record_ids)))

    def put(self, put: Put) -> None:
        """Add a replacement and sync it.

        Raises:
            OSError: It is not known whether it was added.
        """
        self._add(encode_put(put))
        assert self._file is not None
        # After a failed sync nobody knows what is there, so it must be rewritten.
        self.whole = False
        self._file.datasync()
        self.whole = True
        if not self._named_safely:
            self._storage.sync_directory()
            self._named_safely = True

    def rewrite(self, acks: Iterable[int], puts: Sequence[Put]) -> None:
        """Replace all lines by these, whole or not at all, and synced.

        Raises:
            OSError: The old lines are still there, or the new ones are and may not be safe.
        """
        content = b"".join([*map(encode_ack, acks), *map(encode_put, puts)])
        if not content and not self.size_bytes:
            return
        self.close()
        self._named_safely = False
        replace_file(self._storage, NAME, content)
        self._named_safely = True
        self.size_bytes = self.needed_bytes = len(content)
        self.whole = True

    def close(self) -> None:
        """Give the descriptor back; the next line opens the file again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _add(self, lines: bytes) -> None:
        if not self.whole:
            raise OSError("the journal may end in half a line and could not be rewritten")
        if self._file is None:
            try:
                self._file = self._storage.open(NAME)
            except FileNotFoundError:
                self._file = self._storage.create(NAME)
        # Until the last byte is there, the next line must not be added behind half a line.
        self.whole = False
        try:
            write_all(self._file, lines)
        except OSError:
            self._file.truncate(self.size_bytes)
            self.whole = True
            raise
        self.whole = True
        self.size_bytes += len(lines)


def _line(text: str) -> bytes:
    return f"{text} {google_crc32c.value(text.encode()):08x}\n".encode()
