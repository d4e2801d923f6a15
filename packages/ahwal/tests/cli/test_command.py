"""`ahagent` as a process: exit codes, signals, kills, and what it leaves on disk."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from ahwal import WAL
from ahwal.testing import ScriptedAnswer, ScriptedCollector, refuse
from ahwire.agent_pb2 import MetricsBatch

TOKEN = "scripted-agent-token"


@pytest.fixture
def collector():
    with ScriptedCollector() as running:
        yield running


class Machine:
    """A state directory and an environment for the command."""

    def __init__(self, state_dir, collector):
        self.state_dir = state_dir
        self.collector = collector
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AH_")},
            "AH_STATE_DIR": str(state_dir),
            "AH_COLLECTOR_URL": collector.url,
            "AH_ALLOW_SHORT_INTERVAL": "true",
            "AH_INTERVAL": "1s",
            "AH_LOG_LEVEL": "debug",
        }

    def run(self, *arguments, **changes):
        return subprocess.run(
            [sys.executable, "-m", "ahwal", *arguments],
            env={**self.environ, **changes},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, *arguments, **changes):
        return subprocess.Popen(
            [sys.executable, "-m", "ahwal", "run", *arguments],
            env={**self.environ, **changes},
            stderr=subprocess.PIPE,
            text=True,
        )

    def enroll(self):
        done = self.run("enroll", AH_LICENSE="LICENSE-CANARY")
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture
def machine(tmp_path, collector):
    return Machine(tmp_path / "state", collector)


def stop(process, seconds=10):
    process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - started < seconds
    return errors


def test_usage_errors_exit_with_2(machine):
    assert machine.run().returncode == 2
    assert machine.run("dance").returncode == 2
    assert machine.run("run", "--inter", "5s").returncode == 2


def test_help_names_every_command_and_gives_an_example(machine):
    text = machine.run("--help").stdout
    assert all(name in text for name in ("enroll", "run", "status", "check-config", "wal"))
    assert "exit codes" in text
    assert "example: ahagent run" in machine.run("run", "--help").stdout


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("run", "[-h] [--ledger FILE] [SETTING ...]"),
        ("wal dump", "[-h] [--limit COUNT] [--wal-dir DIR] [SETTING ...]"),
        ("wal requeue", "[-h] [--json] [SETTING ...]"),
    ],
)
def test_the_help_of_a_command_shows_its_own_options_first(machine, command, own):
    text = machine.run(*command.split(), "--help").stdout
    assert text.startswith(f"usage: ahagent {command} {own}\n")
    options, settings = text.split("\nsettings:")
    assert "--interval" not in options
    assert "--interval" in settings
    assert "--config" in settings


def test_the_verbs_of_the_queue_each_have_only_their_own_options(machine):
    assert machine.run("wal").returncode == 2
    assert machine.run("wal", "stats", "--limit", "1").returncode == 2


def test_configuration_errors_exit_with_3_and_name_everything(machine):
    done = machine.run("run", "--interval", "1h", AH_CATCH_UP_BATCHES="70")
    assert done.returncode == 3
    assert "interval (interval_seconds) is 3600.0; valid is" in done.stderr
    assert "catch_up_batches is 70; valid is 1 to 10" in done.stderr
    assert machine.run("check-config", "--config", "/nonexistent.yaml").returncode == 3


def test_an_agent_that_is_not_enrolled_exits_with_4(machine):
    for command in ("run", "status"):
        done = machine.run(command)
        assert done.returncode == 4
        assert "ahagent enroll" in done.stderr


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refuse(401, "license_invalid"), 5),
        (refuse(503, "unavailable"), 6),
        (ScriptedAnswer(reset=True), 6),
    ],
)
def test_a_refused_enrolment_exits_with_5_and_a_temporary_one_with_6(machine, answer, code):
    machine.collector.script(answer, path="/enroll")
    done = machine.run("enroll", AH_LICENSE="LICENSE-CANARY")
    assert done.returncode == code
    assert "LICENSE-CANARY" not in done.stderr + done.stdout
    # Only silence, or an answer without our code, can mean that another program stands there.
    assert ("ingest door" in done.stderr) is (answer.reset is True)


def test_a_license_comes_from_a_file_or_standard_input_and_never_from_an_argument(
    machine, tmp_path
):
    assert machine.run("enroll").returncode == 3
    assert machine.run("enroll", "LICENSE").returncode == 2
    file = tmp_path / "license"
    file.write_text("LICENSE-CANARY\n")
    done = machine.run("enroll", "--license-file", str(file))
    assert done.returncode == 0
    assert "LICENSE-CANARY" not in done.stderr + done.stdout
    assert machine.run("enroll", "--license-file", str(file)).returncode == 2
    piped = subprocess.run(
        [sys.executable, "-m", "ahwal", "enroll", "--force", "--license-file", "-"],
        env=machine.environ, input="LICENSE-2", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert piped.returncode == 0, piped.stderr


def test_plain_http_to_another_machine_is_refused(machine):
    done = machine.run("enroll", AH_COLLECTOR_URL="http://192.0.2.1", AH_LICENSE="L")
    assert done.returncode == 3
    assert "allow_plain_http" in done.stderr


def test_check_config_warns_of_a_certificate_that_is_not_checked(machine):
    done = machine.run("check-config", "--insecure-skip-verify")
    assert done.returncode == 0
    assert "WARNING" in done.stderr
    shown = json.loads(machine.run("check-config", "--json").stdout)
    assert shown["interval"] == 1.0


def test_check_config_shows_what_is_in_force_as_people_write_it(machine):
    machine.enroll()
    url = machine.environ.pop("AH_COLLECTOR_URL")
    lines = machine.run("check-config", "--shutdown-flush", "0.5", AH_LABELS="site=x").stdout
    assert f"collector_url: {url} (from enrolment)\n" in lines
    for line in (
        "interval: 1s", "buffer.max_bytes: 50MiB", "buffer.max_age: 24h", "shutdown_flush: 0.5",
        "allow_short_interval: true", "labels: site=x", "log.file: ",
    ):  # fmt: skip
        assert f"{line}\n" in lines
    assert json.loads(machine.run("check-config", "--json").stdout)["collector_url"] == url
    assert (
        f"collector_url: {url}/\n" in machine.run("check-config", AH_COLLECTOR_URL=f"{url}/").stdout
    )


def test_a_run_sends_this_machines_metrics_and_ends_on_sigterm_with_0(machine):
    machine.enroll()
    process = machine.start()
    machine.collector.wait_for(3, timeout_seconds=30)
    process.send_signal(signal.SIGUSR1)
    status = json.loads(machine.run("status", "--json").stdout)
    assert status["running"] is True
    assert machine.run("status", "--check").returncode == 0
    errors = stop(process)
    assert process.returncode == 0
    assert TOKEN not in errors
    assert "delivery=ok queued=" in errors
    names = {series.name for series in machine.collector.batches()[-1].series}
    assert names >= {"cpu_usage_percent", "memory_used_percent", "disk_used_percent"}
    left = sorted(path.name for path in machine.state_dir.iterdir())
    assert left == ["credentials.json", "status.json", "wal"]
    assert json.loads(machine.run("status", "--json").stdout)["running"] is False


def test_a_revoked_agent_exits_with_7_when_told_so(machine):
    machine.enroll()
    machine.collector.always(refuse(403, "agent_revoked"))
    process = machine.start("--on-revoked", "exit")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 7, errors
    assert machine.run("status").returncode == 7


def test_a_second_run_on_the_same_state_exits_with_8(machine):
    machine.enroll()
    process = machine.start()
    machine.collector.wait_for(1, timeout_seconds=30)
    done = machine.run("run")
    stop(process)
    assert done.returncode == 8
    assert str(process.pid) in done.stderr


def test_sigterm_in_a_slow_request_ends_in_time(machine):
    machine.enroll()
    machine.collector.always(ScriptedAnswer(delay_seconds=30))
    process = machine.start("--shutdown-flush", "2s")
    machine.collector.wait_for(1, timeout_seconds=30)
    stop(process, seconds=6)
    assert process.returncode == 0
    stats = json.loads(machine.run("wal", "stats", "--json").stdout)
    assert stats["batches"] >= 1


def test_sighup_reloads_the_configuration_file(machine, tmp_path):
    file = tmp_path / "agent.yaml"
    file.write_text("interval: 1s\n")
    del machine.environ["AH_INTERVAL"]
    machine.enroll()
    process = machine.start("--config", str(file))
    machine.collector.wait_for(1, timeout_seconds=30)
    file.write_text("interval: 2s\n")
    process.send_signal(signal.SIGHUP)
    end = time.monotonic() + 20
    while machine.collector.batches()[-1].stats.interval_seconds != 2 and time.monotonic() < end:
        time.sleep(0.05)
    file.write_text("interval: never\n")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    errors = stop(process)
    assert machine.collector.batches()[-1].stats.interval_seconds == 2
    assert "the configuration was reloaded" in errors
    assert "was not reloaded" in errors


def read_ledger(path):
    points = set()
    for line in path.read_bytes().split(b"\n"):
        try:
            document = json.loads(line)
        except ValueError:
            continue  # the line that the kill cut
        for series in document["series"]:
            labels = tuple(sorted(series["labels"].items()))
            points.add((series["name"], labels, document["collected_at_ms"], series["value"]))
    return points


def received(collector):
    return {
        (s.name, tuple(sorted((pair.name, pair.value) for pair in s.labels)), p.ts_ms, p.value)
        for batch in collector.batches()
        for s in batch.series
        for p in s.points
    }


@pytest.mark.fault
def test_after_kills_and_an_outage_every_sample_in_the_ledger_arrives(machine, tmp_path):
    machine.enroll()
    ledger = tmp_path / "ledger.jsonl"
    machine.collector.always(refuse(503, "unavailable"))
    for _ in range(4):
        process = machine.start("--ledger", str(ledger))
        lines = ledger.read_bytes().count(b"\n") if ledger.exists() else 0
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if ledger.exists() and ledger.read_bytes().count(b"\n") > lines:
                break
            time.sleep(0.01)
        process.kill()
        process.communicate()
    before = len(machine.collector.requests("/metrics"))
    machine.collector.always(None)
    process = machine.start("--ledger", str(ledger))
    machine.collector.wait_for(before + 2, timeout_seconds=30)
    stop(process)
    promised = read_ledger(ledger)
    assert len(promised) > 100
    assert promised <= received(machine.collector)
    assert json.loads(machine.run("wal", "stats", "--json").stdout)["batches"] == 0


def test_the_wal_can_be_looked_into_and_its_quarantine_put_back(machine):
    directory = machine.state_dir / "wal"
    assert machine.run("wal", "stats").returncode == 3
    with WAL.open(directory) as queue:
        assert "oldest_at: -\nnewest_at: -\n" in machine.run("wal", "stats").stdout
        ids = [queue.append(MetricsBatch(seq=n).SerializeToString()) for n in (1, 2, 3)]
        queue.quarantine(ids[1])
        dump = [json.loads(line) for line in machine.run("wal", "dump").stdout.splitlines()]
        assert [document["seq"] for document in dump] == [1, 3]
        assert machine.run("wal", "verify").returncode == 0
        assert machine.run("wal", "requeue").returncode == 8
    done = machine.run("wal", "requeue", "--json")
    assert json.loads(done.stdout) == {"requeued": 1}
    text = machine.run("wal", "stats").stdout
    numbers = json.loads(machine.run("wal", "stats", "--json").stdout)
    oldest = datetime.fromtimestamp(numbers["oldest_unix_ms"] / 1000, UTC)
    assert f"oldest_at: {oldest:%Y-%m-%dT%H:%M:%S}." in text
    assert "unix_ms" not in text
    dump = machine.run("wal", "dump", "--limit", "2").stdout.splitlines()
    assert len(dump) == 2
    segment = next(directory.glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[25] ^= 0xFF
    segment.write_bytes(data)
    assert machine.run("wal", "verify").returncode == 3
