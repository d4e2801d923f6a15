"""How many pieces a message of remote write has, told from its bytes before it is parsed.

A label of nothing is two bytes on the wire and some fifty in memory, so a body of 8 MiB can ask the
parser for 300 MiB. A body of more pieces than a full batch can have is refused unparsed; the walk
ends where there are too many, so it costs no more than the walk over a full batch does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ahwire import BadBodyError, TooLargeError

__all__ = ["check_pieces"]

# What a shorter body can ask for is little: 20 MiB.
_LOOKED_AT_BYTES = 512 << 10

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_FIXED = {_FIXED_64: 8, _FIXED_32: 4}
_VARINT_BYTES_MAX = 10


def check_pieces(body: bytes, *, series_field: int, pieces_max: int) -> None:
    """Return when a body has no more pieces than that, or is short.

    Args:
        body: A message of either version, plain.
        series_field: The number of the field that its series are in.
        pieces_max: How many series, labels, samples, symbols and all else it may have in all.

    Raises:
        TooLargeError: It has more.
        BadBodyError: It is no message.
    """
    if len(body) <= _LOOKED_AT_BYTES:
        return
    pieces = 0
    for field, start, end in _delimited(body, 0, len(body)):
        pieces += 1
        if field == series_field:
            for _ in _delimited(body, start, end):
                pieces += 1
                if pieces > pieces_max:
                    break
        if pieces > pieces_max:
            msg = (
                f"the body has more than {pieces_max} series, labels and samples in all: "
                "send less at once"
            )
            raise TooLargeError(msg)


def _delimited(body: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number, start and end of each field that has a length."""
    while start < end:
        tag, start = _varint(body, start, end)
        kind = tag & 7
        if kind == _DELIMITED:
            length, start = _varint(body, start, end)
            if length > end - start:
                raise _no_message()
            yield tag >> 3, start, start + length
            start += length
        elif kind == _VARINT:
            _, start = _varint(body, start, end)
        elif kind in _FIXED:
            start += _FIXED[kind]
        else:
            # Groups are of an older age than this format; nobody sends them in good faith.
            raise _no_message()


def _varint(body: bytes, start: int, end: int) -> tuple[int, int]:
    """Return a varint and where it ends."""
    number = shift = 0
    for place in range(start, min(end, start + _VARINT_BYTES_MAX)):
        byte = body[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place + 1
        shift += 7
    raise _no_message()


def _no_message() -> BadBodyError:
    return BadBodyError("body is no readable message of remote write: check its encoding")
