"""Many small entries set aside: each is a file, and counts as one."""

import logging
import os
from random import Random

import pytest

from ahwal.queue import DropReason
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL
from ahwal.wal._quarantine import FOLDER, Quarantine

BLOCK = 4096
MIB = 1 << 20


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "ahwal.wal")


def blocks_on_disk(folder):
    return sum(-(-entry.stat().st_size // BLOCK) * BLOCK for entry in os.scandir(folder))


def test_small_entries_count_as_the_blocks_they_take():
    disk = SimulatedDisk()
    with WAL.open("simulated", storage=disk.storage(), max_bytes=4 * MIB) as wal:
        ids = wal.append_many([b"%d" % n for n in range(300)])
        kept = [wal.quarantine(entry_id) for entry_id in ids]
        assert all(kept)
        room = 4 * MIB // 10 // BLOCK
        stats = wal.stats()
        assert (stats.quarantined, stats.quarantine_bytes) == (room, room * BLOCK)
        assert stats.dropped_by_reason == {DropReason.QUARANTINE: 300 - room}
        assert [entry.id for entry in wal.quarantined()] == ids[-room:]
    files = [name for name in disk.files() if name.startswith(FOLDER)]
    assert len(files) == room


def test_what_an_earlier_version_let_in_is_given_up_before_any_waiting_entry(tmp_path):
    """It counted no blocks: 1,500 small entries are 6 MB on disk, more than all of the WAL."""
    with WAL.open(tmp_path, max_bytes=1024 * MIB, segment_bytes=200_000) as wal:
        for entry_id in wal.append_many([b"%d" % n for n in range(150)]):
            wal.quarantine(entry_id)
        record = next((tmp_path / FOLDER).iterdir()).read_bytes()
    for n in range(10**6, 10**6 + 1350):
        (tmp_path / FOLDER / f"{n:016x}.seg").write_bytes(record)
    with WAL.open(tmp_path, max_bytes=1024 * MIB, segment_bytes=200_000) as wal:
        waiting = wal.append_many([Random(n).randbytes(100_000) for n in range(20)])
    with WAL.open(tmp_path, max_bytes=4 * MIB, segment_bytes=200_000) as wal:
        assert [entry.id for entry in wal.peek(99, 99 * MIB)] == waiting
        stats = wal.stats()
        assert stats.quarantine_bytes <= 4 * MIB // 10
        assert stats.dropped_by_reason == {DropReason.QUARANTINE: 1500 - stats.quarantined}
    assert blocks_on_disk(tmp_path / FOLDER) <= 4 * MIB // 10


def test_no_call_looks_at_each_file():
    """Not the figures that every append makes, nor making room for one more."""
    disk = SimulatedDisk()
    quarantine = Quarantine(disk.storage(), 2000 * BLOCK)
    for n in range(1, 2001):
        assert quarantine.keep_entry(n, b"record")
    before = quarantine._sizes

    class NoLooks(dict):
        def __iter__(self):
            raise AssertionError("all files were looked at")

        keys = values = items = __iter__

    quarantine._sizes = NoLooks(before)
    assert quarantine.entries == 2000
    assert quarantine.keep_entry(3000, b"record")
    assert (quarantine.entries, quarantine.lost) == (2000, 1)
    quarantine.forget(3000)
    assert quarantine.entry_ids == list(range(2, 2001))


def test_damaged_pieces_go_first_and_drive_out_no_entry():
    disk = SimulatedDisk()
    quarantine = Quarantine(disk.storage(), 20 * BLOCK)
    file = disk.storage().create("x")
    file.write(bytes(5 * BLOCK))
    for n in range(1, 18):
        quarantine.keep_entry(n, b"record")
    assert not quarantine.keep_damage(f"{1:016x}.seg", file, 0, 4 * BLOCK)
    assert quarantine.keep_damage(f"{1:016x}.seg", file, 0, 3 * BLOCK)
    assert quarantine.keep_entry(18, b"record")
    assert (quarantine.entries, quarantine.lost, quarantine.bytes) == (18, 0, 18 * BLOCK)
