"""What a caller sees of a healthy WAL."""

import stat
import threading
from random import Random

import pytest

from ahwal.queue import DropReason
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL

DAY = 24 * 3600


class Clock:
    def __init__(self, now=1_700_000_000.0):
        self.now, self.steady = now, 50.0

    def time(self):
        return self.now

    def monotonic(self):
        return self.steady

    def pass_time(self, seconds):
        self.now += seconds
        self.steady += seconds


def data_of(wal):
    return [entry.data for entry in wal.peek(10**6, 10**9)]


def segments(directory):
    return sorted(path.name for path in directory.glob("*.seg"))


def test_a_restart_does_not_bring_back_what_was_acknowledged(tmp_path):
    with WAL.open(tmp_path) as wal:
        ids = [wal.append(b"%d" % n) for n in range(10)]
        for entry_id in (ids[0], ids[1], ids[5]):
            wal.remove(entry_id)
    with WAL.open(tmp_path) as wal:
        assert data_of(wal) == [b"2", b"3", b"4", b"6", b"7", b"8", b"9"]
        assert wal.stats().batches == 7


def test_ids_never_restart_after_empty_and_reopen(tmp_path):
    seen = []
    for _ in range(4):
        with WAL.open(tmp_path, segment_bytes=60) as wal:
            seen += [wal.append(b"x" * 30) for _ in range(3)]
            for entry in wal.peek(10, 1000):
                wal.remove(entry.id)
    assert seen == list(range(1, 13))


def test_drained_and_restarted_each_comes_exactly_once(tmp_path):
    """W12."""
    came = []
    for number in range(4):
        with WAL.open(tmp_path) as wal:
            wal.append(b"%d" % number)
            while (entry := wal.oldest()) is not None:
                came.append(entry.data)
                wal.remove(entry.id)
    assert came == [b"0", b"1", b"2", b"3"]


def test_rotation_deletes_finished_segments(tmp_path):
    with WAL.open(tmp_path, segment_bytes=200) as wal:
        ids = [wal.append(bytes(range(100))) for _ in range(10)]
        assert len(segments(tmp_path)) == 10
        for entry_id in ids[:7]:
            wal.remove(entry_id)
        assert segments(tmp_path) == [f"{entry_id:016x}.seg" for entry_id in ids[7:]]
        for entry_id in ids[7:]:
            wal.remove(entry_id)
        assert len(segments(tmp_path)) == 1


def test_a_finished_segment_in_the_middle_goes_too(tmp_path):
    with WAL.open(tmp_path, segment_bytes=200) as wal:
        ids = [wal.append(bytes(range(100))) for _ in range(5)]
        wal.remove(ids[2])
        assert f"{ids[2]:016x}.seg" not in segments(tmp_path)
    with WAL.open(tmp_path) as wal:
        assert [entry.id for entry in wal.peek(10, 10**6)] == [ids[0], ids[1], ids[3], ids[4]]


def test_ten_hours_leave_at_most_two_segments_and_nothing_old(tmp_path):
    """W11."""
    disk, clock = SimulatedDisk(), Clock()
    wal = WAL.open("simulated", storage=disk.storage(), clock=clock, segment_bytes=20_000)
    for n in range(1200):
        wal.append(b"%d" % n + bytes(range(256)))
        entry = wal.oldest()
        wal.remove(entry.id)
        assert sum(name.endswith(".seg") for name in disk.files()) <= 2
        clock.pass_time(30)
    disk.kill_process()
    with WAL.open("simulated", storage=disk.storage(), clock=clock) as wal:
        assert wal.oldest() is None


def test_the_size_limit_drops_the_oldest_segments(tmp_path):
    with WAL.open(tmp_path, max_bytes=3000, segment_bytes=500) as wal:
        for n in range(100):
            wal.append(b"%03d" % n + bytes(range(100)))
        left = data_of(wal)
        stats = wal.stats()
        assert left[-1].startswith(b"099")
        assert [item[:3] for item in left] == [b"%03d" % n for n in range(100 - len(left), 100)]
        assert stats.dropped == 100 - len(left)
        assert stats.dropped_by_reason == {DropReason.SIZE: 100 - len(left)}
        assert stats.bytes <= 3000
    with WAL.open(tmp_path, max_bytes=3000, segment_bytes=500) as wal:
        assert data_of(wal) == left
        assert wal.stats().dropped == 0
    with WAL.open(tmp_path, max_bytes=1500, segment_bytes=500) as wal:
        assert 0 < len(data_of(wal)) < len(left)


def test_the_last_segment_is_never_given_up(tmp_path):
    with WAL.open(tmp_path, max_bytes=300, segment_bytes=100) as wal:
        big = bytes(range(256)) * 4
        for _ in range(3):
            wal.append(big)
        assert data_of(wal) == [big]


