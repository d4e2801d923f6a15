"""How many messages a body of protobuf has in it, before any is made. Pure.

An empty message is two bytes on the wire and a hundred in memory, so a body of 8 MiB could take
hundreds of MiB by being parsed. This walks over the bytes alone. Whatever the walk cannot follow is
refused: a body that one reader follows and another does not is nobody's honest export. Nor is it
walked over without need: where fewer bytes can begin a message than there may be messages, there
are not too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

__all__ = ["may_hold_over", "messages_in"]

_Fields: TypeAlias = "Mapping[int, _Fields]"
"""By the number of a field that holds messages: the same for these."""

# Kinds of values on the wire, and the bytes of those that always have as many.
_VARINT, _LENGTH = 0, 2
_BYTES: Mapping[int, int] = MappingProxyType({1: 8, 5: 4})
_VARINT_BYTES_MAX = 10


def _fields_of(descriptor: Descriptor, known: dict[str, dict[int, _Fields]]) -> _Fields:
    fields = known.get(descriptor.full_name)
    if fields is None:
        # Noted before it is filled: values are lists of values.
        fields = known[descriptor.full_name] = {}
        for field in descriptor.fields:
            if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
                fields[field.number] = _fields_of(field.message_type, known)
    return fields


def _first_bytes(known: Mapping[str, _Fields]) -> bytes:
    """Return every byte that a tag of a field of messages can begin with."""
    numbers = {number for fields in known.values() for number in fields}
    low = {(number << 3 | _LENGTH) & 0x7F for number in numbers}
    # A tag may also be written longer than it need be.
    return bytes(sorted(low | {byte | 0x80 for byte in low}))


_known: dict[str, dict[int, _Fields]] = {}
_REQUEST: _Fields = MappingProxyType(_fields_of(ExportMetricsServiceRequest.DESCRIPTOR, _known))
_FIRST_BYTES = _first_bytes(_known)


def may_hold_over(body: bytes, most: int) -> bool:
    """Whether an export can have more messages within it than so many: False is certain."""
    return len(body) - len(body.translate(None, _FIRST_BYTES)) > most


def messages_in(body: bytes, most: int) -> int | None:
    """Return how many messages an export has within it, at every depth; None: it cannot be read.

    Args:
        body: An ExportMetricsServiceRequest.
        most: Where to stop counting; what is returned then is above it.
    """
    count = 0
    start, end, fields = 0, len(body), _REQUEST
    outside: list[tuple[int, _Fields]] = []
    while True:
        if start == end:
            if not outside:
                return count
            end, fields = outside.pop()
            continue
        tag, start = _varint(body, start, end)
        if tag & 7 != _LENGTH:
            start = _behind(tag & 7, body, start, end)
            if start > end:
                return None
            continue
        length, start = _varint(body, start, end)
        if start + length > end:
            return None
        within = fields.get(tag >> 3)
        if within is None:
            start += length
            continue
        count += 1
        if count > most:
            return count
        outside.append((end, fields))
        end, fields = start + length, within


def _behind(kind: int, body: bytes, start: int, end: int) -> int:
    """Return where a value without a length ends: past `end` when it is cut or unknown."""
    if kind == _VARINT:
        return _varint(body, start, end)[1]
    # The others are groups, which the third version of protobuf does not have.
    return start + _BYTES[kind] if kind in _BYTES else end + 1


def _varint(body: bytes, start: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends: past `end` when it is cut or has no end."""
    if start < end and body[start] < 0x80:
        return body[start], start + 1  # nearly all are
    value = shift = 0
    for place in range(start, min(end, start + _VARINT_BYTES_MAX)):
        byte = body[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    return 0, end + 1
