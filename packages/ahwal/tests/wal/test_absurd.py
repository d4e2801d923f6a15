"""Valid records that no clock and no counter of ours can have made."""

import logging

import pytest
import wal_independent

from ahwal.queue import DropReason
from ahwal.testing import FakeClock, SimulatedDisk
from ahwal.wal import WAL

EVERYTHING = 10**9
YEAR_MS = 365 * 86_400_000
NOW_MS = 1_700_000_000_000  # where a FakeClock begins


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "ahwal.wal")


def open_with(disk, clock=None, **options):
    storage = disk.storage()
    return WAL.open("simulated", storage=storage, clock=clock or FakeClock(), **options)


def disk_with(unix_ms):
    """Three ordinary records and one of a strange time."""
    disk = SimulatedDisk()
    with open_with(disk) as wal:
        wal.append_many([b"1", b"2", b"3"])
    disk.put_file(f"{100:016x}.seg", wal_independent.make_record(100, b"strange", unix_ms=unix_ms))
    return disk


@pytest.mark.parametrize(
    "unix_ms", [2**63 - 1, NOW_MS * 1_000_000, NOW_MS * 1000, NOW_MS + 101 * YEAR_MS]
)
def test_a_time_absurdly_in_the_future_ages_no_other_record_and_no_append_fails(unix_ms):
    """Such as nanoseconds in the place of milliseconds."""
    disk, clock = disk_with(unix_ms), FakeClock()
    with open_with(disk, clock) as wal:
        new = wal.append(b"new")
        entries = wal.peek(EVERYTHING, EVERYTHING)
        assert [entry.data for entry in entries] == [b"1", b"2", b"3", b"strange", b"new"]
        assert wal.newest().unix_ms == NOW_MS
        # It may still be replaced, and its parts keep its time.
        (part,) = wal.replace(100, [b"part"])
        assert {e.id: e.unix_ms for e in wal.peek(EVERYTHING, EVERYTHING)}[part] == unix_ms
        clock.step(86_401)
        wal.append(b"later")
        assert wal.stats().dropped_by_reason == {DropReason.AGE: 3}
    assert new > 100


def test_a_time_of_another_clock_that_was_merely_wrong_counts_as_before():
    """A machine without a clock of its own starts in 1970, with records of today."""
    disk = disk_with(NOW_MS + 60 * YEAR_MS)
    with open_with(disk) as wal:
        assert wal.append(b"new") > 100
        assert wal.newest().unix_ms == NOW_MS + 60 * YEAR_MS
        assert wal.stats().dropped_by_reason == {DropReason.AGE: 3}


def test_a_time_absurdly_in_the_past_costs_its_own_record_only():
    with open_with(disk_with(-(2**63))) as wal:
        wal.append(b"new")
        assert wal.stats().dropped == 0  # from the oldest to the first that is fresh
        for _ in range(3):
            wal.remove(wal.oldest().id)
        assert wal.oldest().data == b"new"
        assert wal.stats().dropped_by_reason == {DropReason.AGE: 1}
