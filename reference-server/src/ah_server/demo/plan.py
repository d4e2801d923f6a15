"""Where the demo keeps what, on which ports, and with which settings."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from ah_server.errors import AddressInUseError
from ah_server.settings import Address, ServerSettings, settings_from
from ah_server.web_server import bind

COMPANY = "demo"
RECIPIENT = "you"
MAIL_TO = "you@demo.example"
MAIL_FROM = "monitoring@demo.example"
NOTIFICATION_RULES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "silent-servers": ("agent_down", "a silent server"),
        "alerts": ("alert_*", "an alert of a threshold rule"),
    }
)
"""By id: which events are told, and the words for it."""
MAIL_PORT = 8425

_DEFAULT_PORTS = {"ingest": 8420, "admin": 8421, "hub": 8422, "console": 8423, "notify": 8424}


@attrs.frozen(kw_only=True)
class Pace:
    """How fast the demo runs; all in seconds."""

    interval: float
    down_after: float
    scan: float
    flush: float
    blind_grace: float


STEADY = Pace(interval=2.0, down_after=10.0, scan=1.0, flush=0.5, blind_grace=4.0)
"""For people who watch."""

QUICK = Pace(interval=1.0, down_after=5.0, scan=0.25, flush=0.2, blind_grace=2.0)
"""For the check, which has 90 seconds."""


@attrs.frozen(kw_only=True)
class DemoFolders:
    """The demo's state directory."""

    root: Path

    @property
    def server(self) -> Path:
        """The server's state."""
        return self.root / "server"

    @property
    def agent(self) -> Path:
        """The agent's configuration, state, ledger and log."""
        return self.root / "agent"

    @property
    def mail(self) -> Path:
        """The mails that were sent, one file each."""
        return self.root / "mail"


def default_folder(environment: Mapping[str, str]) -> Path:
    """`ah-demo` under XDG_STATE_HOME, which is `~/.local/state` when it is not set.

    A relative XDG_STATE_HOME is ignored, as its specification says.
    """
    base = Path(environment.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "ah-demo"


def free_address(port: int) -> Address:
    """The loopback address with this port, or with port 0 (any free one) when it is taken."""
    wanted = Address("127.0.0.1", port)
    try:
        bind(wanted, "demo").close()
    except AddressInUseError:
        return Address("127.0.0.1", 0)
    return wanted


def demo_settings(folders: DemoFolders, *, pace: Pace, mail_port: int) -> ServerSettings:
    """The server's settings: everything embedded, on loopback, at the demo's pace."""
    data: dict[str, Any] = {
        name: {"listen": str(free_address(port))} for name, port in _DEFAULT_PORTS.items()
    }
    data["state_dir"] = str(folders.server)
    data["log"] = {"level": "warning"}
    data["ingest"] |= {"interval_min_seconds": 1.0}
    data["alerting"] = {
        "agent_interval_seconds": pace.interval,
        "down_min_seconds": pace.down_after,
        "scan_interval_seconds": pace.scan,
        "blind_grace_max_seconds": pace.blind_grace,
        "seen_interval_seconds": 5.0,
        "heartbeat_interval_seconds": 5.0,
        "rules_sync_interval_seconds": 5.0,
        "silences_sync_interval_seconds": 5.0,
    }
    data["outbox"] = {"flush_interval_seconds": pace.flush}
    data["hub"] |= {"sync_interval_seconds": 5.0}
    data["console"] |= {"refresh_seconds": 5}
    data["notify"] |= {
        "poll_seconds": pace.flush,
        "mail": {
            "host": "127.0.0.1",
            "port": mail_port,
            "sender": MAIL_FROM,
            # The sink listens on this machine only, and knows no TLS.
            "security": "plain",
        },
    }
    # The shell's AHC_* belong to another server.
    return settings_from(data, {})
