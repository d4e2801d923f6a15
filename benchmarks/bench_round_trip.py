"""How does append, read, acknowledge compare with the queues one would use instead?

One real 10 KB batch goes through each queue and is acknowledged, in turns. All are equally durable
where it counts: an append is synced before it returns.

An acknowledgement of ours is a line in the journal without a sync of its own: it survives kill -9
at once, and a power cut after the next sync; an entry whose acknowledgement was lost comes again,
which at least once allows. So each peer is measured twice: as it is, with each commit synced, and
`relaxed`, where its reading and acknowledging commit without a sync of their own too, which is as
near to ours as it can be set. The relaxed litequeue changes `PRAGMA synchronous` between the calls,
and so do the others in their ways; what that costs is in their figures.
"""

import os
import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import diskcache
import litequeue
import persistqueue
from _batches import batch_of_bytes
from _harness import Options, Row, Times, in_turns, main, seconds_of, work_folder

from ahwal import WAL

ROUNDS = 1000
PEERS = {
    "persist-queue SQLiteAckQueue": 10.0,
    "litequeue with synchronous=FULL": 2.5,
    "diskcache.Deque with sqlite_synchronous=2": 1.8,
}
FULL, NORMAL = 2, 1

Turn = Callable[[], None]


Parts = dict[str, list[float]]


@contextmanager
def ours(folder: Path, data: bytes, parts: Parts) -> Iterator[Turn]:
    """The WAL as it comes; how long each of the three steps took is kept beside."""
    with WAL.open(folder / "wal") as queue:

        def turn() -> None:
            began = time.perf_counter()
            queue.append(data)
            appended = time.perf_counter()
            entry = queue.oldest()
            assert entry is not None
            assert entry.data == data
            read = time.perf_counter()
            queue.remove(entry.id)
            parts["append"].append(appended - began)
            parts["read"].append(read - appended)
            parts["acknowledge"].append(time.perf_counter() - read)

        yield turn


@contextmanager
def bare(folder: Path, data: bytes) -> Iterator[Turn]:
    """What no durable queue can do without: one write and one fdatasync of the record."""
    record = bytes(24) + zlib.compress(data, level=1, wbits=-15)
    fd = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def turn() -> None:
        os.write(fd, record)
        os.fdatasync(fd)

    yield turn
    os.close(fd)


def synced(connection: Any, level: int) -> None:
    """Set how a SQLite connection commits."""
    connection.execute(f"PRAGMA synchronous = {level}")


@contextmanager
def persist_queue(folder: Path, data: bytes, *, relaxed: bool) -> Iterator[Turn]:
    """Finished entries are cleared by its own call now and then, as its manual says."""
    queue = persistqueue.SQLiteAckQueue(str(folder / f"persist-{relaxed}"), auto_commit=True)
    connection: Any = queue._putter  # noqa: SLF001 - there is no other way to the setting
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    assert level == FULL, "SQLite's default is not what this comparison is about"
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if relaxed:
            synced(connection, FULL)
        queue.put(data)
        if relaxed:
            synced(connection, NORMAL)
        item = queue.get()
        assert item == data
        queue.ack(item)
        if turns % 1000 == 0:
            queue.clear_acked_data(keep_latest=0)

    yield turn
    queue.close()


@contextmanager
def lite_queue(folder: Path, data: bytes, *, relaxed: bool) -> Iterator[Turn]:
    """Finished entries are pruned now and then, as its manual says."""
    queue: Any = litequeue.LiteQueue(str(folder / f"lite-{relaxed}.sqlite"))
    synced(queue.conn, FULL)
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if relaxed:
            synced(queue.conn, FULL)
        queue.put(data)
        if relaxed:
            synced(queue.conn, NORMAL)
        message = queue.pop()
        assert message.data == data
        queue.done(message.message_id)
        if turns % 1000 == 0:
            queue.prune()

    yield turn
    queue.close()


@contextmanager
def disk_cache(folder: Path, data: bytes, *, relaxed: bool) -> Iterator[Turn]:
    """It has no acknowledgement: what popleft returned is gone, which is at most once."""
    path = str(folder / f"diskcache-{relaxed}")
    cache = diskcache.Cache(path, eviction_policy="none", sqlite_synchronous=FULL)
    queue = diskcache.Deque.fromcache(cache)

    def turn() -> None:
        if relaxed:
            cache.reset("sqlite_synchronous", FULL, update=False)
        queue.append(data)
        if relaxed:
            cache.reset("sqlite_synchronous", NORMAL, update=False)
        assert queue.popleft() == data

    yield turn
    cache.close()


def measure(options: Options) -> list[Row]:
    """One turn of each queue a round."""
    data = batch_of_bytes(10_000)
    makers = dict(zip(PEERS, (persist_queue, lite_queue, disk_cache), strict=True))
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder())
        parts: Parts = {"append": [], "read": [], "acknowledge": []}
        turns = {
            "ours": stack.enter_context(ours(folder, data, parts)),
            "bare": stack.enter_context(bare(folder, data)),
        }
        for name, maker in makers.items():
            turns[name] = stack.enter_context(maker(folder, data, relaxed=False))
            turns[relaxed(name)] = stack.enter_context(maker(folder, data, relaxed=True))
        cases = {name: measured(turn) for name, turn in turns.items()}
        times = in_turns(cases, rounds=options.rounds(ROUNDS), warm_up=options.rounds(100))
    steps = {step: statistics.median(values) * 1e6 for step, values in parts.items()}
    return [row(name, limit, times, steps) for name, limit in PEERS.items()]


def relaxed(name: str) -> str:
    """The name of a peer whose acknowledgements have no sync of their own."""
    return f"{name}, relaxed"


def measured(turn: Turn) -> Callable[[], float]:
    """The time of one turn."""
    return lambda: seconds_of(turn)


def row(name: str, limit: float, times: dict[str, Times], steps: dict[str, float]) -> Row:
    """The answer for one peer, the relaxed one beside it."""
    us, peer, loose = times["ours"], times[name], times[relaxed(name)]
    ratio = peer.median / us.median
    note = (
        f"our acknowledgement has no sync of its own; relaxed to the same, the peer takes "
        f"{loose.micros()}, {loose.median / us.median:.1f} x ours; at the faster quartiles the "
        f"peer as it is takes {peer.fast / us.fast:.1f} x ours"
    )
    if ratio < limit:
        told = ", ".join(f"{step} {value:.0f}" for step, value in steps.items())
        note += (
            f". Ours is {told} µs, and a bare write + fdatasync {times['bare'].median * 1e6:.0f} "
            f"µs: the slower the disk, the nearer the ratio to that of the syncs"
        )
    return Row(
        question=f"append, read, acknowledge, durable, against {name}",
        measured=f"{ratio:.1f} x: {us.micros()} against {peer.micros()}",
        value=round(ratio, 2),
        limit=limit,
        less_is_better=False,
        target=f"at least {limit:g} x",
        note=note,
        figures={
            "ours_median_us": round(us.median * 1e6, 1),
            "peer_median_us": round(peer.median * 1e6, 1),
            "relaxed_peer_median_us": round(loose.median * 1e6, 1),
            "relaxed_ratio": round(loose.median / us.median, 2),
            "bare_sync_us": round(times["bare"].median * 1e6, 1),
            **{f"our_{step}_us": round(value, 1) for step, value in steps.items()},
        },
    )


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "isal", "persist-queue", "litequeue", "diskcache"])
