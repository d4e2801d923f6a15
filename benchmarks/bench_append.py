"""How much does a durable append cost beside the disk itself?

One real batch of about 10 KB is appended to a WAL; beside it, in turns, the bytes of the same
record are written to a plain file with one write and one fdatasync. The answers are the ratios of
the medians. `without deflate` is the same append with the payload deflated beforehand.
"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock
from zlib import compress as zlib_compress

from _batches import batch_of_bytes
from _harness import Options, Row, Times, in_turns, main, seconds_of, work_folder

from ahwal import WAL
from ahwal.wal import _wal

RECORD_HEADER_BYTES = 24
ROUNDS = 3000


def deflaters(data: bytes) -> dict[str, Callable[[bytes], bytes]]:
    """The ways to a payload: none at all, zlib, and isal where it is installed."""
    ready = zlib_compress(data, level=1, wbits=-15)
    found: dict[str, Callable[[bytes], bytes]] = {
        "without deflate": lambda _data: ready,
        "deflate with zlib": lambda data: zlib_compress(data, level=1, wbits=-15),
    }
    try:
        from isal.isal_zlib import compress as isal_compress  # noqa: PLC0415 - may not be there
    except ImportError:
        return found
    found["deflate with isal"] = lambda data: isal_compress(data, level=1, wbits=-15)
    return found


def measure(options: Options) -> list[Row]:
    """Append in turns with the bare disk."""
    data = batch_of_bytes(10_000)
    ways = deflaters(data)
    record = b"\0" * RECORD_HEADER_BYTES + ways["without deflate"](data)
    chosen = ways["without deflate"]
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder())

        def deflate(data: bytes) -> bytes:
            return chosen(data)

        stack.enter_context(mock.patch.object(_wal, "deflate", deflate))
        fd = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stack.callback(os.close, fd)

        def bare() -> None:
            os.write(fd, record)
            os.fdatasync(fd)

        def ours(name: str) -> Callable[[], float]:
            queue = stack.enter_context(WAL.open(folder / name, max_bytes=1 << 30))

            def once() -> float:
                nonlocal chosen
                chosen = ways[name]
                return seconds_of(lambda: queue.append(data))

            return once

        cases = {name: ours(name) for name in ways} | {"bare": lambda: seconds_of(bare)}
        times = in_turns(cases, rounds=options.rounds(ROUNDS), warm_up=options.rounds(200))
    return [row(name, times, data, record) for name in ways]


def row(name: str, times: dict[str, Times], data: bytes, record: bytes) -> Row:
    """The answer for one way to a payload."""
    ratio = times[name].median / times["bare"].median
    limit = 1.15 if name == "without deflate" else 1.6
    fast = times[name].fast / times["bare"].fast
    note = f"at the faster quartile {fast:.2f}"
    if ratio > limit:
        extra = (times[name].median - times["bare"].median) * 1e6
        note += f"; {extra:.0f} µs of Python, with cold caches behind each sync, beside the disk's"
    return Row(
        question=f"durable append of a 10 KB batch, {name}, against write + fdatasync of the "
        "record's bytes",
        measured=f"{ratio:.2f}: {times[name].micros()} against {times['bare'].micros()}",
        value=round(ratio, 3),
        limit=limit,
        less_is_better=True,
        target=f"at most {limit}",
        note=note,
        figures={
            "ours_median_us": round(times[name].median * 1e6, 1),
            "bare_median_us": round(times["bare"].median * 1e6, 1),
            "faster_quartile_ratio": round(fast, 3),
            "batch_bytes": len(data),
            "record_bytes": len(record),
            "rounds": len(times[name].values),
        },
    )


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "isal", "google-crc32c"])
