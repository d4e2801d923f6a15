"""`ahagent wal` where a disk or a clock is wrong."""

import argparse
import json

import pytest

from ahwal import ConfigError
from ahwal.agent import AgentConfig
from ahwal.cli import _wal as commands
from ahwal.cli._exit import ExitCode
from ahwal.wal import WAL
from ahwire.agent_pb2 import MetricsBatch


@pytest.fixture
def config(tmp_path):
    return AgentConfig(collector_url="https://collector.example", state_dir=str(tmp_path))


def options(**more):
    return argparse.Namespace(**{"json": True, "limit": 0, "wal_dir": None, **more})


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


def test_a_queue_of_somebodys_own_bytes_is_no_damage(config, tmp_path, capsys):
    with WAL.open(tmp_path / "own") as queue:
        queue.append(b"\xff a job of mine")
    named = options(wal_dir=str(tmp_path / "own"))
    assert commands.verify(config, named) is ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert (report["not_batches"], report["damaged_records"], report["damage"]) == (1, 0, [])
    assert commands.dump(config, named) is ExitCode.OK
    line = json.loads(capsys.readouterr().out)
    assert (line["not_a_batch"], line["bytes"]) == (True, 15)
    assert "damaged" not in line
    with pytest.raises(ConfigError, match=r"--wal-dir .*none is no directory"):
        commands.stats(config, options(wal_dir=str(tmp_path / "none")))


@pytest.mark.parametrize("known", [True, False])
def test_damage_is_named_with_its_file_its_place_and_its_id_where_it_is_known(
    config, tmp_path, capsys, known
):
    with WAL.open(tmp_path / "wal") as queue:
        ids = [queue.append(MetricsBatch(seq=n).SerializeToString()) for n in range(1, 6)]
    (segment,) = (tmp_path / "wal").glob("*.seg")
    data = bytearray(segment.read_bytes())
    size = len(data) // 5
    data[size * 2 + 24] ^= 0xFF  # the payload of the third
    if not known:
        data[size * 2 + 8 : size * 2 + 16] = b"\xff" * 8  # its id
        data[size * 3 + 24] ^= 0xFF  # and the payload of the fourth
        data[size * 3 + 8 : size * 3 + 16] = b"\xff" * 8
    segment.write_bytes(data)
    assert commands.verify(config, options()) is ExitCode.CONFIGURATION
    report = json.loads(capsys.readouterr().out)
    first = report["damage"][0]
    assert report["good"] == (4 if known else 3)
    assert (first["segment"], first["offset"]) == (segment.name, size * 2)
    assert first["id"] == (ids[2] if known else None)
    assert commands.verify(config, options(json=False)) is ExitCode.CONFIGURATION
    assert f"damage: {segment.name} offset {size * 2}, " in capsys.readouterr().out


def test_an_unfinished_append_is_no_damage(config, tmp_path, capsys):
    with WAL.open(tmp_path / "wal") as queue:
        queue.append(MetricsBatch(seq=1).SerializeToString())
    (segment,) = (tmp_path / "wal").glob("*.seg")
    with segment.open("ab") as file:
        file.write(segment.read_bytes()[:-3])
    assert commands.verify(config, options()) is ExitCode.OK
    assert json.loads(capsys.readouterr().out)["damage"] == []


def test_an_absurd_number_is_not_gone_on_from(config, tmp_path, capsys):
    with WAL.open(tmp_path / "wal") as queue:
        for seq in (7, 2**64 - 1, 2**64 - 1):
            last = queue.append(MetricsBatch(seq=seq).SerializeToString())
        for entry_id in (last - 1, last - 2):
            assert queue.quarantine(entry_id)
    assert commands.requeue(config, options()) is ExitCode.OK
    with WAL.open(tmp_path / "wal") as queue:
        assert numbers(queue) == [2**64 - 1, 7, 8]
