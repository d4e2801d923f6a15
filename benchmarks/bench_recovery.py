"""How long does opening a full WAL take, and how much memory?

A WAL of 10 KB records is opened by a fresh process, which reads and checks every byte. Its memory
is the peak (VmHWM) beyond that of a process that opens an empty one. The time is measured with the
files in the page cache, as after a restart of the process, and with them dropped from it, as after
a restart of the machine, where a plain read of the same files stands beside it.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from _harness import Options, Row, Times, in_turns, main, work_folder

from ahwal import WAL

RECORD_BYTES = 10_000
MIB = 1 << 20
ROUNDS = 5
OPEN = """
import json, sys, time
from pathlib import Path
from ahwal import WAL
began = time.perf_counter()
with WAL.open(sys.argv[1], max_bytes=2 << 30) as queue:
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()
    print(json.dumps({
        "seconds": seconds,
        "records": queue.stats().batches,
        "peak_kib": int(status.partition("VmHWM:")[2].split()[0]),
    }))
"""


def fill(folder: Path, size_bytes: int) -> int:
    """Make a WAL of so many bytes and return its records: they cannot be deflated."""
    rng = random.Random(size_bytes)
    count = size_bytes // RECORD_BYTES
    with WAL.open(folder, max_bytes=2 << 30) as queue:
        for begin in range(0, count, 400):
            size = min(400, count - begin)
            queue.append_many([rng.randbytes(RECORD_BYTES - 24) for _ in range(size)])
    return count


def opened(folder: Path) -> dict[str, float]:
    """Open it in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(folder)], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def segments(folder: Path) -> Iterator[int]:
    """A descriptor of each segment, one after another."""
    for file in sorted(folder.glob("*.seg")):
        fd = os.open(file, os.O_RDONLY)
        try:
            yield fd
        finally:
            os.close(fd)


def drop_from_cache(folder: Path) -> None:
    """Make the next reader wait for the disk."""
    for fd in segments(folder):
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(folder: Path) -> float:
    """The seconds that reading the files alone takes, from the disk."""
    drop_from_cache(folder)
    began = time.perf_counter()
    for fd in segments(folder):
        while os.read(fd, 256 * 1024):
            pass
    return time.perf_counter() - began


def measure(options: Options) -> list[Row]:
    """Both sizes, each opened several times."""
    rows = []
    with work_folder() as home:
        empty = home / "empty"
        WAL.open(empty).close()
        least = min(opened(empty)["peak_kib"] for _ in range(3))
        for size, limit in ((50 * MIB, 3.0), (1024 * MIB, 6.0)):
            folder = home / str(size)
            count = fill(folder, size // 50 if options.quick else size)
            rows += measure_size(folder, count, size // MIB, limit, least)
    return rows


def measure_size(folder: Path, count: int, mib: int, limit: float, least_kib: float) -> list[Row]:
    """Warm, cold and the plain read in turns."""
    peaks: list[float] = []

    def warm() -> float:
        found = opened(folder)
        assert found["records"] == count
        peaks.append(found["peak_kib"])
        return found["seconds"]

    def cold() -> float:
        drop_from_cache(folder)
        return warm()

    warm()
    times = in_turns(
        {"warm": warm, "cold": cold, "read": lambda: plain_read(folder)}, rounds=ROUNDS, warm_up=0
    )
    more_mib = (max(peaks) - least_kib) / 1024
    figures = {f"{name}_seconds": round(found.median, 3) for name, found in times.items()}
    figures |= {"records": count, "more_memory_mib": round(more_mib, 1)}
    rows = [time_row(mib, limit, times, figures)]
    if mib == 1024:
        rows.append(
            Row(
                question="memory to open a WAL of 1 GiB, beside an empty one",
                measured=f"{more_mib:.1f} MiB more at the peak, for {count:,} records",
                value=round(more_mib, 1),
                limit=64.0,
                less_is_better=True,
                target="at most 64 MiB more",
                figures=figures,
            )
        )
    return rows


def time_row(mib: int, limit: float, times: dict[str, Times], figures: dict[str, float]) -> Row:
    """The answer in seconds."""
    warm, cold, read = times["warm"], times["cold"], times["read"]
    size = "1 GiB" if mib == 1024 else f"{mib} MiB"
    return Row(
        question=f"opening a WAL of {size} of 10 KB records",
        measured=f"{warm.each(2)} s",
        value=round(warm.median, 3),
        limit=limit,
        less_is_better=True,
        target=f"at most {limit:g} s",
        note=f"files in the page cache; from the disk {cold.each(2)} s, where reading the files "
        f"alone takes {read.each(2)} s",
        figures=figures,
    )


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "google-crc32c"])
