"""What the server logs as JSON: whole lines, ids, and no secret of anybody's."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest
import yaml

from ah_server.logs import mask_secrets

#: Secrets as they come in, each in its own place.
ADMIN = "canary-admin-token-4711"
PREVIOUS = "canary-admin-before-4711"
HUB = "canary-hub-token-4711"
CONSOLE = "canary-console-password-4711"
AGENT = "canary-agent-token-4711"
LICENSE = "canary-license-4711"
GUESS = "canary-guess-4711"
SECRETS = (ADMIN, PREVIOUS, HUB, CONSOLE, AGENT, LICENSE, GUESS)
HASHES = tuple(hashlib.sha256(secret.encode()).hexdigest() for secret in SECRETS)
STARTED_SECONDS = 40
DOORS = ("ingest", "admin", "hub", "notify", "console")


class Server:
    """A server as a process of its own, on ports of its own, that logs JSON."""

    def __init__(self, folder):
        config = folder / "server.yaml"
        settings = {door: {"listen": "127.0.0.1:0"} for door in DOORS}
        settings["admin"] |= {"token": ADMIN, "previous_token": PREVIOUS}
        settings["hub"] |= {"token": HUB}
        settings["ingest"] |= {"trusted_proxies": ["127.0.0.0/8"]}
        settings["console"] |= {"password": CONSOLE}
        settings |= {
            "state_dir": str(folder / "state"),
            "collector_id": "collector-7",
            "log": {"format": "json", "level": "debug"},
        }
        config.write_text(yaml.safe_dump(settings))
        self.lines = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ah_server", "run", "--config", str(config)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if "AHC_" not in name},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        self.lines.extend(iter(self.process.stderr.readline, b""))

    def addresses(self):
        deadline = time.monotonic() + STARTED_SECONDS
        while time.monotonic() < deadline:
            for line in list(self.lines):
                found = json.loads(line)
                if found["msg"] == "ready":
                    return {door: f"http://{found[door]}" for door in DOORS}
            assert self.process.poll() is None, b"".join(self.lines)
            time.sleep(0.05)
        raise AssertionError(b"".join(self.lines))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self._reader.join(timeout=10)
        with self.process.stdout, self.process.stderr:
            assert self.process.stdout.read() == b""
        return code


def bearer(token, **more):
    return {"Authorization": f"Bearer {token}", "X-AH-Proto": "1", **more}


def requests(at):
    """Requests with a secret at every place where one can be, right ones and wrong ones."""
    record = {
        "agent_id": "a1",
        "company_id": "acme",
        "server_id": "s1",
        "state": "active",
        "token_hash": hashlib.sha256(AGENT.encode()).hexdigest(),
        "version": 1,
    }
    id_ = {"X-Request-Id": "my-request-1"}
    json_type = {"Content-Type": "application/json"}
    agent, admin = f"{at['ingest']}/agent/v1", f"{at['admin']}/admin/v1"
    yield "POST", f"{agent}/metrics", {"headers": bearer(GUESS, **id_)}
    yield "GET", f"{agent}/config", {"headers": {"Authorization": f"Basic {GUESS}", **id_}}
    enrolment = {"license": LICENSE, "machineId": "m", "hostname": "h"}
    yield "POST", f"{agent}/enroll", {"json": enrolment, "headers": {"X-AH-Proto": "1"}}
    yield "POST", f"{agent}/enroll", {"content": LICENSE, "headers": {"X-AH-Proto": "1"}}
    yield "PUT", f"{admin}/agents/a1", {"json": record, "headers": bearer(ADMIN, **id_)}
    yield (
        "PUT",
        f"{admin}/agents/a1",
        {"json": record | {"token_hash": HASHES[6] + "0"}, "headers": bearer(ADMIN)},
    )
    yield "PUT", f"{admin}/agents/a1", {"content": AGENT, "headers": bearer(PREVIOUS)}
    yield "POST", f"{agent}/metrics", {"content": AGENT, "headers": bearer(AGENT, **id_)}
    yield "POST", f"{agent}/metrics", {"content": AGENT, "headers": bearer(AGENT, **json_type)}
    yield "POST", f"{agent}/inventory", {"content": f'{{"x": "{GUESS}', "headers": bearer(AGENT)}
    yield "POST", f"{agent}/credentials/renew", {"headers": bearer(AGENT)}
    for path in ("/api/v1/write", "/v1/metrics"):
        yield "POST", f"{at['ingest']}{path}", {"content": GUESS, "headers": bearer(AGENT)}
    yield "GET", f"{admin}/counts", {"headers": bearer(GUESS, **id_)}
    yield "GET", f"{admin}/presence?token={GUESS}", {"headers": bearer(ADMIN, **id_)}
    yield "DELETE", f"{admin}/agents/a1", {"headers": bearer(ADMIN, **id_)}
    yield "POST", f"{agent}/metrics", {"headers": bearer(AGENT)}
    for door in ("hub", "notify", "console"):
        yield "GET", f"{at[door]}/", {"headers": bearer(GUESS), "params": {"password": GUESS}}
    yield "GET", f"{at['console']}/", {"auth": ("anybody", CONSOLE)}
    yield "GET", f"{at['hub']}/api/v1/monitoring/collector/agents", {"headers": bearer(HUB)}


def enrolments(at, client, addresses):
    """Enrolments that a proxy passes on from these addresses."""
    for address in addresses:
        yield client.post(
            f"{at['ingest']}/agent/v1/enroll",
            json={"license": LICENSE, "machineId": "m"},
            headers={"X-AH-Proto": "1", "X-Forwarded-For": f"{GUESS}, {address}"},
        )


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The lines of a server that all these requests were made to."""
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        at = server.addresses()
        with httpx.Client(trust_env=False, timeout=20) as client:
            answers = [client.request(method, url, **more) for method, url, more in requests(at)]
            answers += enrolments(at, client, [f"198.51.100.{number}" for number in range(15)])
            answers += enrolments(at, client, ["192.0.2.7"] * 15)
    finally:
        code = server.stop()
    assert code == 0
    return server.lines, [(answer.status_code, answer.text) for answer in answers]


