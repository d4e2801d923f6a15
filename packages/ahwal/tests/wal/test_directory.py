"""The directory that is moved, deleted or replaced under an open WAL, or holds what is no file."""

import errno
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from wal_fork import assert_a_child_is_refused_every_use

from ahwal.errors import WALOpenError, WALReadError, WALWriteError
from ahwal.queue import DropReason
from ahwal.wal import WAL, PosixStorage

pytestmark = pytest.mark.fault

EVERYTHING = 10**9


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "ahwal.wal")


class Clock:
    """Each look at it takes a second, because the directory is looked for once a second."""

    def __init__(self):
        self.seconds = 0.0

    def time(self):
        return time.time()

    def monotonic(self):
        self.seconds += 1
        return self.seconds


def open_wal(path):
    return WAL.open(path, segment_bytes=100, clock=Clock())


def all_of(wal):
    return [entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)]


def append_ten(wal):
    return [wal.append(b"%d" % n * 40) for n in range(10)]


def test_a_relative_path_stays_where_it_was_when_the_program_changes_its_directory(
    tmp_path, monkeypatch
):
    """And a WAL at the same relative path of the new directory is never touched."""
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "other")
    other = WAL.open("state/wal", segment_bytes=100)
    append_ten(other)
    monkeypatch.chdir(tmp_path / "mine")
    mine = WAL.open("state/wal", segment_bytes=100)
    append_ten(mine)
    monkeypatch.chdir(tmp_path / "other")
    before = sorted(Path("state/wal").iterdir())
    assert len(all_of(mine)) == 10
    mine.append(b"after")
    mine.close()
    assert sorted(Path("state/wal").iterdir()) == before
    assert len(all_of(other)) == 10
    other.close()
    with WAL.open(tmp_path / "mine/state/wal") as wal:
        assert len(all_of(wal)) == 11
        assert not wal.recovery.damaged


def test_a_relative_path_in_a_working_directory_that_is_gone_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(WALOpenError, match="cannot be used"):
        WAL.open("wal")


def test_a_directory_that_is_away_for_a_moment_costs_no_entry(tmp_path):
    """It takes none meanwhile: nobody would find them after a restart."""
    wal = open_wal(tmp_path / "wal")
    append_ten(wal)
    (tmp_path / "wal").rename(tmp_path / "away")
    assert len(all_of(wal)) == 10
    with pytest.raises(WALWriteError, match="renamed"):
        wal.append(b"x")
    with pytest.raises(WALWriteError, match="renamed"):
        wal.replace(1, [b"x"])
    (tmp_path / "away").rename(tmp_path / "wal")
    wal.append(b"back")
    assert wal.stats().dropped == 0
    assert len(all_of(wal)) == 11
    wal.close()
    with WAL.open(tmp_path / "wal") as wal:
        assert len(all_of(wal)) == 11


def test_an_entry_whose_file_is_not_found_stays_while_the_directory_is_away(tmp_path):
    wal = open_wal(tmp_path / "wal")
    ids = append_ten(wal)
    (tmp_path / "wal").rename(tmp_path / "away")
    (tmp_path / "away" / f"{1:016x}.seg").rename(tmp_path / "kept")
    with pytest.raises(WALReadError, match="renamed") as caught:
        wal.oldest()
    assert caught.value.entry_id == ids[0]
    with pytest.raises(WALReadError, match="renamed"):
        wal.quarantine(ids[0])
    (tmp_path / "kept").rename(tmp_path / "away" / f"{1:016x}.seg")
    (tmp_path / "away").rename(tmp_path / "wal")
    assert len(all_of(wal)) == 10
    assert wal.stats().dropped == 0
    wal.close()


def test_another_queue_that_was_put_in_the_place_is_not_touched(tmp_path, caplog):
    wal = open_wal(tmp_path / "wal")
    append_ten(wal)
    wal.remove(1)
    (tmp_path / "wal").rename(tmp_path / "away")
    with WAL.open(tmp_path / "wal") as other:
        other.append(b"other")
        with pytest.raises(WALWriteError, match="replaced"):
            wal.append(b"x")
        wal.remove(2)
        caplog.set_level(logging.ERROR, "ahwal.wal")
        wal.close()
        assert "is not where it was" in caplog.text
        assert all_of(other) == [b"other"]
    with WAL.open(tmp_path / "away") as wal:
        assert [entry.id for entry in wal.peek(EVERYTHING, EVERYTHING)] == list(range(3, 11))


