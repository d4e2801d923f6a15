"""What the WAL says: a host's own log shows the text of a line, and seldom its further fields."""

import logging
import os

import pytest

from ahwal import WAL, MemoryQueue, WALFormatError
from ahwal.cli._log import JsonFormatter, TextFormatter


def lines(caplog):
    return [record.getMessage() for record in caplog.records]


def test_what_the_limits_cost_is_said_with_counts_reason_and_directory(tmp_path, caplog):
    with WAL.open(tmp_path / "50%s full", max_bytes=60_000) as queue:
        for _ in range(100):
            queue.append(os.urandom(1000))
        dropped = queue.stats().dropped
    text = "\n".join(lines(caplog))
    assert "the WAL gave up its oldest batches" in text
    first = caplog.records[0]
    assert f"dropped=size:{first.dropped['size']}" in first.getMessage()
    assert f"directory={tmp_path}/50%s full" in first.getMessage()
    assert sum(record.dropped["size"] for record in caplog.records) == dropped


def test_what_was_recovered_is_said_with_its_count(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(2):
        with WAL.open(tmp_path / "wal") as queue:
            queue.append(b"x")
    (line,) = lines(caplog)
    assert line.startswith("batches were recovered from the WAL (")
    assert "batches=1" in line


def test_a_batch_that_is_set_aside_is_told_from_one_that_is_lost(tmp_path, caplog):
    with WAL.open(tmp_path / "wal", max_bytes=100_000) as queue:
        kept = queue.append(os.urandom(5_000))
        lost = queue.append(os.urandom(50_000))
        assert queue.quarantine(kept)
        assert not queue.quarantine(lost)
    aside, gone = lines(caplog)
    assert "set aside" in aside
    assert f"entry_id={kept}" in aside
    assert "no room" in gone
    assert f"entry_id={lost}" in gone


def test_a_level_set_later_and_a_filter_of_the_hosts_logger_hold(tmp_path):
    logger = logging.getLogger("ahwal.wal.of_a_host")
    seen = []
    handler = logging.Handler()
    handler.emit = seen.append
    logger.addHandler(handler)
    with WAL.open(tmp_path / "wal", logger=logger) as queue:
        logger.setLevel(logging.ERROR)
        queue.quarantine(queue.append(b"a"))
        assert seen == []
        logger.setLevel(logging.INFO)
        queue.quarantine(queue.append(b"b"))
        assert len(seen) == 1
        assert seen[0].name == "ahwal.wal.of_a_host"
        assert seen[0].filename == "_wal.py"
        logger.addFilter(lambda _: False)
        queue.quarantine(queue.append(b"c"))
        assert len(seen) == 1
    logger.filters.clear()
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_the_commands_lines_say_nothing_twice_and_its_json_has_the_fields(tmp_path, caplog):
    with WAL.open(tmp_path / "wal") as queue:
        queue.quarantine(queue.append(b"a"))
    (record,) = caplog.records
    assert TextFormatter().format(record).count("entry_id=") == 1
    assert '"entry_id": 1' in JsonFormatter().format(record)
    assert "in_text" not in JsonFormatter().format(record)


def test_a_line_of_another_that_speaks_of_a_field_keeps_the_field():
    record = logging.makeLogRecord({"msg": "the answer had status=503", "status": "mine"})
    assert TextFormatter().format(record).endswith("status=503 status=mine")


def test_a_newer_format_names_the_directory_that_has_it(tmp_path):
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / "format").write_text("7")
    with pytest.raises(WALFormatError, match="wal has format '7'") as caught:
        WAL.open(tmp_path / "wal")
    assert str(tmp_path / "wal") in str(caught.value)
    assert caught.value.found == "7"


@pytest.mark.parametrize("name", ["max_bytes", "max_age_seconds", "segment_bytes"])
@pytest.mark.parametrize("value", ["10", b"1", [], True, 0, -1, float("nan")])
def test_a_limit_that_is_no_number_above_0_is_named_with_its_value(tmp_path, name, value):
    with pytest.raises(ValueError, match=rf"{name} is .*above 0"):
        WAL.open(tmp_path / "wal", **{name: value})
    assert not (tmp_path / "wal").exists()


@pytest.mark.parametrize("make", [lambda path: WAL.open(path), lambda _: MemoryQueue(10_000)])
@pytest.mark.parametrize("data", [None, "text", 5, ["x"]])
def test_an_entry_that_is_no_bytes_is_refused_with_what_it_is(tmp_path, make, data):
    """`bytes(5)` would be five zeros."""
    queue = make(tmp_path / "wal")
    with pytest.raises(TypeError, match=f"bytes, not {type(data).__name__}"):
        queue.append(data)
    entry_id = queue.append(memoryview(b"good"))
    with pytest.raises(TypeError, match="bytes, not"):
        queue.replace(entry_id, [data])
    assert queue.oldest().data == b"good"
    queue.close()
