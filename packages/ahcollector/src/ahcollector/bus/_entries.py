"""A batch as bytes, for the buses that leave the process.

An entry is one byte of version, the CRC-32 of what follows (4 bytes), and a zstd frame of::

    received_at_ms  int64
    series          uint32, how many
    pairs           uint32, how many different labels
    labels          uint32, how many labels of all series
    points          uint32, how many
    separator       uint32, a code point that is in no text
    label counts    uint32 each series
    point counts    uint32 each series
    label places    uint32 each label: which pair it is
    stamps          int64 each point, Unix ms
    values          float64 each point
    texts           UTF-8, joined by the separator: company, server, agent, request id, and then
                    name and value of each pair

All numbers are little-endian. Columns let both ways be a few calls for a whole batch instead of
some for each label, and what stands side by side is alike, which zstd likes. Most labels of a batch
are those of its other series: each pair is there once, and is one object when it is read.

A program that meets a version it does not know refuses the entry, which is then a dead letter of
its bus and not lost.
"""

from __future__ import annotations

import sys
import threading
import zlib
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import chain, count, repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception
from typing import Any, Final, TypeVar

from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import BusError
from ahwire.codec import ZstdFrames
from ahwire.errors import WireError

__all__ = ["PLAIN_BYTES_MAX", "decode", "encode", "pack", "seal"]

PLAIN_BYTES_MAX: Final = 64 << 20
"""What an entry may be before it is compressed, in bytes: no entry of junk inflates to more."""

_VERSION: Final = 1
_ENVELOPE: Final = Struct("<BI")
_HEAD: Final = Struct("<qIIIII")
_IDS: Final = 4
# UTF-8 that also takes halves of characters: what a process can hold, its bus can carry.
_CODEC: Final = ("utf-8", "surrogatepass")
# Parts of one size, as the series of most batches are, are cut by one call.
_ALIKE_MAX: Final = 16

T = TypeVar("T")

_SET_LABELS: Final = vars(StoredSeries)["labels"].__set__
_SET_POINTS: Final = vars(StoredSeries)["points"].__set__
_consume: Final = deque[None](maxlen=0).extend


class _Here(threading.local):
    """What one thread keeps from entry to entry: memory to compress in, and nothing of them."""

    def __init__(self) -> None:
        self.frames = ZstdFrames()


_here: Final = _Here()


def encode(batch: SampleBatch) -> bytes:
    """Return a batch as an entry.

    Raises:
        BusError: It cannot be one: a stamp is no int64, a value no number, or it is too large.
    """
    plain = pack(batch)
    if len(plain) > PLAIN_BYTES_MAX:
        raise BusError(
            f"batch {batch.request_id} of server {batch.server_id} has {len(plain)} bytes; an "
            f"entry of the bus has {PLAIN_BYTES_MAX} at most: send it in parts"
        )
    return seal(plain)


def pack(batch: SampleBatch) -> bytes:
    """Return what an entry holds, plain; also when it is too large for one.

    Raises:
        BusError: A stamp is no int64, or a value no number.
    """
    # Gives each pair its place when it is first asked for.
    pairs: defaultdict[tuple[str, str], int] = defaultdict(count().__next__)
    places = [pairs[pair] for one in batch.series for pair in one.labels]
    texts = [batch.company_id, batch.server_id, batch.agent_id, batch.request_id]
    texts += chain.from_iterable(pairs)
    separator, text = _joined(texts)
    points = [point for one in batch.series for point in one.points]
    numbers = (len(batch.series), len(pairs), len(places), len(points))
    try:
        return b"".join(
            (
                _HEAD.pack(batch.received_at_ms, *numbers, separator),
                _bytes("I", [len(one.labels) for one in batch.series]),
                _bytes("I", [len(one.points) for one in batch.series]),
                _bytes("I", places),
                _bytes("q", [stamp for stamp, _ in points]),
                _bytes("d", [value for _, value in points]),
                text,
            )
        )
    except (ValueError, OverflowError, TypeError, StructError) as error:
        raise BusError(
            f"batch {batch.request_id} of server {batch.server_id} cannot be put on the bus "
            f"({error}): stamps are 64-bit integers of milliseconds, values are numbers"
        ) from error


def seal(plain: bytes) -> bytes:
    """Return the entry of what `pack` returned."""
    frame = _here.frames.pack(plain)
    return _ENVELOPE.pack(_VERSION, zlib.crc32(frame)) + frame