def test_nothing_is_stored_in_a_directory_that_was_deleted(tmp_path, caplog):
    wal = open_wal(tmp_path / "wal")
    wal.append(b"a")
    shutil.rmtree(tmp_path / "wal")
    with pytest.raises(WALWriteError, match="deleted"):
        wal.append(b"b")
    caplog.set_level(logging.ERROR, "ahwal.wal")
    wal.close()
    assert "is not where it was" in caplog.text
    assert caplog.records[-1].batches == 1
    assert not (tmp_path / "wal").exists()


def test_nothing_is_stored_in_a_segment_that_was_deleted(tmp_path):
    with WAL.open(tmp_path) as wal:
        wal.append(b"a")
        (tmp_path / f"{1:016x}.seg").unlink()
        with pytest.raises(WALWriteError, match="deleted while it was in use"):
            wal.append(b"b")
        wal.append(b"c")
    with WAL.open(tmp_path) as wal:
        assert all_of(wal) == [b"c"]


def test_a_deleted_directory_is_noticed_with_the_next_sync_however_soon(tmp_path):
    wal = WAL.open(tmp_path / "wal")
    wal.append(b"a")
    shutil.rmtree(tmp_path / "wal")
    with pytest.raises(WALWriteError, match="deleted"):
        wal.append(b"b")
    assert wal.stats().batches == 1
    # What was in it can never come back, so it is counted and not waited for.
    assert wal.oldest() is None
    assert wal.stats().dropped_by_reason == {DropReason.DAMAGED: 1}
    wal.close()


def test_a_storage_says_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(PosixStorage("wal")) == str(tmp_path / "wal")


class TestAFork:
    """The child gets an error at once, also while the lock of the WAL is held in the parent."""

    def test_while_another_thread_waits_for_the_disk_hangs_no_use_in_the_child(self, tmp_path):
        syncing, go_on = threading.Event(), threading.Event()

        class SlowFile:
            def __init__(self, file):
                self.file = file

            def __getattr__(self, name):
                return getattr(self.file, name)

            def datasync(self):
                syncing.set()
                assert go_on.wait(30)
                self.file.datasync()

        class SlowStorage(PosixStorage):
            def create(self, name):
                file = super().create(name)
                return SlowFile(file) if name.endswith(".seg") else file

        wal = WAL.open(tmp_path, storage=SlowStorage(tmp_path))
        appending = threading.Thread(target=wal.append, args=(b"x",))
        appending.start()
        assert syncing.wait(30)
        try:
            assert_a_child_is_refused_every_use(wal, 1)
        finally:
            go_on.set()
            appending.join()
            wal.close()


def put_directory(path):
    (path / "inside").mkdir(parents=True)


def put_fifo(path):
    os.mkfifo(path)


def put_link(path):
    (path.parent.parent / "precious").write_text("precious")
    path.symlink_to(path.parent.parent / "precious")


OPEN = """
import sys
from ahwal import WAL
from ahwal.errors import WALOpenError
try:
    with WAL.open(sys.argv[1]) as wal:
        print(len(wal.peek(9, 999)), wal.append(b"new"))
except WALOpenError as error:
    print(error)
"""


def open_in_time(directory):
    """In a process of its own, because what it is to show is that it does not hang."""
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("put", [put_directory, put_fifo, put_link])
class TestWhatIsNoFile:
    @pytest.fixture
    def directory(self, tmp_path):
        with WAL.open(tmp_path / "wal") as wal:
            wal.append(b"x")
            wal.append(b"y")
            wal.remove(1)
        return tmp_path / "wal"

    def test_in_the_place_of_a_file_is_moved_aside_and_not_followed(self, directory, put):
        """W1."""
        for name in ("format", "checkpoint", "journal"):
            (directory / name).unlink(missing_ok=True)
            put(directory / name)
        put(directory / f"{99:016x}.seg")
        assert open_in_time(directory) == "2 3"  # the checkpoint says nothing: both come again
        assert (directory / "format").read_text() == "1"
        assert len(list(directory.glob("*.aside-0"))) == 3
        if put is put_link:
            assert (directory.parent / "precious").read_text() == "precious"

    def test_in_the_place_of_the_lock_is_named_and_left_alone(self, directory, put):
        (directory / "lock").unlink()
        put(directory / "lock")
        assert "its `lock` is no ordinary file; remove it, or move it away" in open_in_time(
            directory
        )
        if put is put_link:
            assert (directory.parent / "precious").read_text() == "precious"


def test_what_is_no_file_is_refused_by_the_storage(tmp_path):
    put_fifo(tmp_path / "fifo")
    for use in (PosixStorage(tmp_path).open, PosixStorage(tmp_path).open_read):
        with pytest.raises(IsADirectoryError) as caught:
            use("fifo")
        assert caught.value.errno == errno.EISDIR
