import builtins
import contextlib
import gzip
import itertools
import sys
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire.codec import ZSTD, Decompressor, ZstdFrames, compress, decompress
from ahwire.errors import BadBodyError, TooLargeError, UnsupportedEncodingError, WireError

MIB = 1 << 20
CODINGS = ["gzip", "zstd"]


@settings(deadline=None)
@given(st.binary(max_size=5000), st.sampled_from(["gzip", "zstd", "identity"]))
def test_round_trip_at_exactly_the_limit(data, coding):
    assert decompress(compress(data, coding), coding, len(data)) == data


@settings(deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(["gzip", "zstd", "identity"]))
def test_body_may_come_byte_by_byte(data, coding):
    inflater = Decompressor(coding, len(data))
    plain = b"".join(inflater.feed(bytes([byte])) for byte in compress(data, coding))
    assert plain + inflater.finish() == data


@settings(deadline=None)
@given(
    st.lists(st.binary(max_size=400), min_size=1, max_size=4),
    st.lists(st.integers(0, 1000), max_size=5),
    st.sampled_from(CODINGS),
)
def test_members_in_any_chunks_give_the_same_as_whole(parts, cuts, coding):
    body = b"".join(compress(part, coding) for part in parts)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    plain = b"".join(parts)
    inflater = Decompressor(coding, len(plain))
    found = [inflater.feed(body[start:end]) for start, end in itertools.pairwise(edges)]
    assert b"".join(found) + inflater.finish() == plain
    assert decompress(body, coding, len(plain)) == plain


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=2000), st.sampled_from(["gzip", "zstd"]), st.integers(0, 10_000))
def test_junk_raises_nothing_but_wire_errors(data, coding, most):
    with contextlib.suppress(WireError):
        assert len(decompress(data, coding, most)) <= most


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(CODINGS))
def test_damaged_body_raises_nothing_but_wire_errors(data, coding):
    body = bytearray(compress(b"some plain text, " * 50, coding))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        assert len(decompress(bytes(body), coding, 10_000)) <= 10_000


@pytest.mark.parametrize("coding", CODINGS)
def test_every_cut_is_refused(coding):
    body = compress(b"abc" * 100, coding)
    for end in range(len(body)):
        with pytest.raises(BadBodyError):
            decompress(body[:end], coding, 1000)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("tail", [b"\0", b"x", b"trailing bytes", b"\0" * 5000])
def test_bytes_behind_the_end_are_refused(coding, tail):
    with pytest.raises(BadBodyError):
        decompress(compress(b"abc", coding) + tail, coding, 1000)


@pytest.mark.parametrize("coding", CODINGS)
def test_several_members_are_one_body_inside_one_limit(coding):
    body = compress(b"abc", coding) * 3
    assert decompress(body, coding, 9) == b"abcabcabc"
    with pytest.raises(TooLargeError, match="more than 8 bytes"):
        decompress(body, coding, 8)


def test_one_byte_over_the_limit_is_too_large():
    for coding in ("gzip", "zstd", None):
        data = compress(b"x" * 1001, coding or "identity")
        with pytest.raises(TooLargeError):
            decompress(data, coding, 1000)


def _gzip_bomb() -> bytes:
    # Members of 64 MiB: 1 GiB in about 1 MiB.
    return gzip.compress(bytes(64 * MIB), 9, mtime=0) * 16


def _zstd_bomb() -> bytes:
    return zstandard.ZstdCompressor(level=3, write_content_size=False).compress(bytes(1024 * MIB))


@pytest.mark.parametrize("bomb", [_gzip_bomb, _zstd_bomb])
def test_bomb_stops_at_the_limit_without_being_inflated_whole(bomb):
    # C1: memory grows by at most 16 MiB.
    body = bomb()
    coding = "gzip" if bomb is _gzip_bomb else "zstd"
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            decompress(body, coding, 8 * MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * MIB


@pytest.mark.parametrize(
    "member", [gzip.compress(b"", mtime=0), zstandard.compress(b"")], ids=CODINGS
)
def test_a_chunk_of_many_empty_members_costs_time_in_proportion(member):
    # Quadratic copying of the rest behind each member would take minutes.
    coding = "gzip" if member.startswith(b"\x1f") else "zstd"
    body = member * (MIB // len(member))
    assert decompress(body, coding, 0) == b""


def test_zstd_window_over_8_mib_is_refused():
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=24)
    body = zstandard.ZstdCompressor(
        compression_params=parameters.__class__(
            window_log=24, write_content_size=False, write_checksum=False
        )
    ).compressobj()
    data = body.compress(b"x" * 100) + body.flush()
    with pytest.raises(BadBodyError):
        decompress(data, "zstd", 1000)


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "gzip,zstd", "*", "x" * 500])
def test_other_codings_are_refused(coding):
    with pytest.raises(UnsupportedEncodingError, match="use one of: gzip, zstd") as caught:
        Decompressor(coding, 1)
    assert len(str(caught.value)) < 200
    with pytest.raises(UnsupportedEncodingError):
        compress(b"", coding)


