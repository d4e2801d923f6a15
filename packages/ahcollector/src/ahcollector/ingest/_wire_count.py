"""How many pieces a body of protobuf has in it, told from its bytes before it is parsed. Pure.

An empty message is two bytes on the wire and fifty to a hundred in memory, so a body of 8 MiB can
ask a parser for 400 MiB. This walks over the bytes alone, by the descriptor of their message. What
takes more memory than bytes is counted, at every depth: messages, texts of a repeated field, and
numbers of a repeated field that are packed as varints. Of the last several make one piece. Messages
that hold none of these are counted and not walked through.

Whatever the walk cannot follow is refused: a body that one reader follows and another does not is
nobody's honest body. So are tags with more bytes than they need, which no encoder writes. Nor is a
body walked through without need: each piece begins with one of few bytes, how often those are in
the body is counted in no time, and for nearly every body that is few enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import Message

from ahwire import BadBodyError, TooLargeError

__all__ = ["PieceCounter"]

_Plan: TypeAlias = "Mapping[int, _Plan]"
"""By the tag of a field that is counted: what to count within it; nothing for most."""

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED_64: 8, _FIXED_32: 4}
_CONTINUES = 0x80
_VARINT_BYTES_MAX = 10
_TAG_MAX = (1 << 32) - 1
_UNENDED: Final = bytes(range(_CONTINUES, 256))
# As deep as the parser goes.
_DEPTH_MAX = 100
# Fields that a body may have for every two pieces: a label of OpenTelemetry is two and has four, a
# point is one and has more.
_FIELDS_FOR_TWO = 5
_PIECE_BYTES_MIN = 2
_BYTES_AT_ONCE = 64 << 10

_TEXTS = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})
# In memory they have four or eight bytes. Others have as many as on the wire.
_NUMBERS = frozenset(
    {
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT32,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_ENUM,
    }
)
# Marks a field by what it is; both hold nothing to walk through.
_ONE: _Plan = {}
_PACKED: _Plan = {}


class PieceCounter:
    """Counts the pieces of the bodies of one message.

    Args:
        message: Its class.
        numbers_a_piece: How many repeated numbers count as one piece, at least 2.
    """

    def __init__(self, message: type[Message], *, numbers_a_piece: int = 8) -> None:
        assert numbers_a_piece >= _PIECE_BYTES_MIN, "the shortest body would have more pieces"
        plans: dict[str, dict[int, _Plan]] = {}
        # The stubs know two classes of it, of which the one has all that the other has.
        descriptor = cast("Descriptor", message.DESCRIPTOR)
        self._name = descriptor.name
        self._plan = _plan_of(descriptor, plans)
        self._numbers_a_piece = numbers_a_piece
        counted = [(tag, what) for plan in plans.values() for tag, what in plan.items()]
        self._has_numbers = any(what is _PACKED for _, what in counted)
        low = {
            tag if tag < _CONTINUES else tag & 0x7F | _CONTINUES
            for tag, what in counted
            if what is not _PACKED and tag & 7 == _DELIMITED
        }
        # To the parser, though to no encoder, a tag may be longer than it needs to be.
        self._first_bytes = bytes(sorted(low | {byte | _CONTINUES for byte in low}))

    def check(self, body: bytes, *, pieces_max: int) -> None:
        """Return when a body has no more pieces than that.

        Raises:
            TooLargeError: It has more.
            BadBodyError: It may have more, and is no readable message.
        """
        if self.may_hold_over(body, pieces_max):
            self.count(body, pieces_max=pieces_max)

    def may_hold_over(self, body: bytes, pieces_max: int) -> bool:
        """Whether a body can have more pieces than so many: False is certain."""
        if len(body) <= _PIECE_BYTES_MIN * pieces_max:
            return False
        # Bit by bit, for each bit is a copy.
        others = sum(
            len(body[start : start + _BYTES_AT_ONCE].translate(None, self._first_bytes))
            for start in range(0, len(body), _BYTES_AT_ONCE)
        )
        pieces = len(body) - others
        if self._has_numbers:
            # Each has a byte; a part of a piece counts.
            pieces += -(-others // self._numbers_a_piece)
        return pieces > pieces_max

    def count(self, body: bytes, *, pieces_max: int) -> int:
        """Return how many pieces a body has; the walk ends where there are too many.

        Raises:
            TooLargeError: There are more than `pieces_max`, or several times as many fields.
            BadBodyError: It is no readable message.
        """
        each = self._numbers_a_piece
        most = left = pieces_max * each
        fields_left = pieces_max * _FIELDS_FOR_TWO // 2
        start, end, plan = 0, len(body), self._plan
        outside: list[tuple[int, _Plan]] = []
        while True:
            if start == end:
                if not outside:
                    return -((left - most) // each)
                end, plan = outside.pop()
                continue
            tag, start, behind = self._field(body, start, end)
            fields_left -= 1
            what = plan.get(tag)
            if what:
                left -= each
                outside.append((end, plan))
                end, plan = behind, what
            else:
                if what is not None:
                    left -= _numbers_in(body, tag, start, behind) if what is _PACKED else each
                start = behind
            if left < 0 or fields_left < 0:
                raise self._too_many(pieces_max)
            if len(outside) > _DEPTH_MAX:
                raise self._no_message()

    def _field(self, body: bytes, start: int, end: int) -> tuple[int, int, int]:
        """Return the tag of the next field, and where its value begins and ends."""
        tag = body[start]
        start += 1
        if tag >= _CONTINUES:
            tag, start = self._tag(body, start - 1, end)
        kind = tag & 7
        if kind == _DELIMITED:
            if start < end and body[start] < _CONTINUES:
                behind = start + 1 + body[start]
                start += 1
            else:
                length, start = self._varint(body, start, end)
                behind = start + length
        elif kind == _VARINT:
            behind = self._varint(body, start, end)[1]
        elif kind in _FIXED:
            behind = start + _FIXED[kind]
        else:
            # Groups are of an older age than these messages; nobody sends them in good faith.
            raise self._no_message()
        if behind > end:
            raise self._no_message()
        return tag, start, behind

    def _tag(self, body: bytes, start: int, end: int) -> tuple[int, int]:
        tag, behind = self._varint(body, start, end)
        if tag >> 7 * (behind - start - 1) == 0 or tag > _TAG_MAX:
            raise self._no_message()  # the parser could take it for another
        return tag, behind

    def _varint(self, body: bytes, start: int, end: int) -> tuple[int, int]:
        """Return a number and where it ends."""
        number = shift = 0
        for place in range(start, min(end, start + _VARINT_BYTES_MAX)):
            byte = body[place]
            number |= (byte & 0x7F) << shift
            if byte < _CONTINUES:
                return number, place + 1
            shift += 7
        raise self._no_message()

    def _too_many(self, pieces_max: int) -> TooLargeError:
        return TooLargeError(
            f"the body has more in it than {pieces_max} messages, series, labels, points and texts"
            " in all: send less at once"
        )

    def _no_message(self) -> BadBodyError:
        return BadBodyError(f"body is no readable {self._name} in protobuf: check its encoding")


def _numbers_in(body: bytes, tag: int, start: int, end: int) -> int:
    """Return how many numbers a field has: one, or as many as end in what is packed."""
    if tag & 7 != _DELIMITED:
        return 1
    return len(body[start:end].translate(None, _UNENDED))


def _plan_of(descriptor: Descriptor, plans: dict[str, dict[int, _Plan]]) -> _Plan:
    plan = plans.get(descriptor.full_name)
    if plan is None:
        # Noted before it is filled: a message may hold itself.
        plan = plans[descriptor.full_name] = {}
        repeated = _repeated(descriptor)
        for field in descriptor.fields:
            delimited = field.number << 3 | _DELIMITED
            if field.message_type is not None:
                within = _plan_of(field.message_type, plans)
                plan[delimited] = within if _has_counted(field.message_type) else _ONE
            elif field.number in repeated and field.type in _TEXTS:
                plan[delimited] = _ONE
            elif field.number in repeated and field.type in _NUMBERS:
                plan[delimited] = plan[field.number << 3 | _VARINT] = _PACKED
    return plan


def _has_counted(descriptor: Descriptor) -> bool:
    repeated = _repeated(descriptor)
    return any(
        field.message_type is not None
        or (field.number in repeated and field.type in _TEXTS | _NUMBERS)
        for field in descriptor.fields
    )


def _repeated(descriptor: Descriptor) -> frozenset[int]:
    # Asked of the message's own description, since the attributes for it differ by version.
    own = DescriptorProto()
    descriptor.CopyToProto(own)
    return frozenset(
        field.number for field in own.field if field.label == FieldDescriptorProto.LABEL_REPEATED
    )
