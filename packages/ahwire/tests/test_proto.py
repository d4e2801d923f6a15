"""The generated messages are those of agent.proto."""

import re
from importlib.resources import files

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ahwire import agent_pb2

MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\s+(repeated )?([\w<>, ]+?) (\w+) = (\d+);", re.MULTILINE)
TYPES = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("string", "double", "int64", "uint64", "uint32", "bool")
}


def _type_name(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is None:
        return TYPES[field.type]
    if message.GetOptions().map_entry:
        key, value = (message.fields_by_name[name] for name in ("key", "value"))
        return f"map<{_type_name(key)}, {_type_name(value)}>"
    return message.name


def _fields(message: Descriptor) -> set[tuple[str, str, int]]:
    return {(_type_name(field), field.name, field.number) for field in message.fields}


def test_generated_module_has_the_schema_of_the_proto_file():
    text = (files("ahwire") / "agent.proto").read_text()
    declared = {
        name: {(kind, field, int(number)) for _, kind, field, number in FIELD.findall(body)}
        for name, body in MESSAGE.findall(text)
    }
    generated = {
        name: _fields(message)
        for name, message in agent_pb2.DESCRIPTOR.message_types_by_name.items()
    }
    assert declared == generated
    assert len(declared) == 13


def test_package_name_is_fixed():
    assert agent_pb2.DESCRIPTOR.package == "accesshub.agent.v1"
