"""W8 on a real file system of 1 MiB, and real short writes; the simulated disk has the rest.

A tmpfs needs the right to mount; where it is missing its tests are skipped. A simulated file system
of the same size shows the order of things on every machine.
"""

import contextlib
import resource
import signal
import subprocess
import sys
from random import Random

import pytest

from ahwal.errors import WALWriteError
from ahwal.testing import SimulatedDisk
from ahwal.wal import WAL

pytestmark = pytest.mark.fault

SIZE_BYTES = 1024 * 1024
EVERYTHING = 10**9


class TmpfsDisk:
    """A real file system; a crash gives the lock back and closes or notes nothing."""

    def __init__(self, path):
        self.directory = path / "wal"
        self.ballast = path / "ballast"
        self.ballast.write_bytes(bytes(100_000))

    def open(self):
        return WAL.open(self.directory, segment_bytes=100_000)

    def free(self):
        self.ballast.unlink()

    def crash(self, wal):
        # As the system does after kill -9.
        wal._parts.lock.release()


class SimulatedSmallDisk:
    def __init__(self):
        self.disk = SimulatedDisk(Random(1), capacity_bytes=SIZE_BYTES - 100_000)

    def open(self):
        return WAL.open("simulated", storage=self.disk.storage(), segment_bytes=100_000)

    def free(self):
        self.disk.set_capacity(SIZE_BYTES)

    def crash(self, wal):
        self.disk.cut_power()


@pytest.fixture(params=["simulated", "tmpfs"])
def small_disk(request, tmp_path):
    if request.param == "simulated":
        yield SimulatedSmallDisk()
        return
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(tmp_path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("this user may mount no tmpfs: run as root to see a real small file system")
    try:
        yield TmpfsDisk(tmp_path)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_full_file_system_of_1_mib_loses_nothing_that_append_returned(small_disk):
    """W8: append until ENOSPC, free, append 10, crash, reopen."""
    wal = small_disk.open()
    stored = {}
    with contextlib.suppress(WALWriteError):
        for n in range(1000):
            data = Random(n).randbytes(3_000)
            stored[wal.append(data)] = data
    assert 250 < len(stored) < 350
    for _ in range(3):
        with pytest.raises(WALWriteError, match="No space left"):
            wal.append(Random(0).randbytes(5_000))
    assert {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)} == stored
    small_disk.free()
    for n in range(10):
        data = Random(2_000 + n).randbytes(3_000)
        stored[wal.append(data)] = data
    small_disk.crash(wal)
    with small_disk.open() as wal:
        assert {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)} == stored
        assert not wal.recovery.damaged


def test_a_full_file_system_gets_its_room_back_when_all_is_acknowledged(small_disk):
    """W9: although the checkpoint cannot be written at first."""
    wal = small_disk.open()
    ids = []
    with contextlib.suppress(WALWriteError):
        while True:
            ids.append(wal.append(Random(len(ids)).randbytes(3_000)))
    for size in (4000, 2000, 1000, 500, 100, 1):
        with contextlib.suppress(WALWriteError):
            while True:
                ids.append(wal.append(Random(len(ids)).randbytes(size)))
    for entry_id in ids:
        wal.remove(entry_id)
    new = [wal.append(Random(n).randbytes(3_000)) for n in range(200)]
    small_disk.crash(wal)
    with small_disk.open() as wal:
        assert [entry.id for entry in wal.peek(EVERYTHING, EVERYTHING)] == new


LIMITED = """
import os, resource, signal, sys
from random import Random
from ahwal.errors import WALWriteError
from ahwal.wal import WAL
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
wal = WAL.open(sys.argv[1], segment_bytes=10_000_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
refused = 0
for n in range(60):
    try:
        print(wal.append(Random(n).randbytes(3_000)), n, flush=True)
    except WALWriteError as error:
        refused += 1
        if refused == 4:  # there is room again
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
assert refused == 4, refused
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit of a file's size here")
def test_a_real_write_that_is_cut_short_and_then_refused_does_no_harm(tmp_path):
    """W7 and W8: the system takes a part of the record, and then refuses the rest."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    stored = {}
    for line in done.stdout.splitlines():
        entry_id, n = map(int, line.split())
        stored[entry_id] = Random(n).randbytes(3_000)
    assert len(stored) == 56
    with WAL.open(tmp_path) as wal:
        assert {entry.id: entry.data for entry in wal.peek(EVERYTHING, EVERYTHING)} == stored
        assert not wal.recovery.damaged
