"""Every contract against every damage of its bytes: a value that stands, or one precise error."""

import json
from pathlib import Path

import attrs
import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError as MessageError
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire import agent_pb2, remote_write_pb2
from ahwire.errors import DecodeError

VECTORS = Path(__file__).parent / "vectors"


def fields_of(value):
    """Every name that an error's path may be made of."""
    names = {field.name for field in attrs.fields(type(value))}
    for item in attrs.astuple(value, recurse=False):
        for each in item if isinstance(item, tuple) else (item,):
            if attrs.has(type(each)):
                names |= fields_of(each)
            elif isinstance(each, dict):
                names |= set(each)
    return names


def stands_or_is_refused(value, data):
    """What is taken encodes to what decodes to it; what is refused names a field, or none."""
    try:
        found = type(value).from_json(data)
    except DecodeError as caught:
        error = caught
    else:
        error = None
    if error is not None:
        assert 0 < len(error.reason) < 400
        return error
    encoded = found.to_json()
    again = type(value).from_json(encoded)
    assert again == found
    assert again.to_json() == encoded
    return found


def test_every_prefix_is_refused(contract):
    _, value = contract
    data = value.to_json()
    for end in range(len(data)):
        error = stands_or_is_refused(value, data[:end])
        assert isinstance(error, DecodeError)
        assert error.field == ""


def flip(value, bits_of):
    data = value.to_json()
    known = fields_of(value)
    for place in range(len(data)):
        for bit in bits_of(place):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            found = stands_or_is_refused(value, bytes(damaged))
            if isinstance(found, DecodeError) and found.field:
                assert found.field.split(".")[0].split("[")[0] in known


def test_a_flipped_bit_in_every_byte_gives_a_value_that_stands_or_one_error(contract):
    _, value = contract
    flip(value, lambda place: [place % 8])


@pytest.mark.nightly
def test_every_flipped_bit_gives_a_value_that_stands_or_one_error(contract):
    _, value = contract
    flip(value, lambda _: range(8))


def test_every_deleted_and_every_doubled_byte_gives_a_value_that_stands_or_one_error(contract):
    _, value = contract
    data = value.to_json()
    for place in range(len(data)):
        stands_or_is_refused(value, data[:place] + data[place + 1 :])
        stands_or_is_refused(value, data[:place] + data[place : place + 1] + data[place:])


# What each of them tries is its name.
HOSTILE = {
    "deep array": "[" * 900 + "]" * 900,
    "deep object": '{"a":' * 900 + "1" + "}" * 900,
    "deeper than any stack": "[" * 200_000,
    "huge integer": "9" * 4299,
    "integer beyond what Python reads": "9" * 5000,
    "1e400": "1e400",
    "-1e400": "-1e400",
    "1e-400": "1e-400",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus zero": "-0",
    "number as a string": '"1"',
    "lone surrogate": '"\\ud800"',
    "reversed pair": '"\\udc00\\ud800"',
    "NUL": '"\\u0000"',
    "long string": '"' + "x" * 500_000 + '"',
    "long string of four-byte characters": '"' + "\U0001f600" * 100_000 + '"',
    "long array": "[" + "0," * 100_000 + "0]",
    "empty": '""',
    "null": "null",
    "true": "true",
    "object": "{}",
    "array": "[]",
}


def test_hostile_values_in_every_field_give_a_value_that_stands_or_one_error(contract):
    _, value = contract
    document = json.loads(value.to_json())
    known = fields_of(value)
    for field in [each.name for each in attrs.fields(type(value))]:
        marked = json.dumps({**document, field: "<here>"})
        for hostile in HOSTILE.values():
            found = stands_or_is_refused(value, marked.replace('"<here>"', hostile).encode())
            if isinstance(found, DecodeError) and found.field:
                assert found.field.split(".")[0].split("[")[0] in known


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_just_below_what_the_parser_takes_raises_nothing_else(contract, opening, closing):
    """What may still be parsed must not be too deep for the code that looks at it."""
    _, value = contract
    document = json.loads(value.to_json())
    depths = _deepest(opening, closing)
    for field in [each.name for each in attrs.fields(type(value))]:
        marked = json.dumps({**document, field: "<here>"})
        for depth in depths:
            nested = opening * depth + "1" + closing * depth
            data = marked.replace('"<here>"', nested).encode()
            stands_or_is_refused(value, data)


