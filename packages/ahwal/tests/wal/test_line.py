"""The line of a group commit: nobody waits for ever, whatever happens to who leads."""

import threading

import pytest

from ahwal.wal import _line
from ahwal.wal._line import Commit, Line


def joined(line, commit):
    thread = threading.Thread(target=line.join, args=(commit,))
    thread.start()
    return thread


def wait_for(condition):
    poll = threading.Event()
    for _ in range(5000):
        if condition():
            return
        poll.wait(0.001)
    raise AssertionError("it did not come about")


def test_the_first_leads_and_the_others_wait_until_they_are_written_for(monkeypatch):
    monkeypatch.setattr(_line, "_PATIENCE_SECONDS", 60.0)
    line = Line()
    first, second = Commit([b"1"]), Commit([b"2"])
    line.join(first)  # returns at once
    thread = joined(line, second)
    wait_for(lambda: len(line) == 2)
    group = line.take()
    assert group == [first, second]
    for commit in group:
        commit.succeed([1])
    assert thread.is_alive()
    line.leave(group)
    thread.join(5)
    assert not thread.is_alive()


def test_the_lead_goes_to_the_first_who_came_during_a_write(monkeypatch):
    monkeypatch.setattr(_line, "_PATIENCE_SECONDS", 60.0)
    line = Line()
    first, second, third = (Commit([b"x"]) for _ in range(3))
    line.join(first)
    group = line.take()
    threads = [joined(line, second)]
    wait_for(lambda: len(line) == 1)
    threads.append(joined(line, third))
    wait_for(lambda: len(line) == 2)
    line.leave(group)
    threads[0].join(5)
    assert [thread.is_alive() for thread in threads] == [False, True]
    line.leave(line.take())
    threads[1].join(5)
    assert not threads[1].is_alive()


def test_a_leader_that_is_lost_costs_patience_only(monkeypatch):
    monkeypatch.setattr(_line, "_PATIENCE_SECONDS", 0.001)
    line = Line()
    line.join(Commit([b"its thread is interrupted and never leaves"]))
    waiting = Commit([b"x"])
    line.join(waiting)  # returns, and its thread writes for both
    assert line.take()[1] is waiting


def test_a_thread_interrupted_while_it_waits_takes_its_data_along(monkeypatch):
    class InterruptedCommit(Commit):
        def sleep(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(_line, "_PATIENCE_SECONDS", 60.0)
    line = Line()
    leader, other = Commit([b"1"]), Commit([b"3"])
    line.join(leader)
    group = line.take()
    with pytest.raises(KeyboardInterrupt):
        line.join(InterruptedCommit([b"2"]))
    line.join(other)  # nobody is known to lead any more, so its thread tries the lock itself
    assert line.take() == [other]
    line.leave([*group, other])
    assert len(line) == 0


def test_a_group_ends_at_its_limit_of_bytes(monkeypatch):
    monkeypatch.setattr(_line, "_GROUP_BYTES_MAX", 100)
    monkeypatch.setattr(_line, "_PATIENCE_SECONDS", 0.0)
    line = Line()
    commits = [Commit([bytes(60)]) for _ in range(3)]
    for commit in commits:
        line.join(commit)
    assert line.take() == commits[:2]
    assert line.take() == commits[2:]
