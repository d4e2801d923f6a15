"""A disk that refuses: full, failing, short."""

import errno
import logging
from random import Random

import pytest

from ahwal.errors import WALOpenError, WALReadError, WALWriteError
from ahwal.testing import FakeClock, PowerCut, SimulatedDisk
from ahwal.wal import WAL

EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.WARNING, "ahwal.wal")


def open_simulated(disk, **options):
    return WAL.open("simulated", storage=disk.storage(), max_age_seconds=None, **options)


def data_of(wal):
    return [entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)]


def seg_names(disk):
    return sorted(name for name in disk.files() if name.endswith(".seg"))


def test_short_writes_are_continued():
    """W7."""
    disk = SimulatedDisk(Random(3), short_writes=True)
    wal = open_simulated(disk)
    items = [Random(n).randbytes(300) for n in range(20)]
    for item in items:
        wal.append(item)
    disk.kill_process()
    with open_simulated(disk) as wal:
        assert data_of(wal) == items


@pytest.mark.parametrize("capacity", [150_000, 150_001, 150_313, 151_024])
def test_a_full_disk_refuses_and_harms_nothing(capacity):
    """W8: in the middle of a write; works again when there is room; all that returned is there."""
    disk = SimulatedDisk(Random(3), capacity_bytes=capacity)
    wal = open_simulated(disk, segment_bytes=10_000)
    stored = {}
    for n in range(1000):
        data = Random(n).randbytes(1000)
        try:
            stored[wal.append(data)] = data
        except WALWriteError:
            break
    assert len(stored) > 100
    for _ in range(3):
        with pytest.raises(WALWriteError, match="No space left") as caught:
            wal.append(Random(1).randbytes(5000))
        assert isinstance(caught.value.__cause__, OSError)
    assert list(stored.values()) == data_of(wal)
    disk.set_capacity(None)
    for n in range(10):
        data = b"%d" % n
        new_id = wal.append(data)
        assert new_id not in stored
        stored[new_id] = data
    disk.cut_power()
    with open_simulated(disk) as wal:
        assert {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)} == stored
        assert not wal.recovery.damaged


def test_a_full_disk_gets_its_room_back_though_no_checkpoint_can_be_written():
    """W9."""
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=1000)
    ids = [wal.append(Random(n).randbytes(400)) for n in range(20)]
    disk.fail("create", errno.ENOSPC, times=10**6)
    disk.fail("write", errno.ENOSPC, times=10**6)
    for entry_id in ids:
        wal.remove(entry_id)
    assert len(seg_names(disk)) == 1
    assert "checkpoint" not in disk.files()
    disk.heal()
    new = wal.append(b"new")
    assert "checkpoint" in disk.files()
    disk.cut_power()
    with open_simulated(disk) as wal:
        assert data_of(wal) == [b"new"]
        assert wal.append(b"x") > new


def test_no_id_comes_back_when_the_disk_was_full_and_the_power_went():
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=1000)
    ids = [wal.append(Random(n).randbytes(400)) for n in range(20)]
    disk.set_capacity(disk.used_bytes + 1)
    with pytest.raises(WALWriteError):
        wal.append(Random(1).randbytes(900))  # begins a segment, and leaves it empty
    disk.fail("create", errno.ENOSPC, times=10**6)
    for entry_id in ids:
        wal.remove(entry_id)
    disk.cut_power()
    disk.heal()
    disk.set_capacity(None)
    with open_simulated(disk) as wal:
        assert wal.append(b"x") > ids[-1]


def test_a_failed_sync_is_reported_and_its_segment_sealed(caplog):
    """W10: what a later sync calls durable is not believed."""
    disk = SimulatedDisk()
    wal = open_simulated(disk)
    first = wal.append(b"first")
    disk.fail("datasync", errno.EIO, name_part=".seg")
    with pytest.raises(WALWriteError, match="Input/output error"):
        wal.append(b"lost")
    assert data_of(wal) == [b"first"]
    second = wal.append(b"second")
    assert len(seg_names(disk)) == 2
    disk.cut_power()
    with open_simulated(disk) as wal:
        entries = wal.peek(EVERYTHING, EVERYTHING)
        assert [(entry.id, entry.data) for entry in entries] == [
            (first, b"first"),
            (second, b"second"),
        ]


def test_a_failed_sync_fails_all_of_a_group():
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=300)
    disk.fail("datasync", errno.EIO, skip=2, name_part=".seg")
    with pytest.raises(WALWriteError):
        wal.append_many([Random(n).randbytes(100) for n in range(10)])
    assert wal.stats().batches == 0
    wal.append(b"x")
    assert data_of(wal) == [b"x"]