def decode(entry: bytes) -> SampleBatch:
    """Return the batch of an entry.

    Raises:
        BusError: The bytes are no entry; the text names what is wrong with them.
    """
    plain = _plain(entry)
    if len(plain) < _HEAD.size:
        raise _unreadable(entry, f"its head has {len(plain)} bytes of {_HEAD.size}")
    received_at_ms, series, pairs, labels, points, separator = _HEAD.unpack_from(plain)
    columns = _Columns(plain)
    if columns.left < 8 * series + 4 * labels + 16 * points:
        raise _unreadable(entry, f"{series} series of {points} points do not fit in it")
    label_counts, point_counts = columns.take("I", series), columns.take("I", series)
    places = columns.take("I", labels)
    stamps, values = columns.take("q", points), columns.take("d", points)
    try:
        found = str(columns.rest(), *_CODEC).split(chr(separator))
    except (UnicodeDecodeError, ValueError, OverflowError) as error:
        raise _unreadable(entry, f"its texts are none ({error})") from error
    if len(found) != _IDS + 2 * pairs:
        raise _unreadable(entry, "its texts and its labels contradict each other")
    if labels != sum(label_counts) or points != sum(point_counts):
        raise _unreadable(entry, "its numbers of labels or points contradict each other")
    company_id, server_id, agent_id, request_id = found[:_IDS]
    table = list(zip(found[_IDS::2], found[_IDS + 1 :: 2], strict=True))
    try:
        of_place = tuple(map(table.__getitem__, places))
    except IndexError as error:
        raise _unreadable(entry, "its texts and its labels contradict each other") from error
    of_point = tuple(zip(stamps, values, strict=True))
    return SampleBatch(
        company_id=company_id,
        server_id=server_id,
        agent_id=agent_id,
        request_id=request_id,
        received_at_ms=received_at_ms,
        series=_stored(_parts(of_place, label_counts), _parts(of_point, point_counts)),
    )


def _parts(whole: tuple[T, ...], counts: list[int]) -> list[tuple[T, ...]]:
    """Return so many of them, one part behind the other."""
    each = counts[0] if counts else 0
    if 0 < each <= _ALIKE_MAX and counts.count(each) == len(counts):
        return list(zip(*repeat(iter(whole), each), strict=True))
    parts: list[tuple[T, ...]] = []
    begin = 0
    for one in counts:
        end = begin + one
        parts.append(whole[begin:end])
        begin = end
    return parts


def _stored(
    labels: list[tuple[tuple[str, str], ...]], points: list[tuple[tuple[int, float], ...]]
) -> tuple[StoredSeries, ...]:
    """Return a series for each pair of labels and points.

    Their slots are filled for all series at once. The constructor, called for each, took a third of
    the time that it takes to read a batch.
    """
    stored = tuple(map(object.__new__, repeat(StoredSeries, len(labels))))
    _consume(map(_SET_LABELS, stored, labels))
    _consume(map(_SET_POINTS, stored, points))
    return stored


def _plain(entry: bytes) -> bytes:
    if len(entry) < _ENVELOPE.size:
        raise _unreadable(entry, "it is shorter than an envelope")
    version, checksum = _ENVELOPE.unpack_from(entry)
    if version != _VERSION:
        raise _unreadable(entry, f"its version is {version}, this program reads {_VERSION}")
    frame = entry[_ENVELOPE.size :]
    if zlib.crc32(frame) != checksum:
        raise _unreadable(entry, "its checksum does not fit: it was damaged")
    try:
        return _here.frames.unpack(frame, PLAIN_BYTES_MAX)
    except WireError as error:
        raise _unreadable(entry, str(error)) from error


def _unreadable(entry: bytes, why: str) -> BusError:
    return BusError(f"an entry of {len(entry)} bytes is no batch: {why}")


def _joined(texts: list[str]) -> tuple[int, bytes]:
    """Return a code point that is in no text, and the texts joined by it."""
    whole = "\x00".join(texts)
    separator = 0
    if whole.count("\x00") >= len(texts):
        # Somebody has it in a text. Of so many code points, most are not in so few characters.
        used = set(whole)
        separator = next(code for code in range(sys.maxunicode + 1) if chr(code) not in used)
        whole = chr(separator).join(texts)
    return separator, whole.encode(*_CODEC)


def _bytes(kind: str, numbers: Iterable[float]) -> bytes:
    return _little(array(kind, numbers)).tobytes()


def _little(column: array[float]) -> array[float]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


class _Columns:
    """The columns of an entry, one behind the other."""

    def __init__(self, plain: bytes) -> None:
        self._plain = plain
        self._at = _HEAD.size

    @property
    def left(self) -> int:
        return len(self._plain) - self._at

    def take(self, kind: str, count: int) -> list[Any]:
        """Return numbers, whole ones unless `kind` is of others."""
        column: array[float] = array(kind)
        end = self._at + count * column.itemsize
        column.frombytes(self._plain[self._at : end])
        self._at = end
        return _little(column).tolist()

    def rest(self) -> bytes:
        return self._plain[self._at :]
