"""What the fuzzer and the long runs found, each as a directory by hand."""

import logging

import pytest
import wal_independent

from ahwal.errors import WALWriteError
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL

EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "ahwal.wal")


def open_simulated(disk, **options):
    return WAL.open("simulated", storage=disk.storage(), max_age_seconds=None, **options)


def read_all(wal):
    return {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)}


def with_inner_record():
    """Three records, the second of which holds a whole record with a higher id."""
    inner = wal_independent.make_record(7, b"inner", level=0)
    second = wal_independent.raw_record(2, wal_independent.stored(inner))
    records = [wal_independent.make_record(n, b"%d" % n) for n in (1, 3)]
    return records[0], second, records[1], inner


def open_segment(content, name=f"{1:016x}.seg"):
    disk = SimulatedDisk()
    disk.put_file(name, bytes(content))
    with open_simulated(disk) as wal:
        return read_all(wal)


def test_a_record_inside_the_payload_of_a_damaged_one_never_comes_out():
    first, second, third, inner = with_inner_record()
    whole = {1: b"1", 2: inner, 3: b"3"}
    assert open_segment(first + second + third) == whole
    for bit in range(len(second) * 8):
        flipped = bytearray(second)
        flipped[bit // 8] ^= 1 << bit % 8
        assert open_segment(first + flipped + third) == {1: b"1", 3: b"3"}, bit
        # The last one, and the first one of its segment.
        assert open_segment(first + flipped) == {1: b"1"}, bit
    for size in range(len(second)):
        assert open_segment(first + second[:size]) == {1: b"1"}, size
        assert open_segment(first + second[:size] + bytes(100)) == {1: b"1"}, size


def test_a_record_inside_one_whose_id_does_not_increase_never_comes_out():
    first, second, third, _ = with_inner_record()
    assert open_segment(first + third + second) == {1: b"1", 3: b"3"}


def test_an_empty_segment_under_a_name_among_the_ids_of_the_next_hides_none():
    disk = SimulatedDisk()
    disk.put_file(f"{1:016x}.seg", wal_independent.make_record(5, b"5"))
    disk.put_file(f"{16:016x}.seg", b"")
    disk.put_file(f"{32:016x}.seg", wal_independent.make_record(7, b"7"))
    disk.put_file("checkpoint", wal_independent.make_checkpoint(5))
    with open_simulated(disk) as wal:
        assert read_all(wal) == {7: b"7"}
        wal.remove(7)
        assert wal.oldest() is None


def test_segments_with_wrong_names_are_read_in_the_order_of_their_ids_and_never_overwritten():
    disk = SimulatedDisk()
    disk.put_file(f"{9:016x}.seg", wal_independent.make_record(1, b"1"))
    disk.put_file(f"{2:016x}.seg", wal_independent.make_record(8, b"8"))
    with open_simulated(disk, segment_bytes=40) as wal:
        assert [entry.data for entry in wal.peek(9, EVERYTHING)] == [b"1", b"8"]
        new = wal.append_many([b"x" * 30, b"y" * 30])
        assert new[0] > 9
    with open_simulated(disk) as wal:
        assert list(read_all(wal)) == [1, 8, *new]


def test_a_journal_that_names_an_id_in_two_replacements_counts_it_once():
    disk = SimulatedDisk()
    records = [wal_independent.make_record(n, b"%d" % n) for n in (1, 2, 5)]
    disk.put_file(f"{1:016x}.seg", b"".join(records))
    disk.put_file("journal", wal_independent.make_journal("put 1 5", "put 2 5"))
    with open_simulated(disk) as wal:
        assert [entry.id for entry in wal.peek(9, EVERYTHING)] == [5]
        assert wal.stats().batches == 1
        wal.remove(5)
        assert wal.oldest() is None


@pytest.mark.parametrize("number", [2**62 - 1, 2**62])
def test_what_is_appended_after_the_largest_readable_number_can_be_read_again(number):
    disk = SimulatedDisk()
    disk.put_file("checkpoint", wal_independent.make_checkpoint(number))
    with open_simulated(disk) as wal:
        new = wal.append(b"x")
        assert new == number + 1
    with open_simulated(disk) as wal:
        assert read_all(wal) == {new: b"x"}


def test_when_the_ids_are_used_up_an_append_says_so():
    disk = SimulatedDisk()
    disk.put_file(f"{2**63 - 2:016x}.seg", wal_independent.make_record(2**63 - 2, b"x"))
    with open_simulated(disk) as wal:
        assert wal.append(b"the last") == 2**63 - 1
        with pytest.raises(WALWriteError, match="the ids are used up"):
            wal.append(b"y")
    with open_simulated(disk) as wal:
        assert len(read_all(wal)) == 2
