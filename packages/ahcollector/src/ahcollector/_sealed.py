r"""Sealed lines: JSON lines that show when they were damaged. The format of our small state files.

A line is a JSON object whose first member is ``"crc"``, followed by a line feed::

    {"crc":"89abcdef","op":"ack","ids":["0190…"]}\n

The checksum is the CRC-32 (zlib's), eight lower-case hex digits, of all bytes of the line behind
the comma that follows it, without the line feed. JSON is written without spaces and in UTF-8,
where a line feed in a text is escaped, so one inside a line is always damage.

Reading never fails. A line that is cut, or whose checksum is wrong, is handed back as damaged
bytes; whole lines inside of it (the line feed between two was what broke) are found again by the
text that every line begins with.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = [
    "SealedLines",
    "dump",
    "read_sealed",
    "replace_file",
    "seal",
    "seal_text",
    "set_aside",
    "sync_directory",
]

_HEAD: Final = b'{"crc":"'
_HEAD_BYTES: Final = len(_HEAD) + 8 + 2
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@attrs.frozen(kw_only=True)
class SealedLines:
    """What a file of sealed lines held.

    Attributes:
        records: The objects of the whole lines, in order, without ``crc``.
        damaged: The pieces that are no whole line, in order.
    """

    records: tuple[dict[str, Any], ...]
    damaged: tuple[bytes, ...]


def seal(record: Mapping[str, Any]) -> bytes:
    """Return the line of a record, line feed included.

    Raises:
        ValueError: The record is empty, or holds a number that JSON does not have.
    """
    if not record:
        raise ValueError("a record must not be empty: nothing would follow its checksum")
    return seal_text(dump(record))


def seal_text(record: bytes) -> bytes:
    """Return the line of a record that is JSON already: an object that is not empty, in one line.

    Nobody looks whether it is.
    """
    rest = record[1:]
    return b'%s%08x",%s\n' % (_HEAD, zlib.crc32(rest), rest)


def dump(value: Any) -> bytes:
    """Return JSON in one line. Raises ValueError: it holds a number that JSON does not have."""
    return _ENCODER.encode(value).encode()


def read_sealed(data: bytes) -> SealedLines:
    """Return the records of a file's bytes, and what was damaged."""
    records: list[dict[str, Any]] = []
    damaged: list[bytes] = []
    for line in data.split(b"\n"):
        if not line:
            continue
        record = _unseal(line)
        if record is not None:
            records.append(record)
        else:
            _salvage(line, records, damaged)
    return SealedLines(records=tuple(records), damaged=tuple(damaged))


def _unseal(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(_HEAD) or line[_HEAD_BYTES - 2 : _HEAD_BYTES] != b'",':
        return None
    rest = line[_HEAD_BYTES:]
    if line[len(_HEAD) : _HEAD_BYTES - 2] != b"%08x" % zlib.crc32(rest):
        return None
    try:
        record = json.loads(b"{" + rest)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _salvage(line: bytes, records: list[dict[str, Any]], damaged: list[bytes]) -> None:
    """Split a damaged line where lines begin; keep the whole ones, hand back the others."""
    begin = 0
    while begin < len(line):
        end = line.find(_HEAD, begin + 1)
        end = len(line) if end < 0 else end
        piece = line[begin:end]
        # One byte that was a line feed may still hang on the piece.
        record = _unseal(piece) or _unseal(piece[:-1])
        if record is None:
            damaged.append(piece)
        else:
            records.append(record)
        begin = end


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, chunks: Iterable[bytes]) -> None:
    """Give a file a new content in one step that is durable on return; mode 0600.

    Raises:
        OSError: The old content is still there, whole; or the new one is, and a power cut may bring
            the old one back.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    sync_directory(path.parent)


def set_aside(path: Path, pieces: Iterable[bytes]) -> None:
    """Append damaged pieces, a line each, to the file that keeps them; durable on return."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        file.writelines(piece + b"\n" for piece in pieces)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