class TestAge:
    def open(self, disk, clock, age=100):
        return WAL.open("simulated", storage=disk.storage(), clock=clock, max_age_seconds=age)

    def test_is_kept_at_each_append(self):
        clock = Clock()
        wal = self.open(SimulatedDisk(), clock)
        for _ in range(20):
            wal.append(b"x")
            clock.pass_time(30)
        assert wal.stats().batches == 4
        assert wal.stats().dropped_by_reason == {DropReason.AGE: 16}

    def test_is_kept_at_each_read(self):
        clock = Clock()
        wal = self.open(SimulatedDisk(), clock)
        wal.append(b"old")
        clock.pass_time(60)
        wal.append(b"new")
        clock.pass_time(60)
        assert wal.oldest().data == b"new"
        clock.pass_time(60)
        assert wal.oldest() is None

    def test_is_kept_at_opening(self):
        clock, disk = Clock(), SimulatedDisk()
        with self.open(disk, clock) as wal:
            wal.append(b"old")
            clock.pass_time(60)
            wal.append(b"new")
        clock.pass_time(60)
        with self.open(disk, clock) as wal:
            assert data_of(wal) == [b"new"]
            assert wal.stats().dropped == 1

    @pytest.mark.parametrize("step", [-3600, 3600, 10 * 365 * DAY])
    def test_steps_of_the_wall_clock_change_nothing(self, step):
        """W15."""
        clock = Clock()
        wal = self.open(SimulatedDisk(), clock)
        wal.append(b"1")
        clock.now += step
        clock.pass_time(50)
        wal.append(b"2")
        assert data_of(wal) == [b"1", b"2"]
        clock.pass_time(60)
        assert data_of(wal) == [b"2"]

    def test_a_step_found_at_opening_is_never_silent(self, caplog):
        """W15."""
        clock, disk = Clock(), SimulatedDisk()
        with self.open(disk, clock) as wal:
            wal.append_many([b"x"] * 7)
        clock.now += 10 * 365 * DAY
        with self.open(disk, clock) as wal:
            assert wal.oldest() is None
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert [record.dropped for record in warnings] == [{"age": 7}]

    def test_a_wall_clock_behind_the_records_makes_none_immortal(self):
        clock, disk = Clock(), SimulatedDisk()
        with self.open(disk, clock) as wal:
            wal.append(b"x")
        clock.now -= 30 * DAY
        with self.open(disk, clock) as wal:
            assert data_of(wal) == [b"x"]
            clock.pass_time(101)
            assert data_of(wal) == []

    def test_an_endpoint_dead_since_birth_fills_no_disk(self):
        """W14."""
        clock, disk = Clock(), SimulatedDisk()
        wal = WAL.open(
            "simulated",
            storage=disk.storage(),
            clock=clock,
            max_age_seconds=1,
            segment_bytes=1000,
        )
        for _ in range(300):
            wal.append(bytes(range(200)))
            clock.pass_time(0.5)
        assert disk.used_bytes < 5000
        assert wal.stats().dropped + wal.stats().batches == 300


def test_replacements_keep_their_place_through_a_restart(tmp_path):
    with WAL.open(tmp_path, segment_bytes=100) as wal:
        ids = [wal.append(b"%d" % n) for n in range(6)]
        halves = wal.replace(ids[2], [b"2a", b"2b"])
        wal.replace(halves[0], [b"2aa", b"2ab"])
        wal.remove(ids[0])
    for _ in range(2):
        with WAL.open(tmp_path, segment_bytes=100) as wal:
            assert data_of(wal) == [b"1", b"2aa", b"2ab", b"2b", b"3", b"4", b"5"]
            wal.append(b"more")
            wal.remove(wal.peek(100, 1000)[-1].id)


def test_the_journal_is_rewritten_before_it_grows():
    disk = SimulatedDisk()
    with WAL.open("simulated", storage=disk.storage()) as wal:
        for _ in range(3):
            ids = wal.append_many([b"x"] * 5000)
            before = disk.calls
            for entry_id in reversed(ids[1:]):
                wal.remove(entry_id)
                assert len(disk.files().get("journal", b"")) < 200_000
            assert disk.calls - before < 5100
            wal.remove(ids[0])
            wal.remove(wal.append(b"y"))
        last = wal.append(b"z")
    with WAL.open("simulated", storage=disk.storage()) as wal:
        assert [entry.id for entry in wal.peek(10, 100)] == [last]


def test_files_are_for_the_owner_only(tmp_path):
    directory = tmp_path / "state" / "wal"
    directory.mkdir(parents=True, mode=0o755)
    with WAL.open(directory, segment_bytes=50) as wal:
        ids = [wal.append(b"%d" % n * 40) for n in range(5)]
        wal.remove(ids[1])
        wal.quarantine(ids[2])
        wal.remove(ids[0])
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode)
            for path in [directory, *directory.rglob("*")]
        }
    assert modes.pop("wal") == 0o700
    assert modes.pop("quarantine") == 0o700
    assert set(modes.values()) == {0o600}
    assert {"checkpoint", "format", "lock"} <= modes.keys()


