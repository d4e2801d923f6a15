r"""The file `checkpoint`: everything up to this id is done.

Two lines of text::

    <watermark in decimal>\n
    <CRC32C of the first line, its newline included, in 8 hex digits>\n

The second line may be absent. It is replaced whole: a temporary file is written, synced and
renamed, and the directory synced. A CRC over the number without its newline is accepted too.

A checkpoint is *believed* when it can be read, its CRC holds, and it does not name an id beyond
the largest record present while there are records. One that is not believed acknowledges nothing:
sending twice is safe, losing is not.
"""

import re

import attrs
import google_crc32c

NAME = "checkpoint"
SIZE_BYTES_MAX = 64
# A larger number here or in the journal is unreadable.
NUMBER_MAX = 2**62
_FILE = re.compile(rb"(\d{1,19})(\n(?:([0-9a-fA-F]{8})\n)?)?")


@attrs.frozen(kw_only=True)
class Checkpoint:
    """What the file says.

    Attributes:
        watermark: The number, 0 when there is none to be read.
        readable: Whether it is whole and its CRC holds, or is absent.
    """

    watermark: int
    readable: bool


def encode(watermark: int) -> bytes:
    """The file's content."""
    line = f"{watermark}\n".encode()
    return line + f"{google_crc32c.value(line):08x}\n".encode()


def decode(content: bytes) -> Checkpoint:
    """What a file's content says. Never fails."""
    match = _FILE.fullmatch(content)
    if match is None:
        # Half a number still says which ids were given out already.
        digits = re.match(rb"\d{1,19}", content)
        return Checkpoint(watermark=_in_range(digits[0]) if digits else 0, readable=False)
    number, rest, crc = match.groups()
    watermark = _in_range(number)
    readable = rest is not None and watermark == int(number)
    if crc is not None:
        sums = {google_crc32c.value(number), google_crc32c.value(number + b"\n")}
        readable = readable and int(crc, 16) in sums
    return Checkpoint(watermark=watermark, readable=readable)


def _in_range(number: bytes) -> int:
    value = int(number)
    return value if value <= NUMBER_MAX else 0
