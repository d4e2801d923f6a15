"""How much do eight threads gain by sharing syncs, and how close is that to the disk?

Eight threads append a real 10 KB batch each, over and over. Beside it, in turns: one thread alone,
and a bare group commit, the shortest that is right: a list under one condition, whose leader makes
one write and one fdatasync for all who wait. The bare one gets its record ready made; we deflate,
checksum, index and keep the limits beside it.
"""

import os
import threading
import time
from collections.abc import Callable
from zlib import compress

from _batches import batch_of_bytes
from _harness import Options, Row, Times, in_turns, main, work_folder

from ahwal import WAL

THREADS = 8
# Short turns, so that a disk that is slow for a while is slow for all three.
APPENDS = 400
ROUNDS = 60


class BareGroupCommit:
    """Records to one file, where who waits shares a sync."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._condition = threading.Condition()
        self._waiting: list[bytes] = []
        self._group = 0
        self._done = -1
        self._busy = False

    def append(self, record: bytes) -> None:
        """Return when the record is safe."""
        with self._condition:
            self._waiting.append(record)
            mine = self._group
            while self._busy and self._done < mine:
                self._condition.wait()
            if self._done >= mine:
                return
            self._busy = True
            group, self._waiting = self._waiting, []
            self._group += 1
        os.write(self._fd, b"".join(group))
        os.fdatasync(self._fd)
        with self._condition:
            self._busy = False
            self._done = mine
            self._condition.notify_all()


def rate(append: Callable[[], object], *, threads: int, appends: int) -> float:
    """Appends a second of so many threads together."""

    def work() -> None:
        for _ in range(appends // threads):
            append()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return appends / (time.perf_counter() - began)


def measure(options: Options) -> list[Row]:
    """Run all of them in turns."""
    data = batch_of_bytes(10_000)
    record = b"\0" * 24 + compress(data, level=1, wbits=-15)
    with work_folder() as folder:
        fd = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        bare = BareGroupCommit(fd)
        with WAL.open(folder / "wal", max_bytes=1 << 30) as queue:
            times = in_turns(
                {
                    "one": lambda: rate(
                        lambda: queue.append(data), threads=1, appends=APPENDS // 4
                    ),
                    "ours": lambda: rate(
                        lambda: queue.append(data), threads=THREADS, appends=APPENDS
                    ),
                    "bare": lambda: rate(
                        lambda: bare.append(record), threads=THREADS, appends=APPENDS
                    ),
                },
                rounds=options.rounds(ROUNDS),
            )
        os.close(fd)
    return rows(times)


def rows(times: dict[str, Times]) -> list[Row]:
    """The two answers."""
    figures = {f"{name}_per_second": round(found.median) for name, found in times.items()}
    ours, one, bare = times["ours"], times["one"], times["bare"]
    return [
        Row(
            question="8 threads with group commit, against one thread",
            measured=f"{ours.median / one.median:.1f} x: {ours.each()} a second against "
            f"{one.each()}",
            value=round(ours.median / one.median, 3),
            limit=2.0,
            less_is_better=False,
            target="at least 2 x",
            figures=figures,
        ),
        Row(
            question="8 threads with group commit, against a bare group commit of ready records",
            measured=f"{ours.median / bare.median:.1%}: {ours.each()} a second against "
            f"{bare.each()}",
            value=round(ours.median / bare.median, 3),
            limit=0.8,
            less_is_better=False,
            target="at least 80 %",
            note=""
            if ours.median >= 0.8 * bare.median
            else "deflate, index and limits share two cores and the GIL with the threads that wait",
            figures=figures,
        ),
    ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "isal", "google-crc32c"])
