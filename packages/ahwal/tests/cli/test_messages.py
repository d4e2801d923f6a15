"""What `ahagent` says when something is wrong: the cause, the value, the way out."""

import datetime as dt
import json
import os
import time

import pytest

from ahwal.agent import Credentials, CredentialStore
from ahwal.cli import main
from ahwal.testing import ScriptedAnswer, ScriptedCollector, refuse


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AH_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def state(tmp_path):
    CredentialStore(state_dir=str(tmp_path)).save(
        Credentials(
            agent_id="agent-1", company_id="company-1", server_id="server-1",
            agent_token="canary-token", token_issued_at=dt.datetime.now(dt.UTC), machine_id="m",
            collector_url="http://127.0.0.1:1", enrolled_at=dt.datetime.now(dt.UTC),
        )
    )  # fmt: skip
    return tmp_path


def status_file(state_dir, *, sender="ok", **changes):
    document = {
        "running": True, "pid": os.getpid(), "at": time.time(), "state": "running", "error": "",
        "line": f"delivery={sender} queued=3", "storage": "disk",
        "sender": {"state": sender, "last_error": "status 503 unavailable"}, **changes,
    }  # fmt: skip
    (state_dir / "status.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({}, 0, ""),
        ({"sender": "backoff"}, 0, ""),
        ({"running": False}, 6, "does not run"),
        ({"pid": 2**22 + 1}, 6, "does not run"),
        ({"at": time.time() - 3600}, 6, "has not written its status for 3"),
        ({"at": "x"}, 6, "has not written its status"),
        ({"state": "identity_mismatch"}, 6, "identity_mismatch"),
        ({"sender": "unauthorized"}, 6, "does not accept the agent's token"),
        ({"sender": "agent_revoked"}, 7, ""),
    ],
)
def test_a_health_check_ends_with_0_only_when_the_agent_does_its_work(
    state, capsys, changes, code, said
):
    """Without --check the end says only that the question could be answered."""
    status_file(state, **changes)
    assert main(["status", "--check", "--state-dir", str(state)]) == code
    assert said in capsys.readouterr().err
    assert main(["status", "--state-dir", str(state)]) == (7 if code == 7 else 0)
    assert "last_error: status 503 unavailable\n" in capsys.readouterr().out


def test_an_agent_that_never_ran_is_not_well(state):
    assert main(["status", "--check", "--state-dir", str(state)]) == 6


def test_why_batches_are_in_memory_is_shown(state, capsys):
    status_file(state, error="batches are kept in memory: no room", storage="memory")
    main(["status", "--state-dir", str(state)])
    assert "error: batches are kept in memory: no room\n" in capsys.readouterr().out


def enroll(collector, state_dir, license_file):
    settings = ["--collector-url", collector.url, "--state-dir", str(state_dir)]
    return main(["enroll", *settings, "--license-file", str(license_file)])


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (ScriptedAnswer(status=404), 6, "the address of the ingest door?"),
        (refuse(404, "not_found"), 6, "the address of the ingest door?"),
        (ScriptedAnswer(status=502, body=b"<html>"), 6, "the address of the ingest door?"),
        (refuse(503, "unavailable"), 6, "try again later"),
        (refuse(401, "license_invalid"), 5, "get a new one"),
        (refuse(409, "token_used"), 5, "each license works once"),
        (refuse(422, "binding_failed"), 5, "get one for this machine"),
    ],
)
def test_an_enrolment_that_failed_says_the_way_out(tmp_path, capsys, answer, code, said):
    file = tmp_path / "license"
    file.write_text("LICENSE-CANARY")
    with ScriptedCollector() as collector:
        collector.script(answer, path="/enroll")
        assert enroll(collector, tmp_path / "state", file) == code
    errors = capsys.readouterr().err
    assert said in errors
    assert f"status {answer.status}" in errors
    assert "LICENSE-CANARY" not in errors


@pytest.mark.parametrize("text", ["", " \n", "x" * 70_000])
def test_a_license_that_is_none_is_named_by_its_file(tmp_path, capsys, text):
    file = tmp_path / "license"
    file.write_text(text)
    with ScriptedCollector() as collector:
        assert enroll(collector, tmp_path / "state", file) == 3
    assert f"--license-file {file}: is empty or over" in capsys.readouterr().err


def test_check_config_without_an_address_shows_the_rest_all_the_same(tmp_path, capsys):
    assert main(["check-config", "--state-dir", str(tmp_path)]) == 3
    shown = capsys.readouterr()
    assert "collector_url: \n" in shown.out
    assert "interval: 30s\n" in shown.out
    assert "collector_url is not set" in shown.err


def test_a_limit_below_zero_is_wrong_usage(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["wal", "dump", "--limit", "-1", "--state-dir", str(tmp_path)])
    assert caught.value.code == 2
    assert "-1 is below 0" in capsys.readouterr().err