def test_what_is_set_aside_can_be_queued_again(tmp_path):
    with WAL.open(tmp_path) as wal:
        bad = wal.append(b"bad batch")
        good = wal.append(b"good")
        assert wal.quarantine(bad)
        assert wal.stats().quarantined == 1
    with WAL.open(tmp_path) as wal:
        assert [entry.id for entry in wal.peek(10, 1000)] == [good]
        (entry,) = wal.quarantined()
        assert (entry.id, entry.data) == (bad, b"bad batch")
        new_id = wal.requeue(bad)
        assert new_id == good + 1
        assert data_of(wal) == [b"good", b"bad batch"]
        assert wal.quarantined() == []
        assert wal.requeue(bad) is None


def test_the_quarantine_holds_a_tenth_and_counts_what_goes(tmp_path):
    with WAL.open(tmp_path, max_bytes=10_000) as wal:
        for n in range(10):
            assert wal.quarantine(wal.append(b"%d" % n + bytes(range(256))))
        stats = wal.stats()
        assert stats.quarantine_bytes <= 1000
        assert 0 < stats.quarantined < 10
        assert stats.dropped_by_reason == {DropReason.QUARANTINE: 10 - stats.quarantined}
        assert wal.quarantined()[-1].data.startswith(b"9")
        assert not wal.quarantine(wal.append(Random(1).randbytes(1100)))
        assert wal.stats().batches == 0


def test_a_smaller_limit_is_kept_at_opening(tmp_path):
    with WAL.open(tmp_path, max_bytes=10_000, segment_bytes=500) as wal:
        ids = [wal.append(Random(n).randbytes(100)) for n in range(50)]
    with WAL.open(tmp_path, max_bytes=2_000, segment_bytes=500) as wal:
        assert sum(path.stat().st_size for path in tmp_path.glob("*.seg")) <= 2_000
        left = [entry.id for entry in wal.peek(99, 10**9)]
        assert left == ids[-len(left) :]
        assert wal.stats().dropped_by_reason == {DropReason.SIZE: len(ids) - len(left)}


def test_an_append_is_one_write_and_one_sync():
    disk = SimulatedDisk()
    wal = WAL.open("simulated", storage=disk.storage())
    wal.append(b"first")
    before = disk.calls
    wal.append(Random(1).randbytes(100_000))
    assert disk.calls - before == 2


def test_append_many_makes_one_sync():
    disk = SimulatedDisk()
    wal = WAL.open("simulated", storage=disk.storage())
    wal.append(b"first")
    before = disk.calls
    wal.append_many([b"x"] * 100)
    assert disk.calls - before == 2  # a write and a sync


def test_threads_share_syncs(tmp_path):
    """While one syncs, the others line up and are written together."""
    reached, go_on = threading.Event(), threading.Event()

    class SlowStorage:
        def __init__(self, storage):
            self.storage, self.writes, self.slow = storage, 0, False

        def __getattr__(self, name):
            return getattr(self.storage, name)

        def create(self, name):
            return SlowFile(self.storage.create(name), self)

    class SlowFile:
        def __init__(self, file, storage):
            self.file, self.storage = file, storage

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            self.storage.writes += 1
            return self.file.write(data)

        def datasync(self):
            if self.storage.slow:
                reached.set()
                assert go_on.wait(30)
            self.file.datasync()

    storage = SlowStorage(SimulatedDisk().storage())
    wal = WAL.open("simulated", storage=storage)
    wal.append(b"first")
    storage.writes, storage.slow = 0, True
    threads = [threading.Thread(target=wal.append, args=(b"%d" % n,)) for n in range(8)]
    threads[0].start()
    assert reached.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(wal._committer.line) < 7:
        pass
    go_on.set()
    for thread in threads:
        thread.join()
    assert storage.writes == 2
    assert wal.stats().batches == 9


def test_stats_never_wait_for_the_disk(tmp_path):
    """W23: an event loop may ask."""
    with WAL.open(tmp_path) as wal:
        wal.append(b"x")
        with wal._lock:  # as while a sync takes its time
            assert wal.stats().batches == 1


def test_what_is_dropped_is_logged_once_a_minute_and_all_of_it(caplog):
    """W29."""
    clock = Clock()
    wal = WAL.open("simulated", storage=SimulatedDisk().storage(), clock=clock, max_age_seconds=10)
    for _ in range(60):
        wal.append(b"x")
        clock.pass_time(10)
        wal.oldest()
    wal.close()
    reports = [record.dropped["age"] for record in caplog.records]
    assert 10 <= len(reports) <= 12
    assert sum(reports) == wal._keeper.dropped["age"] > 50


@pytest.mark.parametrize("setting", ["max_bytes", "max_age_seconds", "segment_bytes"])
def test_limits_must_be_above_zero(tmp_path, setting):
    with pytest.raises(ValueError, match=f"{setting} is 0; it must be a number above 0"):
        WAL.open(tmp_path, **{setting: 0})
