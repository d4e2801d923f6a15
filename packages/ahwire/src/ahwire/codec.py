"""Bounded gzip and zstd: what is inflated never passes a limit, whatever the bytes say.

A body has one coding, `gzip` (RFC 1952) or `zstd` (RFC 8878); absent, empty and `identity` mean
none. A gzip body may have several members and a zstd body several frames, one behind the other,
all of them inside one limit; anything else behind the end is refused. Input goes through the
inflater in slices that become little enough, so that a bomb stops at most some 2 MiB past the
limit, and a body of a million empty members costs time in proportion to its length only.
"""

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Protocol

import attrs

from ahwire._zstd_pace import ZstdPace
from ahwire.errors import BadBodyError, TooLargeError, UnsupportedEncodingError

__all__ = [
    "GZIP",
    "ZSTD",
    "Decompressor",
    "ZstdFrames",
    "compress",
    "decompress",
]

GZIP = "gzip"
ZSTD = "zstd"
_IDENTITY = "identity"
_SPOKEN = "gzip, zstd"

_GZIP_WBITS = 31
_GZIP_LEVEL = 6
# What one byte of input can become at most: 258 bytes for 2 bits of deflate.
_GZIP_GAIN = 1032
_OVERSHOOT_BYTES_MAX = 2 << 20
# Keeps small what one call gives, and what is copied behind each of many small members.
_SLICE_BYTES_MAX = 2 << 10
_ZSTD_LEVEL = 3
# Up to here the library makes room for what a frame says that it becomes.
_ZSTD_AT_ONCE_BYTES_MAX = 4 << 20
# The largest window that RFC 8878 asks every decoder to take.
_ZSTD_WINDOW_BYTES_MAX = 8 << 20


_Pace = Callable[[bytes, int, int], int]
"""(chunk, start, room) to the end of the slice that may go in next."""


class _Inflater(Protocol):
    """One gzip member or zstd frame: both libraries speak so."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@attrs.frozen
class _Coding:
    """How one body is inflated: what makes a member's inflater, its error, its pace."""

    begin: Callable[[], _Inflater]
    error: type[Exception]
    pace: _Pace


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
        self._coding = _CODINGS[name]() if name in _CODINGS else None
        self._current: _Inflater | None = None

    def feed(self, chunk: bytes) -> bytes:
        """What the chunk adds to the plain body; often empty.

        Raises:
            TooLargeError: more would come out than the limit allows.
            BadBodyError: the bytes are not of this coding.
        """
        if self._coding is None:
            self._spend(len(chunk))
            return bytes(chunk)
        plain: list[bytes] = []
        start = 0
        while start < len(chunk):
            # Half of what is still allowed bounds how much may go in at once.
            room = max(self._left // 2, _OVERSHOOT_BYTES_MAX)
            end = self._coding.pace(chunk, start, room)
            self._feed_slice(self._coding, chunk[start:end], plain)
            start = end
        return b"".join(plain)

    def finish(self) -> bytes:
        """End the body; returns what was still held back.

        Raises:
            BadBodyError: the body ends before its coding does.
        """
        if self._coding is not None and (self._current is None or not self._current.eof):
            msg = "the compressed body is cut: it ends before its coding does; send it whole"
            raise BadBodyError(msg)
        return b""

    def _feed_slice(self, coding: _Coding, data: bytes, plain: list[bytes]) -> None:
        current = self._current
        while data:
            if current is None or current.eof:
                current = self._current = coding.begin()
            try:
                part = current.decompress(data)
            except coding.error as error:
                msg = f"the compressed body cannot be read ({error}); send it as one whole stream"
                raise BadBodyError(msg) from error
            if part:
                self._spend(len(part))
                plain.append(part)
            data = current.unused_data if current.eof else b""

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            msg = f"the body holds more than {self._plain_bytes_max} bytes; send less at once"
            raise TooLargeError(msg)


class ZstdFrames:
    """Makes and reads zstd frames as `compress` and `decompress` do, with what it keeps meanwhile.

    To make a compressor takes longer than to compress some KiB. It keeps the memory that its
    largest frame took, up to a few MiB. Not for use from several threads at once.
    """

    def __init__(self) -> None:
        """Load the library.

        Raises:
            UnsupportedEncodingError: the extra `ahwire[zstd]` is not installed.
        """
        self._library = _zstandard()
        self._compressor = self._library.ZstdCompressor(level=_ZSTD_LEVEL)
        self._decompressor = self._library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)

    def pack(self, data: bytes) -> bytes:
        """The frame that `compress` makes of any bytes."""
        packed: bytes = self._compressor.compress(data)
        return packed

    def unpack(self, body: bytes, plain_bytes_max: int) -> bytes:
        """The plain bytes of a whole body; what `decompress` returns, and errors as it raises."""
        limit = min(plain_bytes_max, _ZSTD_AT_ONCE_BYTES_MAX)
        try:
            # One frame, which says how many bytes it becomes; a larger number stands for unknown.
            if 0 < self._library.get_frame_parameters(body).content_size <= limit:
                plain: bytes = self._decompressor.decompress(body, allow_extra_data=False)
                return plain
        except self._library.ZstdError:
            pass
        return decompress(body, ZSTD, plain_bytes_max)


def _coding_name(coding: str | None) -> str:
    name = (coding or "").strip().lower() or _IDENTITY
    if name not in {GZIP, ZSTD, _IDENTITY}:
        msg = f"content coding {coding!r:.60} is not spoken; use one of: {_SPOKEN}"
        raise UnsupportedEncodingError(msg)
    return name


def _gzip() -> _Coding:
    return _Coding(lambda: zlib.decompressobj(_GZIP_WBITS), zlib.error, _gzip_pace)


def _gzip_pace(_chunk: bytes, start: int, room: int) -> int:
    return start + min(room // _GZIP_GAIN, _SLICE_BYTES_MAX)


def _zstd() -> _Coding:
    library = _zstandard()
    # One decompressor serves all frames of a body: one each would cost more than the inflating.
    decompressor = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    return _Coding(decompressor.decompressobj, library.ZstdError, ZstdPace().end)


def _zstandard() -> ModuleType:
    """The optional library, imported when the first zstd body comes."""
    try:
        import zstandard  # noqa: PLC0415  # optional, and slow to import
    except ImportError as error:
        msg = "content coding zstd needs the zstandard library; install ahwire[zstd], or use gzip"
        raise UnsupportedEncodingError(msg) from error
    return zstandard


_CODINGS: Mapping[str, Callable[[], _Coding]] = MappingProxyType({GZIP: _gzip, ZSTD: _zstd})
