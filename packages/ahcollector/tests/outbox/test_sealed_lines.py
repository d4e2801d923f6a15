"""Sealed lines show damage, and give back everything that is whole."""

import errno
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector._sealed import read_sealed, replace_file, seal, set_aside
from ahcollector._sealedlog import SealedLog

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records = st.dictionaries(st.text(min_size=1), json_values, min_size=1, max_size=4).filter(
    lambda record: "crc" not in record
)
LINES = [seal({"op": "append", "n": n, "text": 'a"\n{"crc":"'}) for n in range(5)]
WHOLE = [{"op": "append", "n": n, "text": 'a"\n{"crc":"'} for n in range(5)]


@given(st.lists(records, max_size=5))
def test_what_was_written_is_read(written):
    found = read_sealed(b"".join(map(seal, written)))
    assert list(found.records) == written
    assert found.damaged == ()


def test_every_cut_keeps_the_whole_lines():
    data = b"".join(LINES)
    for cut in range(len(data) + 1):
        found = read_sealed(data[:cut])
        whole = sum(cut >= sum(map(len, LINES[: n + 1])) - 1 for n in range(5))
        assert list(found.records) == WHOLE[:whole], cut


def test_every_flipped_bit_costs_one_record_and_shows():
    data = b"".join(LINES)
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            found = read_sealed(bytes(broken))
            lost = [record for record in WHOLE if record not in found.records]
            assert all(record in WHOLE for record in found.records), (at, bit)
            in_line_feed = data[at : at + 1] == b"\n"
            assert len(lost) <= 1, (at, bit)
            assert len(lost) == 0 if in_line_feed else len(found.damaged) >= 1, (at, bit)


@given(st.binary(max_size=300))
def test_garbage_is_damaged_bytes_and_no_error(data):
    found = read_sealed(data)
    assert found.records == ()


@pytest.mark.parametrize("record", [{}, {"a": float("nan")}, {"a": float("inf")}])
def test_what_json_does_not_have_is_refused(record):
    with pytest.raises(ValueError):
        seal(record)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "state"
    replace_file(path, [b"one"])
    assert path.stat().st_mode & 0o777 == 0o600

    def chunks():
        yield b"two"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        replace_file(path, chunks())
    assert path.read_bytes() == b"one"
    assert [child.name for child in tmp_path.iterdir()] == ["state"]


def test_pieces_set_aside_pile_up(tmp_path):
    set_aside(tmp_path / "damaged", [b"a"])
    set_aside(tmp_path / "damaged", [b"b", b"c"])
    assert (tmp_path / "damaged").read_bytes() == b"a\nb\nc\n"
    assert (tmp_path / "damaged").stat().st_mode & 0o777 == 0o600


@pytest.mark.fault
def test_what_is_appended_behind_a_replacement_that_half_failed_is_in_the_file(
    tmp_path, monkeypatch
):
    """C18: the new file is in its place, and only its name could not be synced."""
    log = SealedLog(tmp_path / "log")
    log.append(LINES[:3], sync=True)
    synced = []
    real = os.fsync

    def fails_for_directories(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    def watched(descriptor):
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails_for_directories)
        with pytest.raises(OSError, match="Input/output"):
            log.rewrite(LINES[2:3])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", watched)
        log.append(LINES[3:4], sync=True)
    log.close()
    assert list(read_sealed((tmp_path / "log").read_bytes()).records) == WHOLE[2:4]
    assert synced == [True], "the name is durable with the line"
