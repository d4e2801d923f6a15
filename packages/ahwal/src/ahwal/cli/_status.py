"""`ahagent status` and `ahagent check-config`: what is known without disturbing the agent."""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import attrs

from ahwal.agent._config import AgentConfig
from ahwal.agent._credentials import CredentialStore
from ahwal.agent._enrol import make_client
from ahwal.agent._files import read_small
from ahwal.agent._settings import SETTINGS, to_text
from ahwal.agent._status_file import FILE_NAME as STATUS_FILE_NAME
from ahwal.cli._exit import ExitCode
from ahwal.cli._say import say, say_field
from ahwal.errors import ConfigError, NotEnrolledError
from ahwal.transport._url import without_credentials
from ahwal.wal._lock import is_alive

_FILE_BYTES_MAX = 1 << 20
# The file is written every 10 s.
_FRESH_SECONDS = 60.0


def status(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Print identity and state; exits 4 when not enrolled, 7 when revoked.

    With `--check` also 6 unless the agent runs, wrote its status within a minute, and may send.
    """
    credentials = CredentialStore(state_dir=config.state_dir).load()
    known = _read_status(Path(config.state_dir) / STATUS_FILE_NAME)
    running = bool(known.get("running")) and _alive(known.get("pid"))
    sender = known["sender"] if isinstance(known.get("sender"), dict) else {}
    expires = credentials.token_expires_at
    document: dict[str, Any] = {
        "agent_id": credentials.agent_id,
        "company_id": credentials.company_id,
        "server_id": credentials.server_id,
        "collector_url": config.collector_url or credentials.collector_url,
        "enrolled_at": credentials.enrolled_at.isoformat(),
        "token_expires_at": None if expires is None else expires.isoformat(),
        "running": running,
        "last_known": known,
    }
    if options.json:
        say(json.dumps(document, indent=2))
    else:
        for name in ("agent_id", "company_id", "server_id", "collector_url", "enrolled_at"):
            say_field(name, document[name])
        say_field("token_expires_at", document["token_expires_at"] or "never")
        say_field("running", f"yes, pid {known.get('pid')}" if running else "no")
        if known:
            line = f"{known.get('line', '')} storage={known.get('storage', '')}"
            say_field("last known", line)
        for name, text in (("error", known.get("error")), ("last_error", sender.get("last_error"))):
            if text:
                say_field(name, text)
    if "agent_revoked" in (known.get("state"), sender.get("state")):
        return ExitCode.REVOKED
    problem = _unwell(known, sender, running=running) if options.check else ""
    if problem:
        say(f"ahagent: {problem}", error=True)
    return ExitCode.TEMPORARY if problem else ExitCode.OK


def _unwell(known: dict[str, Any], sender: dict[str, Any], *, running: bool) -> str:
    """Say why the agent does not do its work; nothing when it does."""
    if not running:
        return "the agent does not run"
    at = known.get("at")
    age = time.time() - at if isinstance(at, (int, float)) else math.inf
    # A process id may be another program's meanwhile, and an agent that runs may hang.
    if not age <= _FRESH_SECONDS:
        return f"the agent has not written its status for {age:.0f} s"
    state = known.get("state")
    if state != "running":
        return f"the agent is {state}"
    if sender.get("state") == "unauthorized":
        return "the collector does not accept the agent's token"
    return ""


def check_config(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Print the settings in force; wrong ones ended the command before."""
    url, source = config.collector_url, ""
    if url is None:
        source = " (from enrolment)"
        try:
            url = CredentialStore(state_dir=config.state_dir).load().collector_url
        except NotEnrolledError:
            url, source = None, ""
    # Building a client reads the files of TLS and checks the proxy; nothing is sent.
    if url:
        make_client(config, url, None)
    values = attrs.asdict(config)
    if values["proxy_url"] is not None:
        values["proxy_url"] = without_credentials(values["proxy_url"])
    values["collector_url"] = url
    if options.json:
        shown = {setting.key: values[setting.field] for setting in SETTINGS}
        say(json.dumps(shown, indent=2))
    else:
        for setting in SETTINGS:
            text = to_text(setting, values[setting.field])
            say_field(setting.key, f"{text}{source if setting.key == 'collector_url' else ''}")
    if config.insecure_skip_verify:
        say(
            "WARNING: insecure_skip_verify is on: anyone on the way can read the token",
            error=True,
        )
    if not url:
        raise ConfigError("collector_url is not set; it is required, such as https://host:8443")
    return ExitCode.OK


def _read_status(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_small(path, _FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        # Nothing was ever written, or not by us: then nothing is known.
        return {}
    return document if isinstance(document, dict) else {}


def _alive(pid: object) -> bool:
    return isinstance(pid, int) and pid > 0 and is_alive(pid)
