"""C1: what a body has in it is counted as the parser finds it, and never as less."""

import pytest
from any_messages import is_repeated, messages
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_floods import field

from ahcollector.ingest._wire_count import PieceCounter
from ahwire import BadBodyError, TooLargeError
from ahwire.agent_pb2 import MetricsBatch
from ahwire.remote_write_pb2 import Request, WriteRequest

EACH = {MetricsBatch: 8, WriteRequest: 8, Request: 2, ExportMetricsServiceRequest: 8}
COUNTERS = {message: PieceCounter(message, numbers_a_piece=each) for message, each in EACH.items()}
TEXTS = {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}
# In memory they are as long as on the wire.
UNCOUNTED = {
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_BOOL,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_SFIXED64,
}

many = settings(deadline=None)
of_each = pytest.mark.parametrize("kind", EACH, ids=lambda kind: kind.DESCRIPTOR.name)


def pieces_of(message, kind):
    pieces, numbers = _found(message)
    return pieces + -(-numbers // EACH[kind])


def _found(message):
    pieces = numbers = 0
    for one, value in message.ListFields():
        if one.message_type is not None:
            for within in value if is_repeated(one) else [value]:
                more, more_numbers = _found(within)
                pieces, numbers = pieces + 1 + more, numbers + more_numbers
        elif is_repeated(one):
            if one.type in TEXTS:
                pieces += len(value)
            elif one.type not in UNCOUNTED:
                numbers += len(value)
    return pieces, numbers


@of_each
@many
@given(data=st.data())
def test_pieces_are_counted_as_they_are_parsed(kind, data):
    message = data.draw(messages(kind.DESCRIPTOR))
    counter, body, pieces = COUNTERS[kind], message.SerializeToString(), pieces_of(message, kind)
    assert counter.count(body, pieces_max=1_000_000) == pieces
    counter.check(body, pieces_max=1_000_000)
    if pieces:
        assert counter.may_hold_over(body, pieces - 1)
        with pytest.raises(TooLargeError):
            counter.check(body, pieces_max=pieces - 1)


# Tags, lengths, and what makes a walk stumble.
WIRE = b"\x0a\x12\x1a\x22\x2a\x3a\x52\x00\x01\x02\x04\x80\x8a\x7b\x7c\x08\x09\x0d"


@of_each
@many
@given(body=st.binary(max_size=40) | st.lists(st.sampled_from(WIRE), max_size=20).map(bytes))
def test_what_the_parser_can_read_is_never_counted_as_less(kind, body):
    try:
        found = pieces_of(kind.FromString(body), kind)
    except (DecodeError, ValueError):
        return
    try:
        counted = COUNTERS[kind].count(body, pieces_max=1_000_000)
    except BadBodyError:
        return
    assert counted >= found
    assert not found or COUNTERS[kind].may_hold_over(body, found - 1)


LONG = field(3, field(1, b"\x12" * 5_000))


@pytest.mark.parametrize(
    "tail",
    [
        b"\x0b\x0c",
        b"\x0a",
        b"\x1a\x05x",
        b"\x80",
        b"\x1a\x03\x12\x05x",
        b"\x0f",
        b"\x9a\x80\x00\x00",
        b"\x9a\x00\x00",
        b"\x9a\x80\x80\x80\x10\x00",
        b"\x08" + b"\xff" * 10,
        b"\x09\x00",
    ],
    ids=[
        "group",
        "no length",
        "cut",
        "cut tag",
        "cut within",
        "unknown kind",
        "tag of three bytes",
        "tag of two bytes",
        "tag over 32 bits",
        "endless number",
        "cut number",
    ],
)
def test_what_may_have_too_much_in_it_and_cannot_be_followed_is_refused(tail):
    counter = COUNTERS[MetricsBatch]
    assert counter.count(LONG, pieces_max=1_000) == 1
    with pytest.raises(BadBodyError, match="no readable MetricsBatch"):
        counter.check(LONG + tail, pieces_max=1_000)


def test_what_cannot_have_too_much_in_it_is_left_to_the_parser():
    COUNTERS[MetricsBatch].check(b"\x0b" * 2_000, pieces_max=1_000)


def test_unknown_fields_of_every_kind_are_passed_over():
    unknown = b"\x78\x05" + b"\x79" + bytes(8) + b"\x7d" + bytes(4) + field(15, b"x")
    far = b"\xc2\x3e\x01x"  # field 1000, whose tag has two bytes
    body = field(3, field(1, b"\x12" * 5_000) + unknown + far) + unknown + far
    assert COUNTERS[MetricsBatch].count(body, pieces_max=1_000) == 1


def test_a_length_may_be_longer_than_it_needs_to_be():
    body = b"\x1a\x82\x80\x00\x12\x00"
    assert len(MetricsBatch.FromString(body).series[0].labels) == 1
    assert COUNTERS[MetricsBatch].count(body, pieces_max=10) == 2


def test_millions_of_fields_that_are_no_pieces_are_not_walked_through():
    body = LONG + b"\x08\x00" * 10_000
    with pytest.raises(TooLargeError):
        COUNTERS[MetricsBatch].check(body, pieces_max=1_000)


def test_a_body_deeper_than_the_parser_goes_is_refused():
    value = b""
    for _ in range(60):
        value = field(5, field(1, value))
    body = field(1, field(1, field(1, field(2, value))))
    with pytest.raises(DecodeError):
        ExportMetricsServiceRequest.FromString(body)
    with pytest.raises(BadBodyError):
        COUNTERS[ExportMetricsServiceRequest].count(body, pieces_max=1_000_000)
