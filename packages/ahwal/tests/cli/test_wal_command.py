"""`ahagent wal` where a disk or a clock is wrong."""

import argparse
import json

import pytest

from ahwal.agent import AgentConfig
from ahwal.cli import _wal as commands
from ahwal.cli._exit import ExitCode
from ahwal.wal import WAL
from ahwire.agent_pb2 import MetricsBatch


@pytest.fixture
def config(tmp_path):
    return AgentConfig(collector_url="https://collector.example", state_dir=str(tmp_path))


def options(**more):
    return argparse.Namespace(json=True, limit=0, **more)


def numbers(queue):
    return [MetricsBatch.FromString(entry.data).seq for entry in queue.peek(99, 10**9)]


def test_what_is_queued_again_gets_the_largest_number_even_where_a_clock_was_wrong(
    config, tmp_path, capsys
):
    """W15: a number from a clock that ran years ahead waits in the queue."""
    far_ahead = 5_000_000_000_000
    with WAL.open(tmp_path / "wal") as queue:
        for seq in (1, 2, far_ahead):
            last = queue.append(MetricsBatch(seq=seq).SerializeToString())
        for entry_id in (last - 2, last - 1):
            assert queue.quarantine(entry_id)
    assert commands.requeue(config, options()) is ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"requeued": 2}
    with WAL.open(tmp_path / "wal") as queue:
        assert numbers(queue) == [far_ahead, far_ahead + 1, far_ahead + 2]
        newest = queue.newest()
        assert MetricsBatch.FromString(newest.data).seq == max(numbers(queue))


def test_a_set_aside_entry_that_is_no_batch_is_queued_as_it_is(config, tmp_path):
    with WAL.open(tmp_path / "wal") as queue:
        queue.quarantine(queue.append(b"\xff no batch"))
    assert commands.requeue(config, options()) is ExitCode.OK
    with WAL.open(tmp_path / "wal") as queue:
        assert queue.oldest().data == b"\xff no batch"


def test_records_that_the_disk_refuses_to_read_are_named(config, tmp_path, capsys, monkeypatch):
    with WAL.open(tmp_path / "wal") as queue:
        for seq in (1, 2, 3):
            queue.append(MetricsBatch(seq=seq).SerializeToString())

    def read(self, spot):
        if spot.id == 2:
            raise OSError(5, "Input/output error")
        return real(self, spot)

    real = commands.Reader.record
    monkeypatch.setattr(commands.Reader, "record", read)
    assert commands.verify(config, options()) is ExitCode.CONFIGURATION
    report = json.loads(capsys.readouterr().out)
    assert (report["good"], report["unreadable_ids"]) == (2, [2])
    assert commands.dump(config, options()) is ExitCode.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "Input/output error" in lines[1]["unreadable"]
