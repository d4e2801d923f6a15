"""What is counted as damage, and what a hostile directory may cost."""

import logging
import os
import time
from random import Random

import pytest
import wal_independent

from ahwal.queue import DropReason
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL
from ahwal.wal._journal import decode
from ahwal.wal._segment import Segment

EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "ahwal.wal")


def records(count):
    rng = Random(1)
    return [wal_independent.make_record(n, rng.randbytes(100)) for n in range(1, count + 1)]


def break_payload(record):
    return record[:60] + bytes([record[60] ^ 1]) + record[61:]


def open_bytes(content, **options):
    disk = SimulatedDisk()
    disk.put_file(f"{1:016x}.seg", content)
    return disk, WAL.open("simulated", storage=disk.storage(), max_age_seconds=None, **options)


@pytest.mark.parametrize(
    ("bad", "tail"),
    [((3, 4, 5, 6), b""), ((0, 1), b""), ((7, 8, 9), b""), ((8, 9), bytes(500)), ((9,), b"\x50")],
)
def test_each_damaged_record_is_counted_however_close_they_stand(bad, tail):
    content = b"".join(
        break_payload(record) if n in bad else record for n, record in enumerate(records(10))
    )
    disk, wal = open_bytes(content + tail)
    assert wal.recovery.damaged_records == len(bad)
    assert wal.recovery.torn_bytes == len(tail)
    assert wal.stats().dropped_by_reason == {DropReason.DAMAGED: len(bad)}
    assert wal.stats().batches == 10 - len(bad)
    # What was damaged at the end is cut off once, having been set aside.
    wal.append(b"new")
    disk.kill_process()
    with WAL.open("again", storage=disk.storage(), max_age_seconds=None) as wal:
        inside = [n for n in bad if n < max(set(range(10)) - set(bad))]
        assert wal.recovery.damaged_records == len(inside)
        assert wal.stats().batches == 11 - len(bad)
    kept = sum(len(c) for name, c in disk.files().items() if name.endswith(".bad"))
    assert kept >= sum(len(records(10)[n]) for n in bad if n not in inside)


def test_many_adjacent_damaged_records_cost_no_memory_each():
    segment = Segment("x", 100_000)
    for n in range(999):
        segment.add_damage(n * 100, 100, apart=False)
    segment.add_damage(99_900, 100, apart=True)
    assert segment.damaged_records == 1000
    assert segment.damage == [(0, 99_900), (99_900, 100)]


def test_holes_are_passed_over_and_zeros_read_fast(tmp_path):
    """W4: 32 GiB of hole, which no disk has room for, and 64 MiB of zeros."""
    with WAL.open(tmp_path) as wal:
        wal.append(b"x")
    os.truncate(tmp_path / f"{1:016x}.seg", 16 << 30)
    with (tmp_path / f"{99:016x}.seg").open("wb") as file:
        file.truncate(16 << 30)
    (tmp_path / f"{88:016x}.seg").write_bytes(bytes(64 << 20))
    began = time.process_time()
    with WAL.open(tmp_path, max_bytes=1 << 40) as wal:
        assert wal.oldest().data == b"x"
        wal.append(b"y")
    # Read byte by byte they would take minutes.
    assert time.process_time() - began < 10


def test_thousands_of_empty_segments_cost_no_square(tmp_path):
    count = 5000
    for n in range(count):
        (tmp_path / f"{n + 10:016x}.seg").touch()
    began = time.process_time()
    with WAL.open(tmp_path) as wal:
        wal.append(b"x")
        assert wal.recovery.segments == count
        assert len(list(tmp_path.glob("*.seg"))) < 3
    assert time.process_time() - began < 10


def test_a_journal_of_junk_is_read_in_pieces():
    lines = [b"ack 1 00000000\n"] * 100_000 + [wal_independent.make_journal("ack 7")] + [b"ack"]
    content = b"".join(lines)
    pieces = [content[at : at + 1000] for at in range(0, len(content), 1000)]
    journal = decode(pieces)
    assert journal.acks == {7}
    assert journal.bad_lines == 100_001
    assert decode([content]) == journal
    assert decode([]) == decode([b""])
    assert decode([b"x" * 10] * 1000).bad_lines == 1