@pytest.mark.parametrize("call", ["create", "write", "datasync", "sync_directory"])
@pytest.mark.parametrize("skip", range(6))
def test_any_refusal_leaves_the_queue_as_it_was(call, skip):
    disk = SimulatedDisk(Random(skip))
    wal = open_simulated(disk, segment_bytes=200)
    expected = {}
    disk.fail(call, errno.EIO, skip=skip)
    for n in range(12):
        data = Random(n).randbytes(70)
        try:
            if n % 4 == 3 and expected:
                old = next(iter(expected))
                new = wal.replace(old, [data, b"half"])
                del expected[old]
                expected |= dict(zip(new, [data, b"half"], strict=True))
            else:
                expected[wal.append(data)] = data
        except WALWriteError:
            pass
        assert {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)} == expected
    disk.cut_power()
    with open_simulated(disk) as wal:
        found = {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)}
        assert expected.items() <= found.items()


@pytest.mark.parametrize("fails", [("write", ".seg"), ("datasync", "journal")])
def test_a_replacement_that_failed_does_not_complete_itself_later(fails):
    """Its line may be on disk; the ids it names must never be given to other records."""
    disk = SimulatedDisk()
    wal = open_simulated(disk)
    old = wal.append(b"old")
    call, name = fails
    disk.fail(call, errno.EIO, name_part=name)  # the line is there, the records are not
    disk.fail("create", errno.ENOSPC, times=10**6, name_part=".tmp")  # and it stays
    with pytest.raises(WALWriteError):
        wal.replace(old, [b"a", b"b"])
    later = [wal.append(b"%d" % n) for n in range(3)]
    disk.kill_process()
    assert b"put" in disk.files()["journal"]
    disk.heal()
    with open_simulated(disk) as wal:
        entries = wal.peek(EVERYTHING, EVERYTHING)
        assert [entry.id for entry in entries] == [old, *later]


@pytest.mark.parametrize("seed", range(8))
def test_what_was_read_after_a_kill_survives_a_power_cut(seed):
    disk = SimulatedDisk(Random(seed))
    wal = open_simulated(disk)
    wal.append(b"first")
    disk.cut_in(1, kill_only=True)  # written, not synced
    with pytest.raises(BaseException):  # noqa: B017 (the cut is no Exception)
        wal.append(b"second")
    wal = open_simulated(disk)
    read = data_of(wal)
    disk.cut_power()
    with open_simulated(disk) as wal:
        assert data_of(wal) == read


def test_an_unreadable_sector_keeps_the_entry():
    disk = SimulatedDisk()
    wal = open_simulated(disk)
    entry_id = wal.append(b"x")
    disk.fail("read", errno.EIO)
    with pytest.raises(WALReadError) as caught:
        wal.oldest()
    assert caught.value.entry_id == entry_id
    assert wal.oldest().data == b"x"
    assert wal.stats().dropped == 0


def with_bad_sector(count=6):
    """An open WAL whose second record cannot be read."""
    disk, clock = SimulatedDisk(), FakeClock()
    wal = open_simulated(disk, clock=clock)
    ids = [wal.append(b"%d" % n * 30) for n in range(count)]
    (name,) = seg_names(disk)
    size = len(disk.files()[name]) // count
    disk.break_bytes(name, size + 24, 1)
    return disk, clock, wal, ids


def test_a_bad_sector_holds_up_nothing_and_its_entry_stays(caplog):
    disk, clock, wal, ids = with_bad_sector()
    wal.remove(ids[0])
    for _ in range(2):
        with pytest.raises(WALReadError) as caught:
            wal.oldest()
        assert caught.value.entry_id == ids[1]
    assert wal.oldest().id == ids[2]
    assert [entry.id for entry in wal.peek(99, EVERYTHING)] == ids[2:]
    (record,) = caplog.records
    assert "passed over and tried again every minute" in record.getMessage()
    for entry_id in ids[2:]:
        wal.remove(entry_id)
    assert wal.stats().batches == 1
    assert wal.stats().dropped == 0
    with pytest.raises(WALReadError):
        wal.oldest()
    # The disk has got over it.
    disk.heal()
    clock.step(61)
    assert wal.oldest().id == ids[1]


def test_an_entry_that_can_never_be_read_goes_with_its_age():
    disk, clock = SimulatedDisk(), FakeClock()
    wal = WAL.open("simulated", storage=disk.storage(), max_age_seconds=100, clock=clock)
    ids = [wal.append(b"%d" % n * 30) for n in range(2)]
    disk.break_bytes(seg_names(disk)[0], 24, 1)
    for _ in range(2):
        with pytest.raises(WALReadError):
            wal.oldest()
    assert wal.oldest().id == ids[1]
    clock.step(101)
    assert wal.oldest() is None
    assert wal.stats().dropped_by_reason == {"age": 2}


