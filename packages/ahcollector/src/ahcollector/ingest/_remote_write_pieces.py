"""How many pieces a message of remote write has, told from its bytes before it is parsed.

A label of nothing is two bytes on the wire and some fifty in memory, so a body of 8 MiB can ask the
parser for 300 MiB. A body of more pieces than a full batch can have is refused unparsed.

Each piece begins with one of few bytes, and how often those are in a body is counted in no time. It
is more than the pieces, and for nearly every body few enough; only others are walked through. The
walk ends where there are too many pieces.
"""

from __future__ import annotations

from ahwire import BadBodyError, TooLargeError

__all__ = ["check_pieces"]

# What a shorter body can ask for is little: 20 MiB.
_LOOKED_AT_BYTES = 512 << 10

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_FIXED = {_FIXED_64: 8, _FIXED_32: 4}
_VARINT_BYTES_MAX = 10
# The fields that hold messages or symbols have numbers up to this one. To the parser, though to no
# encoder, a tag may be longer than it needs to be, and then its first byte says that it goes on.
_FIELD_MAX = 5
_FIRST_BYTES = bytes(
    number << 3 | _DELIMITED | longer for number in range(1, _FIELD_MAX + 1) for longer in (0, 0x80)
)


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
    if len(body) - len(body.translate(None, _FIRST_BYTES)) <= pieces_max:
        return
    left = pieces_max
    start, end = 0, len(body)
    while start < end:
        field, piece_start, start = _next(body, start, end)
        left -= field > 0
        if field == series_field:
            while piece_start < start and left >= 0:
                field, _, piece_start = _next(body, piece_start, start)
                left -= field > 0
        if left < 0:
            msg = (
                f"the body has more than {pieces_max} series, labels and samples in all: "
                "send less at once"
            )
            raise TooLargeError(msg)


def _next(body: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Return the next field: its number when it has a length, else 0; its start, and its end."""
    tag = body[start]
    start += 1
    if tag >= 0x80:
        tag, start = _varint(body, start - 1, end)
        if tag < 0x80:
            raise _no_message()  # written at length, as no encoder does: a walk would take longer
    kind = tag & 7
    if kind == _DELIMITED:
        if start >= end:
            raise _no_message()
        length = body[start]
        start += 1
        if length >= 0x80:
            length, start = _varint(body, start - 1, end)
        if length > end - start:
            raise _no_message()
        return tag >> 3, start, start + length
    if kind == _VARINT:
        return 0, start, _varint(body, start, end)[1]
    if kind in _FIXED:
        return 0, start, start + _FIXED[kind]
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
