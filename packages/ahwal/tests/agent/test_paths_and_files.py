"""Relative paths under a program that changes its directory, forks, and files that are none."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from ahwal import Agent, AgentConfig, ConfigError, CredentialsError, Sample
from ahwal.agent._credentials import Credentials, CredentialStore

PATHS = ["state_dir", "ca_file", "client_cert", "client_key", "log_file"]


@pytest.mark.parametrize("field", PATHS)
def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch, field):
    """A daemon changes its directory after it has read its settings."""
    monkeypatch.chdir(tmp_path)
    config = AgentConfig(**{field: "some/path"})
    monkeypatch.chdir("/")
    assert getattr(config, field) == str(tmp_path / "some/path")


@pytest.mark.parametrize("field", PATHS)
def test_a_relative_path_in_a_working_directory_that_is_gone_is_named(tmp_path, monkeypatch, field):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="the working directory is gone"):
        AgentConfig(**{field: "path"} if field == "state_dir" else {"state_dir": "/", field: "p"})


@pytest.mark.parametrize("field", PATHS)
def test_a_path_that_no_system_can_write_is_named(field):
    with pytest.raises(ConfigError, match="valid is a path that this system can write"):
        AgentConfig(**{field: "/a\ud800"})


def test_an_agent_and_its_identity_stay_in_the_directory_of_the_start(
    tmp_path, monkeypatch, collector, identity
):
    (tmp_path / "state").mkdir()
    identity(tmp_path / "state", collector.url)
    monkeypatch.chdir(tmp_path)
    store = CredentialStore(state_dir="state")
    config = AgentConfig(state_dir="state", interval_seconds=1, allow_short_interval=True)
    agent = Agent(config, lambda: [Sample("work", 1)], read_machine_id=lambda: "machine-1")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert store.load().agent_id == agent.status().agent_id
    with agent:
        collector.wait_for(1)
    assert list((tmp_path / "other").iterdir()) == []
    assert {"wal", "status.json"} <= {path.name for path in (tmp_path / "state").iterdir()}


def test_a_forked_child_sees_the_last_status_of_the_agent(tmp_path, collector, identity):
    identity(tmp_path, collector.url)
    config = AgentConfig(state_dir=tmp_path, interval_seconds=1, allow_short_interval=True)
    with Agent(config, lambda: [Sample("work", 1)], read_machine_id=lambda: "machine-1") as agent:
        collector.wait_for(1)
        before = agent.status()
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            same = agent.status() == before and before.line() in repr(agent)
            os._exit(0 if same else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_no_zone_holds_is_damage(tmp_path, time):
    now = datetime.now(UTC)
    store = CredentialStore(state_dir=tmp_path)
    store.save(
        Credentials(
            agent_id="a", company_id="c", server_id="s", agent_token="t",
            token_issued_at=now, enrolled_at=datetime(2020, 5, 5, tzinfo=UTC),
        )
    )  # fmt: skip
    text = store.path.read_text()
    assert "2020-05-05T00:00:00.000Z" in text
    store.path.write_text(text.replace("2020-05-05T00:00:00.000Z", time))
    with pytest.raises(CredentialsError, match="damaged"):
        store.load()


@pytest.mark.parametrize("name", ["credentials.json", "status.json", "machine-id"])
def test_a_fifo_in_the_place_of_a_file_is_waited_for_by_nobody(tmp_path, name, identity):
    """In a process of its own, because what it is to show is that it does not hang."""
    identity(tmp_path, "http://127.0.0.1:1")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    code = "import sys; from ahwal.agent._machine import machine_id; machine_id(sys.argv[1])"
    status = ["-m", "ahwal", "status", "--state-dir"]
    for arguments in (["-c", code], status):
        done = subprocess.run(
            [sys.executable, *arguments, str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
    assert done.returncode == (3 if name == "credentials.json" else 0)
    assert ("no ordinary file" in done.stderr) == (name == "credentials.json")
