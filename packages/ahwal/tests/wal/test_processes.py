"""More than one process: locks, forks, kills."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wal_fork import assert_a_child_is_refused_every_use

from ahwal.errors import WALLockedError
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

# Many that open at the same moment: forked, so that they cost no start of Python each.
RACE = """
import os, sys
from ahwal.errors import WALLockedError
from ahwal.wal import WAL
waiting, go = os.pipe()
racers = []
for _ in range(int(sys.argv[2])):
    racers.append(os.fork())
    if racers[-1] == 0:
        os.close(go)
        os.read(waiting, 1)
        try:
            wal = WAL.open(sys.argv[1])
        except WALLockedError as error:
            os.write(1, f"locked {error.pid} {str(error.pid) in str(error)}\\n".encode())
        except BaseException as error:
            os.write(1, f"{error!r}\\n".encode())
        else:
            os.write(1, f"open {os.getpid()}\\n".encode())
            sys.stdin.read()
        os._exit(0)
os.close(waiting)
os.close(go)
for racer in racers:
    os.waitpid(racer, 0)
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


def test_of_fifty_that_race_exactly_one_wins(tmp_path):
    """W16: and the others are told its pid, not that of the dead one whose file is still there."""
    count = 50
    (tmp_path / "lock").write_text("999999\n")
    race = start(RACE, tmp_path, count)
    try:
        answers = [race.stdout.readline().split() for _ in range(count)]
        (winner,) = [pid for word, pid, *_ in answers if word == "open"]
        losers = [answer for answer in answers if answer[0] != "open"]
        assert losers == [["locked", winner, "True"]] * (count - 1)
    finally:
        race.stdin.close()  # lets the winner end
        race.wait(timeout=60)
        race.stdout.close()


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
        assert_a_child_is_refused_every_use(wal, entry_id)
        assert wal.append(b"z") == entry_id + 1


def test_a_started_program_does_not_inherit_the_lock(tmp_path):
    wal = WAL.open(tmp_path)
    sleeper = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        wal._parts.lock.forget()  # as when the process dies: no explicit unlock
        WAL.open(tmp_path).close()
    finally:
        end(sleeper)


def kill_while_writing(directory: Path, kills: int, seed: int) -> dict[str, int]:
    program = Path(__file__).with_name("wal_killed.py")
    done = subprocess.run(
        [sys.executable, str(program), str(directory), str(kills), str(seed)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_20_kills_of_a_writing_process_lose_nothing(tmp_path, tally):
    done = kill_while_writing(tmp_path, 20, seed=1)
    assert done["ids"] > 100
    tally.count("kill -9 of a real process", "opening", done["while_opening"])
    tally.count("kill -9 of a real process", "writing", 20 - done["while_opening"])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 4))
def test_100_kills_of_a_writing_process_lose_nothing(tmp_path, tally, seed):
    done = kill_while_writing(tmp_path, 100, seed)
    tally.count("kill -9 of a real process", "opening", done["while_opening"])
    tally.count("kill -9 of a real process", "writing", 100 - done["while_opening"])
