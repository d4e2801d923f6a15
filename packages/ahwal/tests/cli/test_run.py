"""`ahagent run` over its life: stops, restarts, signals, and what it says about itself."""

import json
import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from ahwal import WAL, AgentConfig
from ahwal.cli._log import JsonFormatter, TextFormatter
from ahwal.testing import ScriptedAnswer, ScriptedCollector, refuse
from ahwal.transport._token import MASK
from ahwire.agent_pb2 import Inventory, MetricsBatch


@pytest.fixture
def collector():
    with ScriptedCollector() as running:
        yield running


class Enrolled:
    """An enrolled state directory, and `ahagent run` on it."""

    def __init__(self, state_dir, collector):
        self.state_dir, self.collector = state_dir, collector
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AH_")},
            "AH_STATE_DIR": str(state_dir),
            "AH_ALLOW_SHORT_INTERVAL": "true",
            "AH_INTERVAL": "1s",
        }
        self.command(
            "enroll", "--collector-url", collector.url, AH_LICENSE="LICENSE-CANARY"
        ).check_returncode()

    def command(self, *arguments, **changes):
        return subprocess.run(
            [sys.executable, "-m", "ahwal", *arguments],
            env={**self.environ, **changes}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "ahwal", "run", *arguments],
            env=self.environ, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture
def enrolled(tmp_path, collector):
    return Enrolled(tmp_path / "state", collector)


def end(process, number=signal.SIGTERM):
    """Send a signal; return the log and how long the end took, in seconds."""
    started = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    return errors, time.monotonic() - started


def until(condition, *, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.fault
def test_ten_thousand_queued_and_stopped_while_offline_arrive_after_the_start(enrolled, collector):
    # W21.
    now_ms = round(time.time() * 1000)
    with WAL.open(enrolled.state_dir / "wal") as queue:
        queue.append_many(
            [
                _batch(number, now_ms - 3_600_000 + number).SerializeToString()
                for number in range(10_000)
            ]
        )
    collector.always(refuse(503, "unavailable"))
    process = enrolled.start()
    collector.wait_for(1, timeout_seconds=30)
    end(process)
    with WAL.open(enrolled.state_dir / "wal") as queue:
        assert queue.stats().batches >= 10_000  # more where its first cycle came in time
    collector.always(None)
    before = len(collector.batches())
    process = enrolled.start("--catch-up-batches", "10")
    until(lambda: len(values_since(collector, before)) == 10_000)
    end(process)
    with WAL.open(enrolled.state_dir / "wal") as queue:
        assert queue.stats().batches == 0


def _batch(number, time_ms):
    batch = MetricsBatch(seq=number + 1, collected_at_ms=time_ms)
    batch.series.add(name="queued").points.add(ts_ms=time_ms, value=number)
    return batch


def values_since(collector, before):
    return {
        point.value
        for batch in collector.batches()[before:]
        for series in batch.series
        if series.name == "queued"
        for point in series.points
    }


def test_a_run_reports_what_psutil_knows_of_the_machine(enrolled, collector):
    process = enrolled.start()
    collector.wait_for(1, path="/inventory", timeout_seconds=30)
    end(process)
    report = Inventory.FromString(collector.requests("/inventory")[0].plain)
    assert report.hostname
    assert report.memory_bytes > 0
    assert int(report.facts["swap_bytes"]) >= 0


@pytest.mark.parametrize("path", ["/metrics", "/inventory"])
def test_sigterm_in_the_middle_of_any_request_ends_in_time(enrolled, collector, path):
    collector.always(ScriptedAnswer(delay_seconds=40), path)
    process = enrolled.start()
    collector.wait_for(1, path=path, timeout_seconds=30)
    _, seconds = end(process)
    assert seconds < 10


def test_sighup_switches_to_another_collector_and_a_wrong_file_changes_nothing(
    enrolled, collector, tmp_path
):
    file = tmp_path / "agent.yaml"
    with ScriptedCollector() as other:
        file.write_text(f"collector_url: {collector.url}\n")
        process = enrolled.start("--config", str(file))
        collector.wait_for(1, timeout_seconds=30)
        file.write_text(f"collector_url: {other.url}\ncatch_up_batches: 5\n")
        process.send_signal(signal.SIGHUP)
        other.wait_for(1, timeout_seconds=30)
        file.write_text("collector_url: ftp://nowhere\nca_fil: x\n")
        process.send_signal(signal.SIGHUP)
        count = len(other.requests("/metrics"))
        other.wait_for(count + 2, timeout_seconds=30)
        errors, _ = end(process)
    assert "the configuration was reloaded" in errors
    assert "did you mean ca_file" in errors


def test_sigusr1_says_all_that_an_operator_asks_first(enrolled, collector):
    collector.always(refuse(426, "upgrade_required"))
    process = enrolled.start()
    collector.wait_for(1, timeout_seconds=30)
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.2)
    errors, _ = end(process)
    (line,) = [line for line in errors.splitlines() if "delivery=backoff queued=" in line][:1]
    assert "upgrade_required=true" in line
    for part in ("version=", "uptime=", f"collector={collector.url}", "interval=1s"):
        assert part in line


def test_the_command_can_be_imported_where_signals_are_missing():
    code = (
        "import signal\n"
        "for name in ('SIGHUP', 'SIGUSR1'): delattr(signal, name)\n"
        "import ahwal.cli, ahwal.cli._run, ahwal.cli._main\n"
        "print(ahwal.cli.main(['check-config', '--collector-url', 'http://127.0.0.1:1']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0", done.stderr


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize(
    "name",
    ["token", "agent_token", "Authorization", "proxy_password", "client_secret", "license_text"],
)
def test_fields_whose_names_speak_of_secrets_are_masked_in_every_form(formatter, name):
    record = logging.makeLogRecord({"msg": "said\nin two lines", name: "CANARY", "seq": 5})
    line = formatter.format(record)
    assert "CANARY" not in line
    assert MASK in line
    assert "\n" not in line
    if isinstance(formatter, JsonFormatter):
        assert json.loads(line)["seq"] == 5
    else:
        assert "seq=5" in line


def test_the_log_file_is_rotated_at_its_size_and_one_is_kept(tmp_path, monkeypatch):
    from ahwal.cli import _log

    monkeypatch.setattr(_log, "FILE_BYTES_MAX", 2000)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    for handler in handlers:
        root.removeHandler(handler)
    try:
        _log.configure_logging(AgentConfig(log_file=str(tmp_path / "logs" / "agent.log")))
        for number in range(200):
            logging.getLogger("ahwal").info("line %d", number)
    finally:
        for handler in root.handlers[:]:
            root.removeHandler(handler)
            handler.close()
        for handler in handlers:
            root.addHandler(handler)
        root.setLevel(level)
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.NOTSET)
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["agent.log", "agent.log.1"]
    assert "line 199" in (tmp_path / "logs" / "agent.log").read_text(encoding="utf-8")
