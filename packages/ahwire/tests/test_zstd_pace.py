"""zstd bodies are cut where their blocks end, so that bombs stay bounded and honest ones quick."""

import itertools
import tracemalloc

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire._zstd_pace import ZstdPace
from ahwire.codec import Decompressor, decompress
from ahwire.errors import BadBodyError, TooLargeError

MIB = 1 << 20
BLOCK = 128 << 10
RAW, REPEATED, RESERVED = 0, 1, 3
WINDOW_8_MIB = b"\x68"


def block(kind, size, content=b"x", *, last=False):
    return (last | kind << 1 | size << 3).to_bytes(3, "little") + content


def frame(*blocks, window=WINDOW_8_MIB):
    """A frame without content size and checksum."""
    return b"\x28\xb5\x2f\xfd\x00" + window + b"".join(blocks) + block(RAW, 0, b"", last=True)


def skippable(content, kind=0x50):
    return bytes([kind]) + b"\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content


def packed(data, **options):
    return zstandard.ZstdCompressor(**options).compress(data)


def in_chunks(body, cuts, plain_bytes_max=64 * MIB):
    inflater = Decompressor("zstd", plain_bytes_max)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    parts = [inflater.feed(body[start:end]) for start, end in itertools.pairwise(edges)]
    return b"".join(parts) + inflater.finish()


FRAMES = st.one_of(
    st.binary(max_size=300).map(packed),
    st.binary(max_size=300).map(lambda data: packed(data, write_checksum=True)),
    st.binary(max_size=300).map(lambda data: packed(data, write_content_size=False)),
    st.integers(0, 300_000).map(lambda size: packed(bytes(size), level=1)),
    st.binary(max_size=40).map(skippable),
    st.integers(0, 3).map(lambda n: frame(*[block(REPEATED, 1000)] * n, block(RAW, 1))),
)


@settings(deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=6), st.lists(st.integers(0, 2000), max_size=6))
def test_body_in_any_chunks_gives_the_same_as_whole(frames, cuts):
    body = b"".join(frames)
    expected = b"".join(
        zstandard.ZstdDecompressor().decompressobj().decompress(each) for each in frames
    )
    assert in_chunks(body, cuts) == expected
    assert decompress(body, "zstd", len(expected)) == expected


def test_body_byte_by_byte_gives_the_same_as_whole():
    data = bytes(range(256)) * 40
    body = packed(data, write_checksum=True) + skippable(b"abc") + packed(b"") + packed(data)
    assert in_chunks(body, range(len(body))) == data * 2


@settings(deadline=None)
@given(st.lists(FRAMES, min_size=1, max_size=6), st.binary(max_size=20), st.integers(0, 3 * BLOCK))
def test_no_slice_becomes_more_than_the_room_and_a_block(frames, tail, room):
    body = b"".join(frames) + tail
    pace, start, inflater = ZstdPace(), 0, None
    while start < len(body):
        end = pace.end(body, start, room)
        assert start < end <= len(body)
        data = body[start:end]
        start = end
        while data:
            if inflater is None or inflater.eof:
                inflater = zstandard.ZstdDecompressor().decompressobj()
            try:
                plain = inflater.decompress(data)
            except zstandard.ZstdError:
                return
            assert len(plain) <= room + BLOCK
            data = inflater.unused_data if inflater.eof else b""


@pytest.mark.parametrize(
    "bomb",
    [
        frame(*[block(REPEATED, BLOCK)] * 100_000),
        frame(*[block(REPEATED, BLOCK), block(RAW, 0, b"")] * 100_000),
        frame(block(REPEATED, BLOCK)) * 50_000,
        skippable(b"") * 1000 + frame(*[block(REPEATED, BLOCK)] * 1000),
        packed(bytes(256 * MIB), write_content_size=False),
    ],
    ids=[
        "one frame",
        "empty blocks between",
        "a frame each",
        "behind skippable ones",
        "compressed",
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1000, 1 << 16, MIB])
def test_bombs_of_every_make_stop_at_the_limit(bomb, chunk_bytes):
    """C1: a block of four bytes becomes 128 KiB; memory grows by at most 16 MiB."""
    inflater = Decompressor("zstd", 8 * MIB)
    held = []
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            held += [
                inflater.feed(bomb[start : start + chunk_bytes])
                for start in range(0, len(bomb), chunk_bytes)
            ]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB


def test_honest_body_goes_in_whole_blocks():
    noise = zstandard.compress(bytes(itertools.islice(itertools.cycle(range(251)), 1000)))
    body = packed(noise * 2000, level=-100)
    pace, start, cuts = ZstdPace(), 0, 0
    while start < len(body):
        start, cuts = pace.end(body, start, 2 * MIB), cuts + 1
    assert cuts <= 2


@pytest.mark.parametrize(
    "body",
    [
        b"\x27\xb5\x2f\xfd\x00\x68\x01\x00\x00",  # zstd of 2015
        frame(block(RESERVED, 1)),
        frame(block(REPEATED, BLOCK + 1)),
        frame(window=b"\x70"),  # 16 MiB
        frame(window=b"\xff"),  # the largest that can be written
        skippable(b"", kind=0x60),
        frame() + b"\0",
        frame()[:-1],
        skippable(b"abc")[:-1],
        b"\x28",
    ],
)
@pytest.mark.parametrize("cuts", [(), range(40)])
def test_what_is_no_zstd_is_refused(body, cuts):
    with pytest.raises(BadBodyError):
        in_chunks(body, cuts)


@pytest.mark.parametrize("dictionary_id", [1, 300, 70_000])
def test_body_that_needs_a_dictionary_is_refused(dictionary_id):
    samples = [f"series {n} of host {n % 7}".encode() * 3 for n in range(500)]
    trained = zstandard.train_dictionary(4096, samples, dict_id=dictionary_id)
    body = zstandard.ZstdCompressor(dict_data=trained).compress(samples[0])
    with pytest.raises(BadBodyError, match="cannot be read"):
        decompress(body, "zstd", 1000)


def test_skippable_frames_of_any_size_cost_and_give_nothing():
    body = skippable(bytes(300_000)) + packed(b"abc") + skippable(b"", kind=0x5F)
    assert decompress(body, "zstd", 3) == b"abc"