def test_a_shortage_of_descriptors_says_nothing_about_an_entry():
    disk, clock = SimulatedDisk(), FakeClock()
    wal = open_simulated(disk, clock=clock)
    first = wal.append(b"first")
    wal.append(b"second")
    disk.fail("open", errno.EMFILE, times=10)
    for _ in range(10):
        with pytest.raises(WALReadError, match="Too many open files"):
            wal.oldest()
    assert wal.oldest().id == first


def test_a_bad_sector_found_at_opening_costs_its_own_record():
    """And its bytes are set aside with the segment's name, because nobody can copy them."""
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=100_000)
    ids = [wal.append(Random(n).randbytes(9_000)) for n in range(20)]
    disk.kill_process()
    name = seg_names(disk)[0]
    disk.break_bytes(name, 9_024 * 3 + 5_000, 512)
    with open_simulated(disk, segment_bytes=100_000) as wal:
        found = [entry.id for entry in wal.peek(99, EVERYTHING)]
        assert found == [entry_id for entry_id in ids if entry_id != ids[3]]
        assert wal.stats().dropped_by_reason == {"damaged": 1}
        for entry_id in ids:
            wal.remove(entry_id)
        assert name not in disk.files()
        assert wal.stats().quarantine_bytes > 90_000
        wal.append(b"x")
    disk.cut_power()
    with open_simulated(disk) as wal:
        assert data_of(wal) == [b"x"]


def test_an_unreadable_segment_is_left_alone():
    disk = SimulatedDisk()
    wal = open_simulated(disk, segment_bytes=40)
    ids = [wal.append(b"%d" % n * 30) for n in range(4)]
    disk.kill_process()
    last = seg_names(disk)[-1]
    disk.fail("read", errno.EIO, times=10**6, name_part=last)
    with open_simulated(disk) as wal:
        assert wal.recovery.ignored_names == (last,)
        assert len(data_of(wal)) == 3
        assert wal.append(b"x") > ids[-1]
    disk.heal()
    with open_simulated(disk) as wal:
        assert len(data_of(wal)) == 5


def test_an_acknowledgement_that_cannot_be_noted_is_no_error_and_said_once(caplog):
    disk = SimulatedDisk()
    wal = open_simulated(disk)
    ids = [wal.append(b"%d" % n) for n in range(10)]
    for call in ("write", "create"):
        disk.fail(call, errno.ENOSPC, times=10**6)
    for entry_id in ids[:9]:
        wal.remove(entry_id)
    assert data_of(wal) == [b"9"]
    assert len(caplog.records) == 1
    disk.heal()
    wal.remove(12345)
    wal.append(b"x")
    disk.kill_process()
    with open_simulated(disk) as wal:
        assert data_of(wal) == [b"9", b"x"]


def test_a_disk_that_refuses_everything_cannot_be_opened_and_is_let_go():
    disk = SimulatedDisk()
    disk.fail("create", errno.EROFS)
    with pytest.raises(WALOpenError, match="Read-only file system"):
        open_simulated(disk)
    open_simulated(disk).close()


def test_the_disk_never_holds_more_than_the_limit_and_the_record_being_written():
    """W13."""
    disk = SimulatedDisk()
    most = 0

    class Watching:
        def __init__(self, storage):
            self.storage = storage

        def __getattr__(self, name):
            nonlocal most
            most = max(most, disk.used_bytes)
            return getattr(self.storage, name)

    limit, record = 200_000, 3_000
    wal = WAL.open(
        "simulated", storage=Watching(disk.storage()), max_bytes=limit, segment_bytes=20_000
    )
    ids = []
    for n in range(300):
        ids += wal.append_many([Random(n * 7 + m).randbytes(record) for m in range(n % 9 + 1)])
        most = max(most, disk.used_bytes)
    left = [entry.id for entry in wal.peek(EVERYTHING, EVERYTHING)]
    assert most <= limit + record + 100
    assert left == ids[-len(left) :]
    assert wal.stats().dropped == len(ids) - len(left)
    assert len(left) * record > limit * 0.8


@pytest.mark.parametrize("seed", range(20))
def test_what_was_safely_acknowledged_stays_so_when_its_segment_goes(seed):
    """The names of a folder may be cut off in any order: the unlinking later than the journal."""
    cut = 0
    while True:
        disk = SimulatedDisk(Random(100 * seed + cut))
        wal = open_simulated(disk, segment_bytes=1000)
        ids = [wal.append(Random(n).randbytes(400)) for n in range(8)]
        wal.remove(ids[2])
        wal.remove(ids[3])  # the second of four segments goes, the checkpoint stays
        disk.cut_in(cut)
        try:
            wal.remove(ids[4])
            wal.remove(ids[5])
        except PowerCut:
            with open_simulated(disk) as again:
                assert not {ids[2], ids[3]} & {entry.id for entry in again.peek(99, EVERYTHING)}
            cut += 1
        else:
            break
    assert cut > 5
