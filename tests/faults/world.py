"""A whole system of real processes for fault tests: server, agent, and a mail sink in the test."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from email import message_from_bytes, policy
from pathlib import Path

import httpx
import yaml
from aiosmtpd.controller import Controller

from testkit import free_port

DOORS = ("ingest", "admin", "hub", "console", "notify")
COMPANY = "acme"
SERVER = "web1"
TO = "ann@acme.example"


def wait_until(what: str, look: Callable[[], object], *, seconds: float) -> object:
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


class Mailbox:
    """An SMTP server whose answers can be set; it keeps what it took."""

    def __init__(self) -> None:
        self.messages = []
        self.answers = []  # the next answers to DATA, before "250 kept"
        self._lock = threading.Lock()
        self.port = free_port()
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)

    def __enter__(self):
        self._controller.start()
        return self

    def __exit__(self, *_):
        self._controller.stop()

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802  # aiosmtpd's name
        with self._lock:
            answer = self.answers.pop(0) if self.answers else "250 kept"
            if answer.startswith("250"):
                self.messages.append(message_from_bytes(envelope.content, policy=policy.default))
        return answer


class World:
    """Server and agent as processes, at a quick pace, with one rule that tells Ann.

    `more` are settings of the server over the quick ones.
    """

    def __init__(self, folder: Path, mailbox: Mailbox, **more) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.mailbox = mailbox
        self.ports = {door: free_port() for door in DOORS}
        self.config = folder / "server.yaml"
        self.server = None
        self.agent = None
        self.agent_config = folder / "agent.yaml"
        self.ledger = folder / "ledger.jsonl"
        settings = {door: {"listen": f"127.0.0.1:{port}"} for door, port in self.ports.items()}
        settings |= {
            "state_dir": str(folder / "server"),
            "log": {"level": "debug"},
            "alerting": {
                "agent_interval_seconds": 1,
                "down_min_seconds": 4,
                "scan_interval_seconds": 0.2,
                "blind_grace_max_seconds": 2,
            },
            "outbox": {"flush_interval_seconds": 0.1},
        }
        settings["ingest"]["interval_min_seconds"] = 1
        settings["notify"] |= {
            "poll_seconds": 0.1,
            "mail": {
                "host": "127.0.0.1",
                "port": mailbox.port,
                "sender": "monitoring@acme.example",
                "security": "plain",
            },
        }
        for name, value in more.items():
            known = settings.get(name)
            settings[name] = known | value if isinstance(known, dict) else value
        self.config.write_text(yaml.safe_dump(settings))
        agent = {
            "collector_url": f"http://127.0.0.1:{self.ports['ingest']}",
            "state_dir": str(folder / "agent"),
            "interval": "1s",
            "allow_short_interval": True,
        }
        self.agent_config.write_text(yaml.safe_dump(agent))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.agent, self.server):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def run(self, *arguments, stdin=None):
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env=self._environment(),
        )

    def command(self, *arguments, stdin=None):
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _environment(self):
        strip = ("AH_", "AHC_")
        return {name: value for name, value in os.environ.items() if not name.startswith(strip)}

    def _spawn(self, log, *arguments):
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=out,
                stderr=out,
                env=self._environment(),
            )

    def begin_server(self) -> None:
        self.server = self._spawn("server.log", "ah_server", "run", "--config", str(self.config))

    def start_server(self, *, seconds: float = 60) -> None:
        self.begin_server()
        wait_until("the server is up", self._is_up, seconds=seconds)

    def _is_up(self):
        assert self.server.poll() is None, (self.folder / "server.log").read_text()[-3000:]
        try:
            # The ingest door is the last to open.
            return httpx.get(self.url("ingest", "/agent/v1/ping"), trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def url(self, door: str, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[door]}{path}"

    def kill_server(self) -> None:
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def stop_server(self) -> None:
        self.server.terminate()
        assert self.server.wait(timeout=60) == 0, (self.folder / "server.log").read_text()[-3000:]

    def set_up(self) -> None:
        cli = ("ah_server", "notify")
        config = ("--config", str(self.config))
        self.command(*cli, "tenant", "new", "--tenant", COMPANY, *config)
        key = self.command(*cli, "key", "new", "--tenant", COMPANY, *config)
        headers = {"Authorization": f"Bearer {key}"}
        contact = {
            "recipient_type": "user",
            "recipient_id": "ann",
            "channel": "email",
            "address": TO,
            "verified": True,
        }
        rule = {
            "name": "Silence",
            "filters": {"event_type": ["agent_down"]},
            "recipients": [{"recipient_type": "user", "recipient_id": "ann"}],
            "channels": ["email"],
        }
        for path, body in (("/v1/contacts", contact), ("/v1/rules", rule)):
            answer = httpx.post(
                self.url("notify", path), json=body, headers=headers, trust_env=False
            )
            assert answer.status_code == 201, answer.text
        license_text = self.command(
            "ah_server", "hub", "license", "new", "--company", COMPANY, "--server", SERVER, *config
        )
        self.command(
            "ahwal",
            "enroll",
            "--config",
            str(self.agent_config),
            "--license-file",
            "-",
            stdin=license_text + "\n",
        )

    def start_agent(self) -> None:
        self.agent = self._spawn(
            "agent.log",
            "ahwal",
            "run",
            "--config",
            str(self.agent_config),
            "--ledger",
            str(self.ledger),
        )

    def kill_agent(self) -> None:
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()

    @property
    def hub_token(self) -> str:
        return (self.folder / "server" / "hub.token").read_text().strip()

    @property
    def admin_token(self) -> str:
        return (self.folder / "server" / "admin.token").read_text().strip()

    def events(self) -> list[str]:
        token = self.hub_token
        answer = httpx.get(
            self.url("hub", "/admin/api/events"),
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        )
        return [line["event"]["type"] for line in answer.json()["events"]]

    def presence(self) -> list[dict]:
        token = self.admin_token
        answer = httpx.get(
            self.url("admin", "/admin/v1/presence"),
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        )
        return answer.json()["agents"]

    def is_heard(self) -> bool:
        return any(agent["last_seen_at"] and agent["state"] == "up" for agent in self.presence())

    def ledger_lines(self) -> int:
        if not self.ledger.exists():
            return 0
        complete = 0
        for line in self.ledger.read_bytes().split(b"\n"):
            try:
                json.loads(line)
            except ValueError:
                continue
            complete += 1
        return complete
