"""A batch goes through bytes unchanged, and bytes that are none are refused in one way."""

import math
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.bus._entries import PLAIN_BYTES_MAX, decode, encode
from ahcollector.errors import BusError
from ahcollector.testing._contracts.bus import batch_of
from ahwire.codec import ZSTD, compress

TEXTS = st.text(st.characters(), max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
SERIES = st.builds(
    StoredSeries,
    labels=st.lists(st.tuples(TEXTS, TEXTS), max_size=6).map(tuple),
    points=st.lists(st.tuples(INT64, st.floats(allow_nan=False)), max_size=4).map(tuple),
)
BATCHES = st.builds(
    SampleBatch,
    company_id=TEXTS,
    server_id=TEXTS,
    agent_id=TEXTS,
    request_id=TEXTS,
    received_at_ms=INT64,
    series=st.lists(SERIES, max_size=5).map(tuple),
)


def signs(batch):
    return [math.copysign(1, value) for series in batch.series for _, value in series.points]


def sealed(plain):
    frame = compress(plain, ZSTD)
    return b"\x01" + zlib.crc32(frame).to_bytes(4, "little") + frame


@given(BATCHES)
@example(batch_of(1, server_id="\x00", company_id="\x01\x00"))
@example(batch_of(1, server_id="web-\ud800"))
def test_a_batch_comes_back_as_it_was(batch):
    again = decode(encode(batch))
    assert again == batch
    assert signs(again) == signs(batch)


def test_all_kinds_of_numbers_come_back():
    """C3."""
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 1.0]
    batch = batch_of(1)
    series = StoredSeries(
        labels=batch.series[0].labels, points=tuple((at, one) for at, one in enumerate(values))
    )
    again = decode(encode(SampleBatch(**{**fields(batch), "series": (series,)})))
    assert list(map(repr, (value for _, value in again.series[0].points))) == list(
        map(repr, values)
    )


def fields(batch):
    return {name: getattr(batch, name) for name in SampleBatch.__annotations__}


def test_texts_that_use_many_characters_find_a_separator():
    texts = "".join(map(chr, range(0xD800)))
    batch = batch_of(1, server_id=texts, company_id=texts[::-1])
    assert decode(encode(batch)) == batch


@given(st.binary(max_size=200))
def test_junk_is_refused_and_nothing_else_is_raised(junk):
    for entry in (junk, b"\x01" + junk, sealed(junk)):
        with pytest.raises(BusError, match="is no batch: "):
            decode(entry)


@given(BATCHES, st.data())
def test_what_was_damaged_on_the_way_is_refused(batch, data):
    entry = bytearray(encode(batch))
    place = data.draw(st.integers(0, len(entry) - 1))
    entry[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BusError, match="is no batch: "):
        decode(bytes(entry))
    with pytest.raises(BusError, match="is no batch: "):
        decode(encode(batch)[:place])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=5), st.binary(max_size=300))
def test_numbers_that_lie_are_refused_and_those_that_do_not_are_a_batch(numbers, rest):
    plain = bytes(8) + b"".join(one.to_bytes(4, "little") for one in numbers) + rest
    try:
        batch = decode(sealed(plain))
    except BusError as error:
        if "is no batch: " not in str(error):
            raise
    else:
        assert len(batch.series) == numbers[0]


def test_the_text_says_which_version_it_is_and_which_one_is_read():
    with pytest.raises(BusError, match="its version is 7, this program reads 1"):
        decode(b"\x07" + encode(batch_of(1))[1:])


def test_an_entry_that_inflates_to_too_much_is_refused():
    with pytest.raises(BusError, match="holds more than"):
        decode(sealed(bytes(PLAIN_BYTES_MAX + 1)))


@pytest.mark.parametrize(
    "points", [((2**63, 1.0),), ((1.5, 1.0),), ((1, "text"),), ((1, None),), ((None, 1.0),)]
)
def test_what_is_no_point_is_refused_before_it_is_on_the_bus(points):
    batch = SampleBatch(
        **{**fields(batch_of(5)), "series": (StoredSeries(labels=(), points=points),)}
    )
    with pytest.raises(BusError, match="batch 0000000000000005 of server web-1 cannot be put"):
        encode(batch)
