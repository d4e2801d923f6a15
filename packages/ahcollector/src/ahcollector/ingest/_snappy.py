"""Snappy's block format, inflated only when what it declares can be true and is allowed.

A block begins with the length of what it holds, as a varint of at most 32 bits, and one call
inflates it whole. So that length is read and judged here before a byte of it is given room.
"""

from __future__ import annotations

import cramjam

from ahwire import BadBodyError, TooLargeError

__all__ = ["inflate"]

_LENGTH_BYTES_MAX = 5
_LENGTH_MAX = (1 << 32) - 1
# The best that the format can do: a copy of 64 bytes, said in 3.
_GAIN_OUT, _GAIN_IN = 64, 3


def inflate(block: bytes, plain_bytes_max: int) -> bytes:
    """Return what a block holds; nothing is made for more than `plain_bytes_max` bytes.

    Raises:
        TooLargeError: It declares more than `plain_bytes_max`.
        BadBodyError: It is no whole block of snappy's block format.
    """
    declared, start = _declared_length(block)
    if declared > plain_bytes_max:
        msg = f"the body declares {declared} bytes, over {plain_bytes_max}; send less at once"
        raise TooLargeError(msg)
    if declared * _GAIN_IN > (len(block) - start) * _GAIN_OUT:
        msg = (
            f"the body declares {declared} bytes, which its {len(block)} cannot hold: it is cut, "
            "or not in snappy's block format; send it whole"
        )
        raise BadBodyError(msg)
    if not declared:
        if start != len(block):
            msg = "the body declares nothing and goes on; send one block of snappy's block format"
            raise BadBodyError(msg)
        return b""
    plain = bytearray(declared)
    try:
        # It refuses a block that holds more or less than it declares.
        cramjam.snappy.decompress_raw_into(block, plain)
    except cramjam.DecompressionError as error:
        msg = f"the body is no whole block of snappy's block format ({error}); send it whole"
        raise BadBodyError(msg) from error
    return bytes(plain)


def _declared_length(block: bytes) -> tuple[int, int]:
    """Return the length that a block declares, and where its first element begins."""
    length = 0
    for place, byte in enumerate(block[:_LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if length > _LENGTH_MAX:
                break
            return length, place + 1
    msg = "the body does not begin with a length: it is not in snappy's block format; use that"
    raise BadBodyError(msg)