def _deepest(opening, closing):
    """The depths around the one from which on the parser gives up."""
    low, high = 1, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            json.loads(opening * middle + "1" + closing * middle)
        except RecursionError:
            high = middle
        else:
            low = middle
    return range(high - 12, high + 3)


def test_of_a_repeated_key_the_last_counts(contract):
    _, value = contract
    text = value.to_json().decode()
    first = attrs.fields(type(value))[0].name
    assert (
        type(value).from_json(
            f'{{"{first}":[1,{{}}],{text[1:]}'.encode() if text != "{}" else b"{}"
        )
        == value
    )


@pytest.mark.parametrize(
    "prefix",
    [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80"],
)
def test_byte_order_marks_and_broken_utf8_are_refused(contract, prefix, refusal):
    _, value = contract
    assert refusal(type(value), prefix + value.to_json()).field == ""


def test_white_space_around_is_no_matter(contract):
    _, value = contract
    assert type(value).from_json(b" \r\n\t" + value.to_json() + b"\n ") == value


# Messages


MESSAGES = sorted(path.stem for path in VECTORS.glob("*.hex"))


def vector(name):
    kind_name = "".join(part.capitalize() for part in name.split("_"))
    module = agent_pb2 if hasattr(agent_pb2, kind_name) else remote_write_pb2
    return getattr(module, kind_name), bytes.fromhex((VECTORS / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", MESSAGES)
def test_damaged_messages_are_read_or_refused_and_nothing_else(name):
    kind, golden = vector(name)
    damages = [golden[:end] for end in range(len(golden))]
    for place in range(len(golden)):
        for bit in range(8):
            damaged = bytearray(golden)
            damaged[place] ^= 1 << bit
            damages.append(bytes(damaged))
    for damaged in damages:
        try:
            found = kind.FromString(damaged)
        except MessageError:
            continue
        again = kind.FromString(found.SerializeToString(deterministic=True))
        assert again.SerializeToString(deterministic=True) == found.SerializeToString(
            deterministic=True
        )


# A later version's fields: a number, a text, a message, a fixed 64 and a fixed 32.
LATER = bytes.fromhex("a00601 aa0603616263 b2060408011001 b9060102030405060708 bd0601020304")


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_of_a_later_version_are_ignored_before_and_behind(name):
    kind, golden = vector(name)
    expected = kind.FromString(golden)
    for data in (LATER + golden, golden + LATER):
        found = kind.FromString(data)
        found.DiscardUnknownFields()
        assert found == expected


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_survive_the_json_mapping_with_unknown_fields(name):
    kind, golden = vector(name)
    message = kind.FromString(golden)
    document = json_format.MessageToDict(message)
    found = json_format.ParseDict(
        {**document, "laterField": [1]}, kind(), ignore_unknown_fields=True
    )
    assert found == message


@settings(deadline=None)
@given(st.binary(max_size=100), st.sampled_from(MESSAGES))
def test_junk_is_a_message_or_refused(data, name):
    kind, _ = vector(name)
    try:
        found = kind.FromString(data)
    except MessageError:
        return
    # What was understood can be said again, and means the same: in bytes, since NaN is not NaN.
    said = found.SerializeToString(deterministic=True)
    assert kind.FromString(said).SerializeToString(deterministic=True) == said


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\xe1\x88"])
def test_text_that_is_no_utf8_refuses_the_whole_message(text):
    """C2: also a label cut inside a rune."""
    label = b"\x12" + bytes([len(text)]) + text
    series = b"\x12" + bytes([len(label)]) + label
    with pytest.raises(MessageError):
        agent_pb2.MetricsBatch.FromString(b"\x1a" + bytes([len(series)]) + series)
