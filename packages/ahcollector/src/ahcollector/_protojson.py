"""JSON Schemas of protobuf messages in protobuf's JSON mapping, made from their descriptors.

A schema says what is written. What is read is more: a 64-bit number may be a number or a text, a
field may have its name in the ``.proto`` file, and unknown fields are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from ahcollector._openapi import Schema, reference

__all__ = ["message_schemas"]

_INT32_MAX: Final = (1 << 31) - 1
_UINT32_MAX: Final = (1 << 32) - 1

_INT32 = frozenset(
    {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32}
)
_UINT32 = frozenset({FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32})
_INT64 = frozenset(
    {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64}
)
_UINT64 = frozenset({FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64})
_FLOAT = frozenset({FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE})


def message_schemas(
    messages: Iterable[Descriptor], docs: dict[str, str] | None = None
) -> dict[str, Schema]:
    """Return the schemas of messages and of all that they hold, by the messages' names.

    Args:
        messages: Descriptors.
        docs: What a message is, or a field: by ``Message`` and ``Message.field_name``.
    """
    docs = docs if docs is not None else {}
    found: dict[str, Schema] = {}
    waiting = list(messages)
    while waiting:
        descriptor = waiting.pop()
        if descriptor.name in found:
            continue
        properties = {}
        repeated = _repeated(descriptor)
        for field in descriptor.fields:
            properties[field.json_name] = _described(
                _field(field, repeated=field.name in repeated),
                docs.get(f"{descriptor.name}.{field.name}"),
            )
            waiting += _messages_of(field)
        found[descriptor.name] = {
            "type": "object",
            "description": docs.get(descriptor.name)
            or f"The message `{descriptor.full_name}` in protobuf's JSON mapping.",
            "properties": properties,
        }
    return dict(sorted(found.items()))


def _described(schema: Schema, doc: str | None) -> Schema:
    return schema if doc is None else {**schema, "description": doc}


def _map_value(field: FieldDescriptor) -> FieldDescriptor | None:
    """Return what a map holds; None: the field is no map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["value"]


def _messages_of(field: FieldDescriptor) -> list[Descriptor]:
    value = _map_value(field)
    message = field.message_type if value is None else value.message_type
    return [] if message is None else [message]


def _repeated(descriptor: Descriptor) -> frozenset[str]:
    # Asked of the message's own description, since the attributes for it differ by version.
    own = DescriptorProto()
    descriptor.CopyToProto(own)
    return frozenset(
        field.name for field in own.field if field.label == FieldDescriptorProto.LABEL_REPEATED
    )


def _field(field: FieldDescriptor, *, repeated: bool) -> Schema:
    value = _map_value(field)
    if value is not None:
        return {"type": "object", "additionalProperties": _single(value)}
    single = _single(field)
    return {"type": "array", "items": single} if repeated else single


def _single(field: FieldDescriptor) -> Schema:
    kind: Any = field.type
    if field.message_type is not None:
        return reference(field.message_type.name)
    if kind in _INT32:
        return {"type": "integer", "minimum": -_INT32_MAX - 1, "maximum": _INT32_MAX}
    if kind in _UINT32:
        return {"type": "integer", "minimum": 0, "maximum": _UINT32_MAX}
    if kind in _INT64:
        return {"type": "string", "pattern": "^-?[0-9]{1,19}$", "format": "int64"}
    if kind in _UINT64:
        return {"type": "string", "pattern": "^[0-9]{1,20}$", "format": "uint64"}
    if kind in _FLOAT:
        return {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
    if kind == FieldDescriptor.TYPE_BOOL:
        return {"type": "boolean"}
    if kind == FieldDescriptor.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    if field.enum_type is not None:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    return {"type": "string"}
