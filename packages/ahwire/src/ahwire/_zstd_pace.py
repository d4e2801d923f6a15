"""How much of a zstd body may be inflated at once.

The library gives all that a piece of input becomes, and four bytes may become 128 KiB. To cut the
input blindly into pieces that stay harmless at that rate costs more than the inflating of an
honest body. But a body says itself where its blocks end (RFC 8878):

```
frame       28 b5 2f fd, descriptor, rest of the header, blocks, checksum of 4 bytes if announced
block       3 bytes, little-endian: last (1 bit), kind (2), size (21); then
            kind 0: size bytes as they are; 1: one byte, repeated; 2: size bytes, compressed
skippable   5x 2a 4d 18, size (4 bytes, little-endian), size bytes
```

and a block never becomes more than 128 KiB, or its size when it is of kind 0 or 1. So a pace reads
along and counts what could come out. What it does not understand, and a body of very many tiny
parts, it cuts blindly from there on: that is slower, and no less safe. Whether the bytes are any
good is the library's to say.
"""

from collections.abc import Callable

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
_SKIPPABLE_FIRST = range(0x50, 0x60)
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_CHECKSUM_BYTES = 4
_RAW, _REPEATED, _COMPRESSED = 0, 1, 2
_BLOCK_BYTES_MAX = 128 << 10
# The smallest block that becomes the most: a header, and a byte.
_GAIN = _BLOCK_BYTES_MAX // 4
_BLIND_BYTES_MAX = 2 << 10
_TINY_BYTES = 64
_TINY_PARTS_MAX = 256


class ZstdPace:
    """Follows one body from its beginning."""

    def __init__(self) -> None:
        """Begin before the first frame."""
        self._head = b""
        self._head_bytes = len(_MAGIC)
        self._read: Callable[[bytes], None] = self._read_magic
        self._left = 0  # bytes of the part that we are in
        self._gain = 0  # what that part may become
        self._has_checksum = False
        self._tiny_parts = 0

    def end(self, chunk: bytes, start: int, room: int) -> int:
        """Where to cut, so that chunk[start:end] becomes at most `room` bytes, and one block.

        Frames end where a cut is, so that nothing is left over behind one.
        """
        position, size, is_frame_over = start, len(chunk), False
        while position < size and not is_frame_over:
            if self._tiny_parts > _TINY_PARTS_MAX:
                blind = min(max(room // _GAIN, 1), _BLIND_BYTES_MAX)
                return position if position > start else min(start + blind, size)
            if self._left:
                if self._gain > room and position > start:
                    break
                room -= self._gain
                step = min(self._left, size - position)
                self._left -= step
            else:
                step = min(self._head_bytes - len(self._head), size - position)
                self._head += chunk[position : position + step]
                if len(self._head) == self._head_bytes:
                    head, self._head = self._head, b""
                    self._read(head)
            position += step
            is_frame_over = self._read == self._read_magic and not (self._left or self._head)
        return position

    def _expect(self, head_bytes: int, read: Callable[[bytes], None]) -> None:
        self._head_bytes, self._read = head_bytes, read

    def _pass(self, count: int, gain: int) -> None:
        self._left, self._gain = count, gain
        if count < _TINY_BYTES:
            self._tiny_parts += 1

    def _give_up(self) -> None:
        self._tiny_parts = _TINY_PARTS_MAX + 1

    def _read_magic(self, head: bytes) -> None:
        if head == _MAGIC:
            self._expect(1, self._read_descriptor)
        elif head[0] in _SKIPPABLE_FIRST and head[1:] == _SKIPPABLE:
            self._expect(4, self._read_skippable)
        else:
            self._give_up()

    def _read_skippable(self, head: bytes) -> None:
        self._pass(int.from_bytes(head, "little"), 0)
        self._expect(len(_MAGIC), self._read_magic)

    def _read_descriptor(self, head: bytes) -> None:
        (descriptor,) = head
        is_single_segment = descriptor >> 5 & 1
        content_size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or is_single_segment
        window_bytes = 1 - is_single_segment
        self._has_checksum = bool(descriptor >> 2 & 1)
        self._pass(window_bytes + _DICTIONARY_ID_BYTES[descriptor & 3] + content_size_bytes, 0)
        self._expect(3, self._read_block)

    def _read_block(self, head: bytes) -> None:
        bits = int.from_bytes(head, "little")
        is_last, kind, size = bits & 1, bits >> 1 & 3, bits >> 3
        if kind > _COMPRESSED:
            self._give_up()
            return
        content = 1 if kind == _REPEATED else size
        gain = _BLOCK_BYTES_MAX if kind == _COMPRESSED else size
        if is_last:
            content += _CHECKSUM_BYTES * self._has_checksum
            self._expect(len(_MAGIC), self._read_magic)
        self._pass(content, gain)
