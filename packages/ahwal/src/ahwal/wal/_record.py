"""The record, format 1.

A segment file is records one after another, nothing before, between or behind them. A record is a
header of 24 bytes and a payload, all numbers little-endian::

    offset  size  field
    0       4     length    u32, bytes of the payload, 1 to 16 MiB
    4       4     crc32c    u32, Castagnoli, over everything behind it: id, time, payload
    8       8     id        u64, from 1, increasing within the whole WAL
    16      8     unix_ms   i64, when it was appended
    24      …     payload   a raw deflate stream (RFC 1951, no zlib or gzip wrapper) of the data

The length is not covered by the CRC, but it decides which bytes are, so a wrong length fails the
CRC like any other damage. A length of zero ends a segment: it is what a hole or a zero-filled tail
looks like, and raw deflate of nothing is not empty.
"""

import struct
import zlib
from importlib.util import find_spec

import attrs
import google_crc32c

from ahwal.errors import EntryTooLargeError
from ahwal.queue.base import require_bytes

HEADER_BYTES = 24
PAYLOAD_BYTES_MAX = 16 * 1024 * 1024
# Bounds what a small damaged or hostile payload can inflate to.
DATA_BYTES_MAX = 64 * 1024 * 1024
# Larger ids are never given out, so one that is found is damage. It is far above what checkpoint
# and journal may name, so that what is appended after the largest they may name can be read again.
ID_MAX = 2**63 - 1
UNIX_MS_MAX = 2**63 - 1

_HEADER = struct.Struct("<IIQq")
_LENGTH_AND_CRC = struct.Struct("<II")
_COVERED = struct.Struct("<Qq")
_DEFLATE_LEVEL = 1
if find_spec("isal") is not None:
    # The extra `fast`: the same format, as small, in two thirds of the time.
    from isal.isal_zlib import compress
else:
    from zlib import compress


@attrs.frozen(kw_only=True)
class Header:
    """The first 24 bytes of a record, as found: nothing is checked yet.

    Attributes:
        length_bytes: Of the payload.
        crc: Over id, time and payload.
        id: The record's id.
        unix_ms: When it was appended, Unix milliseconds.
    """

    length_bytes: int
    crc: int
    id: int
    unix_ms: int

    def holds(self, payload: bytes) -> bool:
        """Whether the CRC is that of this header and payload."""
        return checksum(self.id, self.unix_ms, payload) == self.crc


def checksum(record_id: int, unix_ms: int, payload: bytes) -> int:
    """The CRC32C of what stands behind the CRC in a record."""
    crc: int = google_crc32c.value(_COVERED.pack(record_id, unix_ms))
    return int(google_crc32c.extend(crc, payload))


def read_header(buffer: bytes, offset: int = 0) -> Header:
    """The header at `offset`, where at least 24 bytes must stand."""
    length, crc, record_id, unix_ms = _HEADER.unpack_from(buffer, offset)
    return Header(length_bytes=length, crc=crc, id=record_id, unix_ms=unix_ms)


def encode(record_id: int, unix_ms: int, payload: bytes) -> bytes:
    """The bytes of one record."""
    covered = _COVERED.pack(record_id, unix_ms)
    crc = google_crc32c.extend(google_crc32c.value(covered), payload)
    return _LENGTH_AND_CRC.pack(len(payload), crc) + covered + payload


def deflate(data: bytes) -> bytes:
    """The payload for `data`.

    Raises:
        EntryTooLargeError: The data is over 64 MiB, or the payload over 16 MiB.
        TypeError: The data is no bytes-like object.
    """
    require_bytes(data)
    if len(data) > DATA_BYTES_MAX:
        raise EntryTooLargeError(
            f"an entry of {len(data)} bytes is over the limit of {DATA_BYTES_MAX}: split it",
            size_bytes=len(data),
            size_bytes_max=DATA_BYTES_MAX,
        )
    payload = compress(data, level=_DEFLATE_LEVEL, wbits=-zlib.MAX_WBITS)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise EntryTooLargeError(
            f"an entry is {len(payload)} bytes when deflated, over the limit of "
            f"{PAYLOAD_BYTES_MAX}: split it",
            size_bytes=len(payload),
            size_bytes_max=PAYLOAD_BYTES_MAX,
        )
    return payload


def inflate(payload: bytes) -> bytes | None:
    """The data of a payload, None when it is not one whole deflate stream within the limit."""
    stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    try:
        data = stream.decompress(payload, DATA_BYTES_MAX + 1)
    except zlib.error:
        return None
    if len(data) > DATA_BYTES_MAX or not stream.eof or stream.unused_data:
        return None
    return data