def test_every_line_is_an_object_with_time_level_message_and_collector(logged):
    lines, _ = logged
    assert len(lines) > 20
    for line in lines:
        found = json.loads(line)
        assert found["level"] in ("debug", "info", "warning", "error")
        assert found["msg"]
        assert found["collector_id"] == "collector-7"
        assert found["time"].endswith("Z")
        assert found["logger"]


def test_the_requests_were_refused_and_answered_as_they_should_be(logged):
    _, answers = logged
    assert [status for status, _ in answers[:14]] == [
        401, 401, 401, 400, 200, 400, 400, 400, 400, 400, 404, 415, 400, 401,
    ]  # fmt: skip


def test_behind_a_trusted_proxy_each_client_has_its_own_limit_of_enrolments(logged):
    _, answers = logged
    statuses = [status for status, _ in answers]
    assert statuses[-30:-15] == [401] * 15
    assert statuses[-15:-5] == [401] * 10
    assert 429 in statuses[-5:]


def test_what_came_with_a_request_is_logged_with_its_id(logged):
    lines, _ = logged
    found = [json.loads(line) for line in lines]
    named = [line for line in found if line.get("request_id") == "my-request-1"]
    said = {(line["logger"], line["msg"], line.get("code")) for line in named}
    assert {
        ("ahcollector.ingest", "request refused", "unauthorized"),
        ("ahcollector.ingest", "request refused", "bad_request"),
        ("ahcollector.admin", "admin request refused", "unauthorized"),
        ("ahcollector.admin", "admin request refused", "bad_request"),
        ("ahcollector.admin", "admin request done", None),
    } <= said
    refused = [line for line in found if "refused" in line["msg"]]
    assert all(line["request_id"] for line in refused)


def test_no_line_and_no_answer_has_a_secret_or_more_of_a_hash_than_its_beginning(logged):
    lines, answers = logged
    told = b"".join(lines).decode().lower() + "".join(text for _, text in answers).lower()
    for secret in SECRETS:
        assert secret not in told
    for whole in HASHES:
        assert whole[:9] not in told


def test_a_server_that_cannot_start_says_so_in_json(tmp_path):
    (tmp_path / "state").write_text("a file where the directory should be")
    config = tmp_path / "server.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "state_dir": str(tmp_path / "state"),
                "log": {"format": "json"},
                **{door: {"listen": "127.0.0.1:0"} for door in DOORS},
            }
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "ah_server", "run", "--config", str(config)],
        capture_output=True,
        timeout=STARTED_SECONDS,
        check=False,
    )
    assert done.returncode == 5
    *_, last = done.stderr.splitlines()
    assert "state_dir" in json.loads(last)["msg"]
    assert json.loads(last)["level"] == "error"


def test_fields_that_name_a_secret_are_masked_however_deep_they_are():
    line = {
        "event": "x",
        "token": "canary",
        "request": {"Authorization": "canary", "path": "/p", "inner": {"admin_token": "canary"}},
        "token_hash": "0123456789abcdef",
        "license_hash": "0123456789abcdef",
    }
    assert mask_secrets(None, "info", line) == {
        "event": "x",
        "token": "***",
        "request": {"Authorization": "***", "path": "/p", "inner": {"admin_token": "***"}},
        "token_hash": "01234567",
        "license_hash": "01234567",
    }
