"""A batch goes through bytes unchanged, and bytes that are none are refused in one way."""

import math
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.bus._entries import PLAIN_BYTES_MAX, decode, encode, pack
from ahcollector.errors import BusError
from ahcollector.testing._contracts.bus import batch_of
from ahwire.codec import ZSTD, compress, decompress

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


OLD = (
    "01efeb093a28b52ffd20cda50300740405000406010000000203fdffe03f008000f07f9c7500883ce4377e61636d"
    "65017765622d3101610130306666015f5f6e616d655f5f0161685f7801636f726501307901c3bc0100140080f320"
    "b8188c81853358000671113b0300029642f042b00bf8190002ccccc3d900b2ae64b6cb620058"
)


def test_an_entry_of_the_first_release_is_read_and_written_alike():
    """A stream outlives a program: what is in it was written by an older one."""
    old = SampleBatch(
        company_id="acme",
        server_id="web-1",
        agent_id="a",
        request_id="00ff",
        received_at_ms=5,
        series=(
            StoredSeries(
                labels=(("__name__", "ah_x"), ("core", "0")), points=((1, 0.5), (2, -0.0))
            ),
            StoredSeries(labels=(("__name__", "ah_y"),), points=()),
            StoredSeries(labels=(), points=((-3, math.inf),)),
            StoredSeries(
                labels=(("core", "0"), ("__name__", "ah_x"), ("ü", "\x00")), points=((4, 1e300),)
            ),
        ),
    )
    assert decode(bytes.fromhex(OLD)) == old
    assert pack(old) == decompress(bytes.fromhex(OLD)[5:], ZSTD, 10_000)


@given(BATCHES)
def test_what_is_read_is_made_of_the_same_as_what_was_written(batch):
    """Series are made without their constructor: nothing of them may be missing."""
    assert attrs.fields_dict(StoredSeries).keys() == {"labels", "points"}
    again = decode(encode(batch))
    assert (hash(again), repr(again)) == (hash(batch), repr(batch))
    for series in again.series:
        assert type(series) is StoredSeries
        assert attrs.evolve(series, points=()) == StoredSeries(labels=series.labels, points=())
        assert pickle.loads(pickle.dumps(series)) == series
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            series.labels = ()


def test_threads_that_write_and_read_at_once_do_not_disturb_each_other():
    batches = [batch_of(number, server_id="s" * (1 + number % 50)) for number in range(200)]

    def again(batch):
        return [decode(encode(batch)) for _ in range(20)]

    with ThreadPoolExecutor(4) as threads:
        for batch, found in zip(batches, threads.map(again, batches), strict=True):
            assert found == [batch] * 20
