"""The generated messages are those of the schemas."""

import re
import struct
from importlib.resources import files

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ahwire import agent_pb2, remote_write_pb2
from ahwire.remote_write_pb2 import Request, WriteRequest

MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\s+(repeated )?([\w<>, ]+?) (\w+) = (\d+);", re.MULTILINE)
TYPES = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("string", "double", "int64", "uint64", "uint32", "int32", "bool")
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


@pytest.mark.parametrize(
    ("schema", "module", "messages"),
    [("agent.proto", agent_pb2, 13), ("remote_write.proto", remote_write_pb2, 10)],
)
def test_generated_module_has_the_schema_of_the_proto_file(schema, module, messages):
    text = (files("ahwire") / schema).read_text()
    declared = {
        name: {(kind, field, int(number)) for _, kind, field, number in FIELD.findall(body)}
        for name, body in MESSAGE.findall(text)
    }
    generated = {
        name: _fields(message) for name, message in module.DESCRIPTOR.message_types_by_name.items()
    }
    assert declared == generated
    assert len(declared) == messages


def test_package_names_are_fixed():
    assert agent_pb2.DESCRIPTOR.package == "accesshub.agent.v1"
    assert remote_write_pb2.DESCRIPTOR.package == "accesshub.remote_write"


# Bytes made by hand from the public specifications of remote write, and not by our module.


def chunk(number, payload):
    """A field of length-delimited type; numbers and lengths under 16 and 128."""
    return bytes([number << 3 | 2, len(payload)]) + payload


STAMP = 1_781_518_830_000
VARINT = bytes.fromhex("b093b0d6ec33")
SAMPLE = b"\x09" + struct.pack("<d", 1.5) + b"\x10" + VARINT


def test_remote_write_1_reads_what_its_specification_says():
    label = chunk(1, b"__name__") + chunk(2, b"up")
    exemplar = chunk(1, label) + b"\x11" + bytes(8) + b"\x18\x05"
    histogram = b"\x08\x03" + b"\x19" + bytes(8) + b"\x78\x06"
    series = chunk(1, label) + chunk(2, SAMPLE) + chunk(3, exemplar) + chunk(4, histogram)
    metadata = b"\x08\x02" + chunk(2, b"up") + chunk(4, b"help") + chunk(5, b"s")
    found = WriteRequest.FromString(chunk(1, series) + chunk(3, metadata))
    (one,) = found.timeseries
    assert [(each.name, each.value) for each in one.labels] == [("__name__", "up")]
    assert [(each.timestamp, each.value) for each in one.samples] == [(STAMP, 1.5)]
    assert [each.timestamp for each in one.exemplars] == [5]
    assert [each.timestamp for each in one.histograms] == [6]
    (about,) = found.metadata
    assert (about.type, about.metric_family_name, about.help, about.unit) == (2, "up", "help", "s")
    assert not Request.FromString(chunk(1, series)).timeseries


def test_remote_write_2_reads_what_its_specification_says():
    exemplar = chunk(1, b"\x01\x02") + b"\x11" + bytes(8) + b"\x18\x05"
    histogram = b"\x08\x03" + b"\x78\x06"
    metadata = b"\x08\x01\x18\x03\x20\x04"
    series = (
        chunk(1, b"\x01\x02")  # packed
        + chunk(2, SAMPLE)
        + chunk(3, histogram)
        + chunk(4, exemplar)
        + chunk(5, metadata)
        + b"\x30\x07"
    )
    symbols = b"".join(chunk(4, text) for text in (b"", b"__name__", b"up", b"help", b"s"))
    found = Request.FromString(symbols + chunk(5, series))
    assert list(found.symbols) == ["", "__name__", "up", "help", "s"]
    (one,) = found.timeseries
    assert list(one.labels_refs) == [1, 2]
    assert [(each.timestamp, each.value) for each in one.samples] == [(STAMP, 1.5)]
    assert [each.timestamp for each in one.exemplars] == [5]
    assert [each.timestamp for each in one.histograms] == [6]
    assert (one.metadata.type, one.metadata.help_ref, one.metadata.unit_ref) == (1, 3, 4)
    assert one.created_timestamp == 7
    assert not WriteRequest.FromString(symbols + chunk(5, series)).timeseries