@pytest.mark.parametrize("coding", [None, "", "identity", " Identity "])
def test_no_coding_passes_bytes_within_the_limit(coding):
    assert decompress(b"abc", coding, 3) == b"abc"
    with pytest.raises(TooLargeError):
        decompress(b"abcd", coding, 3)


@pytest.mark.parametrize("coding", ["GZIP", " gzip ", "Gzip"])
def test_name_of_the_coding_is_read_in_any_case(coding):
    assert decompress(compress(b"abc"), coding, 3) == b"abc"


def test_compression_is_repeatable_and_plain_gzip():
    assert compress(b"abc") == compress(b"abc")
    assert gzip.decompress(compress(b"abc")) == b"abc"
    assert compress(b"abc")[4:8] == bytes(4)


def test_empty_compressed_body_is_cut():
    with pytest.raises(BadBodyError, match="cut"):
        decompress(b"", "gzip", 1)


def test_zlib_and_raw_deflate_are_no_gzip():
    with pytest.raises(BadBodyError):
        decompress(zlib.compress(b"abc"), "gzip", 10)


def test_missing_zstandard_names_the_extra(monkeypatch):
    real_import = builtins.__import__

    def without_zstandard(name, *args, **kwargs):
        if name == "zstandard":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "zstandard")
    monkeypatch.setattr(builtins, "__import__", without_zstandard)
    with pytest.raises(UnsupportedEncodingError, match=r"install ahwire\[zstd\]"):
        compress(b"", "zstd")
    with pytest.raises(UnsupportedEncodingError, match="or use gzip"):
        Decompressor("zstd", 1)


FRAMES = ZstdFrames()


def outcome(unpack):
    try:
        return unpack()
    except WireError as error:
        return type(error), str(error)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_frames_made_with_what_is_kept_are_those_made_anew_and_are_read_the_same(data):
    plain = data.draw(st.binary(max_size=3000)) * data.draw(st.integers(1, 9))
    frame = bytearray(FRAMES.pack(plain))
    assert bytes(frame) == compress(plain, ZSTD)
    for _ in range(data.draw(st.integers(0, 2))):
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    tail = data.draw(st.sampled_from([b"", b"x", FRAMES.pack(b"another one")]))
    body = bytes(frame[: data.draw(st.integers(0, len(frame)) | st.just(len(frame)))]) + tail
    most = data.draw(st.sampled_from([0, len(plain) - 1, len(plain), 100_000]))
    told = outcome(lambda: FRAMES.unpack(body, most))
    assert told == outcome(lambda: decompress(body, ZSTD, most))


@given(st.binary(max_size=300))
def test_junk_is_no_frame(junk):
    told = outcome(lambda: FRAMES.unpack(junk, 1000))
    assert told == outcome(lambda: decompress(junk, ZSTD, 1000))


def test_a_frame_that_says_no_size_and_one_of_many_mebibytes_are_read_too():
    plain = bytes(range(256)) * 1_000
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    assert FRAMES.unpack(frame, len(plain)) == plain
    large = bytes(9 * MIB)
    assert FRAMES.unpack(FRAMES.pack(large), len(large)) == large
    with pytest.raises(TooLargeError):
        FRAMES.unpack(FRAMES.pack(large), len(large) - 1)


def test_a_frame_that_says_more_than_it_holds_takes_no_memory_for_it():
    """Its header says 64 MiB, and it holds nothing."""
    lying = b"\x28\xb5\x2f\xfd\xa0" + (64 * MIB).to_bytes(4, "little") + b"\x01\x00\x00"
    FRAMES.unpack(FRAMES.pack(b"x"), 1)
    tracemalloc.start()
    with pytest.raises(BadBodyError):
        FRAMES.unpack(lying, 64 * MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MIB
