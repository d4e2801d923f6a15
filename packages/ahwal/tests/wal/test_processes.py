"""More than one process: locks, forks, kills."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ahwal.errors import WALClosedError, WALLockedError
from ahwal.wal import WAL

pytestmark = pytest.mark.fault

HOLD = """
import sys, time
from ahwal.errors import WALLockedError
from ahwal.wal import WAL
try:
    wal = WAL.open(sys.argv[1])
except WALLockedError as error:
    print("locked", error.pid, flush=True)
else:
    print("open", flush=True)
    sys.stdin.read()
"""

WRITE = """
import sys
from ahwal.wal import WAL
wal = WAL.open(sys.argv[1], segment_bytes=20_000, max_bytes=50_000_000)
print("ready", flush=True)
number = int(sys.argv[2])
while True:
    ids = wal.append_many([b"%d," % (number + n) * 40 for n in range(3)])
    print(*ids, number, flush=True)
    if number % 7 == 0:
        entry = wal.oldest()
        print("removing", entry.id, flush=True)
        wal.remove(entry.id)
        print("removed", entry.id, flush=True)
    number += 3
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process):
    process.kill()
    process.communicate()


def test_a_second_process_is_told_who_holds_the_directory(tmp_path):
    """W16."""
    holder = start(HOLD, tmp_path)
    try:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(WALLockedError, match=f"in use by process {holder.pid}") as caught:
            WAL.open(tmp_path)
        assert caught.value.pid == holder.pid
    finally:
        end(holder)
    WAL.open(tmp_path).close()


def test_a_second_opening_in_one_process_is_refused_too(tmp_path):
    with WAL.open(tmp_path), pytest.raises(WALLockedError) as caught:
        WAL.open(tmp_path)
    assert caught.value.pid == os.getpid()
    WAL.open(tmp_path).close()


def test_a_lock_file_of_a_dead_process_is_no_obstacle(tmp_path):
    (tmp_path / "lock").write_text("999999\n")
    with WAL.open(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_of_many_that_race_exactly_one_wins(tmp_path):
    racers = [start(HOLD, tmp_path) for _ in range(8)]
    try:
        answers = [racer.stdout.readline().split() for racer in racers]
        winners = [
            racer.pid for racer, answer in zip(racers, answers, strict=True) if answer == ["open"]
        ]
        assert len(winners) == 1
        assert [int(answer[1]) for answer in answers if answer != ["open"]] == winners * 7
    finally:
        for racer in racers:
            end(racer)


FORK = """
import os, sys, time
from ahwal.errors import WALClosedError
from ahwal.wal import WAL
wal = WAL.open(sys.argv[1])
wal.append(b"parent")
if os.fork() == 0:
    try:
        wal.append(b"child")
    except WALClosedError:
        wal.close()
        print("refused", os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""


def test_a_sleeping_child_does_not_keep_the_lock_of_a_dead_parent(tmp_path):
    """W17."""
    parent = start(FORK, tmp_path)
    word, child = parent.stdout.readline().split()
    try:
        assert word == "refused"
        with pytest.raises(WALLockedError) as caught:  # the child's close gave nothing back
            WAL.open(tmp_path)
        assert caught.value.pid == parent.pid
        parent.kill()
        parent.wait()
        with WAL.open(tmp_path) as wal:
            assert [entry.data for entry in wal.peek(10, 1000)] == [b"parent"]
    finally:
        os.kill(int(child), signal.SIGKILL)
        end(parent)


def test_every_use_in_a_child_is_refused(tmp_path):
    with WAL.open(tmp_path) as wal:
        entry_id = wal.append(b"x")
        uses = [
            lambda: wal.append(b"y"),
            wal.oldest,
            lambda: wal.remove(entry_id),
            lambda: wal.replace(entry_id, [b"y"]),
            lambda: wal.quarantine(entry_id),
            wal.quarantined,
            lambda: wal.requeue(entry_id),
            wal.stats,
        ]
        child = os.fork()
        if child == 0:
            refused = 0
            for use in uses:
                try:
                    use()
                except WALClosedError:
                    refused += 1
            wal.close()
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == len(uses)
        assert wal.append(b"z") == entry_id + 1


def test_a_started_program_does_not_inherit_the_lock(tmp_path):
    wal = WAL.open(tmp_path)
    sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        wal._parts.lock.forget()  # as when the process dies: no explicit unlock
        WAL.open(tmp_path).close()
    finally:
        end(sleeper)


def kill_while_writing(directory: Path, rounds: int) -> None:
    stored, maybe_removed, removed, number = {}, set(), set(), 1
    for _ in range(rounds):
        writer = start(WRITE, directory, number)
        assert writer.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 0.15
        lines = []
        while time.monotonic() < deadline:
            lines.append(writer.stdout.readline())
        writer.kill()
        lines += writer.stdout.readlines()
        end(writer)
        for line in lines:
            words = line.split()
            if not line.endswith("\n"):
                continue
            if words[0] == "removing":
                maybe_removed.add(int(words[1]))
            elif words[0] == "removed":
                stored.pop(int(words[1]), None)
                removed.add(int(words[1]))
            else:
                *ids, number = map(int, words)
                for n, entry_id in enumerate(ids):
                    assert entry_id not in stored
                    stored[entry_id] = b"%d," % (number + n) * 40
        number += 1000
        with WAL.open(directory, segment_bytes=20_000) as wal:
            found = {entry.id: entry.data for entry in wal.peek(10**9, 10**9)}
            assert not wal.recovery.damaged
        missing = stored.keys() - found.keys() - maybe_removed
        assert not missing
        assert not removed & found.keys()
        assert all(found[i] == stored[i] for i in stored.keys() & found.keys())
        stored |= found
    assert len(stored) > 100


def test_kill_9_of_a_writing_process_loses_nothing(tmp_path):
    kill_while_writing(tmp_path, 4)


@pytest.mark.nightly
def test_kill_9_of_a_writing_process_loses_nothing_20_times(tmp_path):
    kill_while_writing(tmp_path, 20)
