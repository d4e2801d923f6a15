"""The status file of an embedded agent, for `ahagent status`."""

import json
import os
import stat
import subprocess
import sys
import time

import anyio
import pytest

from ahwal import WAL, Agent, AgentConfig, Sample, WALLockedError


def make_agent(config, **options):
    return Agent(config, lambda: [Sample("work", 1)], **options)


def read(state_dir):
    return json.loads((state_dir / "status.json").read_bytes())


@pytest.fixture
def quick(collector, tmp_path, identity):
    identity(tmp_path, collector.url)
    return AgentConfig(state_dir=tmp_path, interval_seconds=1, allow_short_interval=True)


def agent_here(config, **options):
    return make_agent(config, read_machine_id=lambda: "machine-1", **options)


def test_ahagent_status_sees_an_embedded_agent_run_and_end(quick, collector, tmp_path):
    def status():
        done = subprocess.run(
            [sys.executable, "-m", "ahwal", "status", "--state-dir", str(tmp_path), "--json"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return json.loads(done.stdout)

    with agent_here(quick):
        collector.wait_for(1)
        during = status()
        assert stat.S_IMODE((tmp_path / "status.json").stat().st_mode) == 0o600
    after = status()
    assert during["running"] is True
    assert during["last_known"]["pid"] == os.getpid()
    assert after["running"] is False
    assert after["last_known"]["sender"]["delivered"] > 0
    assert "canary-agent-token" not in json.dumps(after)
    assert not list(tmp_path.glob("*.tmp"))


def test_an_agent_that_is_refused_the_directory_leaves_the_others_status(quick, tmp_path):
    (tmp_path / "status.json").write_text('{"running": true}')
    with WAL.open(tmp_path / "wal"), pytest.raises(WALLockedError):
        anyio.run(agent_here(quick).run)
    assert read(tmp_path) == {"running": True}


def test_on_another_machine_the_status_says_so(quick, tmp_path):
    with make_agent(quick, read_machine_id=lambda: "a copy") as agent:
        end = time.monotonic() + 10
        while not (tmp_path / "status.json").exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert read(tmp_path)["state"] == "identity_mismatch"
    assert agent.status().state == "stopped"


def test_a_file_that_cannot_be_written_costs_nothing_but_itself(quick, collector, tmp_path):
    (tmp_path / "status.json").mkdir()
    (tmp_path / "status.json" / "in the way").touch()
    with agent_here(quick) as agent:
        collector.wait_for(2)
    assert agent.status().state == "stopped"
    assert agent.status().sender.queued_batches == 0


@pytest.mark.anyio
async def test_it_is_written_at_most_every_ten_seconds(quick, collector, monkeypatch):
    from ahwal.agent import _status_file

    written = []
    monkeypatch.setattr(_status_file.StatusFile, "_replace", lambda self, doc: written.append(doc))
    agent = agent_here(quick)
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run)
        with anyio.fail_after(10):
            while agent.status().cycles < 2:
                await anyio.sleep(0.01)
        assert len(written) == 1
        agent.stop()
    assert [document["running"] for document in written] == [True, False]


@pytest.mark.anyio
async def test_a_write_that_hangs_does_not_hold_the_end(quick, monkeypatch):
    from ahwal.agent import _status_file

    monkeypatch.setattr(_status_file, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(_status_file.StatusFile, "_replace", lambda self, doc: time.sleep(30))
    agent = agent_here(quick)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run)
            while agent.status().cycles < 1:
                await anyio.sleep(0.01)
            agent.stop()
    assert agent.status().state == "stopped"
