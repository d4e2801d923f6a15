"""Bounded gzip and zstd: what is inflated never passes a limit, whatever the bytes say.

A body has one coding, `gzip` (RFC 1952) or `zstd` (RFC 8878); absent, empty and `identity` mean
none. A gzip body may have several members and a zstd body several frames, one behind the other,
all of them inside one limit; anything else behind the end is refused. Input goes through the
inflater in small slices, so that a bomb stops at most 2 MiB past the limit, and a body of a
million empty members costs time in proportion to its length only.
"""

import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Protocol

from ahwire.errors import BadBodyError, TooLargeError, UnsupportedEncodingError

__all__ = [
    "GZIP",
    "ZSTD",
    "Decompressor",
    "compress",
    "decompress",
]

GZIP = "gzip"
ZSTD = "zstd"
_IDENTITY = "identity"
_SPOKEN = "gzip, zstd"

_GZIP_WBITS = 31
_GZIP_LEVEL = 6
# Deflate gives at most 1,032 times what it takes: 2 KiB give about 2 MiB.
_GZIP_SLICE_BYTES = 2048
# A zstd block takes at least 4 bytes and gives at most 128 KiB: 64 bytes give at most 2 MiB.
_ZSTD_SLICE_BYTES = 64
_ZSTD_LEVEL = 3
# The largest window that RFC 8878 asks every decoder to take.
_ZSTD_WINDOW_BYTES_MAX = 8 << 20


class _Inflater(Protocol):
    """One gzip member or zstd frame: both libraries speak so."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def compress(data: bytes, coding: str = GZIP) -> bytes:
    """The bytes in a coding; equal bytes give equal results (no time stamp goes in).

    Args:
        data: any bytes.
        coding: `gzip`, `zstd`, or `identity` (nothing is done).

    Raises:
        UnsupportedEncodingError: another coding, or zstd without the extra `ahwire[zstd]`.
    """
    name = _coding_name(coding)
    if name == _IDENTITY:
        return data
    if name == ZSTD:
        packed: bytes = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
        return packed
    deflater = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)
    return deflater.compress(data) + deflater.flush()


def decompress(data: bytes, coding: str | None, plain_bytes_max: int) -> bytes:
    """The plain bytes of a whole body; errors as of `Decompressor`."""
    inflater = Decompressor(coding, plain_bytes_max)
    return inflater.feed(data) + inflater.finish()


class Decompressor:
    """Inflates one body as its chunks arrive.

    After an error the object is of no further use. Not for use from several threads at once.
    """

    def __init__(self, coding: str | None, plain_bytes_max: int) -> None:
        """Begin a body.

        Args:
            coding: value of Content-Encoding, in any case; None, empty or `identity` for none.
            plain_bytes_max: how many bytes may come out in all.

        Raises:
            UnsupportedEncodingError: a coding (or a list of codings) that is not spoken here.
        """
        name = _coding_name(coding)
        self._left = plain_bytes_max
        self._plain_bytes_max = plain_bytes_max
        self._errors: tuple[type[Exception], ...] = (zlib.error,)
        self._slice_bytes = _GZIP_SLICE_BYTES
        self._begin: Callable[[], _Inflater] | None = None
        if name == GZIP:
            self._begin = _begin_gzip
        elif name == ZSTD:
            self._begin = _begin_zstd
            self._slice_bytes = _ZSTD_SLICE_BYTES
            self._errors = (_zstandard().ZstdError,)
        self._current = self._begin() if self._begin else None

    def feed(self, chunk: bytes) -> bytes:
        """What the chunk adds to the plain body; often empty.

        Raises:
            TooLargeError: more would come out than the limit allows.
            BadBodyError: the bytes are not of this coding.
        """
        if self._begin is None:
            self._spend(len(chunk))
            return bytes(chunk)
        view = memoryview(chunk)
        plain = bytearray()
        for start in range(0, len(view), self._slice_bytes):
            plain += self._feed_slice(bytes(view[start : start + self._slice_bytes]))
        return bytes(plain)

    def finish(self) -> bytes:
        """End the body; returns what was still held back.

        Raises:
            BadBodyError: the body ends before its coding does.
        """
        if self._current is not None and not self._current.eof:
            msg = "the compressed body is cut: it ends before its coding does; send it whole"
            raise BadBodyError(msg)
        return b""

    def _feed_slice(self, data: bytes) -> bytes:
        assert self._begin is not None
        assert self._current is not None
        plain = b""
        while data:
            if self._current.eof:
                self._current = self._begin()
            try:
                part = self._current.decompress(data)
            except self._errors as error:
                msg = f"the compressed body cannot be read ({error}); send it as one whole stream"
                raise BadBodyError(msg) from error
            self._spend(len(part))
            plain += part
            data = self._current.unused_data if self._current.eof else b""
        return plain

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            msg = f"the body holds more than {self._plain_bytes_max} bytes; send less at once"
            raise TooLargeError(msg)


def _coding_name(coding: str | None) -> str:
    name = (coding or "").strip().lower() or _IDENTITY
    if name not in {GZIP, ZSTD, _IDENTITY}:
        msg = f"content coding {coding!r:.60} is not spoken; use one of: {_SPOKEN}"
        raise UnsupportedEncodingError(msg)
    return name


def _begin_gzip() -> _Inflater:
    return zlib.decompressobj(_GZIP_WBITS)


def _begin_zstd() -> _Inflater:
    decompressor = _zstandard().ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    inflater: _Inflater = decompressor.decompressobj()
    return inflater


def _zstandard() -> ModuleType:
    """The optional library, imported when the first zstd body comes."""
    try:
        import zstandard  # noqa: PLC0415  # optional, and slow to import
    except ImportError as error:
        msg = "content coding zstd needs the zstandard library; install ahwire[zstd], or use gzip"
        raise UnsupportedEncodingError(msg) from error
    return zstandard
