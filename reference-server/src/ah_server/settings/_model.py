"""The settings as frozen values, each field with its default, its range and one line of meaning.

A field made by `_setting` carries its range, its choices and its documentation in its metadata; the
loader checks against them and `ah-server settings` and the reference page print them, so that the
three cannot disagree. Durations are seconds, sizes are bytes.
"""

import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from ah_server.settings._checks import (
    check_admin_token,
    check_host,
    check_http_url,
    check_id,
    check_token,
    is_host,
)

_PORT_MAX = 65_535


@attrs.frozen
class Address:
    """Where to listen: a host name or address, and a port (0 takes a free one)."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Reads `host:port` or `[v6]:port`.

        Raises:
            ValueError: the text is neither.
        """
        expected = "expected host:port, as in 127.0.0.1:8420"
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        elif ":" in host:
            raise ValueError("an IPv6 address stands in brackets, as in [::1]:8420")
        if not colon or not is_host(host) or bracketed != (":" in host):
            raise ValueError(expected)
        if not port.isascii() or not port.isdigit() or len(port) > len(str(_PORT_MAX)):
            raise ValueError(f"{expected}, and a port from 0 to {_PORT_MAX}")
        if int(port) > _PORT_MAX:
            raise ValueError(f"port {port} is over {_PORT_MAX}")
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def netloc(self) -> str:
        """The address as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.netloc


@attrs.frozen(repr=False)
class Secret:
    """A password or token that shows itself to no log: only `reveal` returns it."""

    _value: str

    def reveal(self) -> str:
        """The secret itself, for the one call that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __bool__(self) -> bool:
        return bool(self._value)


NO_SECRET = Secret("")


def _setting(
    default: Any,
    doc: str,
    *,
    between: tuple[float, float] | None = None,
    one_of: Sequence[str] | None = None,
    check: Callable[[str], None] | None = None,
) -> Any:
    return attrs.field(
        default=default,
        metadata={"doc": doc, "between": between, "one_of": one_of, "check": check},
    )


def _section(section: type) -> Any:
    return attrs.field(factory=section, metadata={"section": section})


@attrs.frozen(kw_only=True)
class LogSettings:
    level: str = _setting(
        "info", "least level printed", one_of=("debug", "info", "warning", "error")
    )
    format: str = _setting(
        "text", "text for people, json for collectors of logs", one_of=("text", "json")
    )


@attrs.frozen(kw_only=True)
class IngestSettings:
    listen: Address = _setting(Address("127.0.0.1", 8420), "where agents connect")
    public_url: str = _setting(
        "",
        "the address told to agents at enrolment; empty: http:// and listen",
        check=check_http_url,
    )
    tls_cert: Path | None = _setting(
        None, "PEM certificate chain; with tls_key the door speaks HTTPS"
    )
    tls_key: Path | None = _setting(None, "PEM private key of tls_cert")
    body_timeout_seconds: float = _setting(
        15.0, "a request body must have arrived by then", between=(1, 300)
    )
    metrics_burst: int = _setting(
        10, "batches an agent may send at once before its rate counts", between=(1, 10_000)
    )
    series_per_hour: int = _setting(
        500, "new series an agent may make an hour", between=(1, 1_000_000)
    )
    series_first_hour: int = _setting(
        5000, "new series an agent may make in its first hour", between=(1, 1_000_000)
    )
    interval_min_seconds: float = _setting(
        10.0, "shorter agent intervals count as this one", between=(1, 300)
    )


@attrs.frozen(kw_only=True)
class AdminSettings:
    listen: Address = _setting(Address("127.0.0.1", 8421), "where the admin API listens")
    token: Secret = _setting(
        NO_SECRET,
        "bearer token of the admin API, 16 characters at least; empty: made at the first start,"
        " in the state directory",
        check=check_admin_token,
    )


@attrs.frozen(kw_only=True)
class HubSettings:
    base_url: str = _setting(
        "", "the hub's address; empty: the development hub in this process", check=check_http_url
    )
    token: Secret = _setting(
        NO_SECRET,
        "bearer token for the hub; empty: made at the first start, in the state directory",
        check=check_token,
    )
    listen: Address = _setting(Address("127.0.0.1", 8422), "where the development hub listens")
    timeout_seconds: float = _setting(
        10.0, "an answer of the hub must have come by then", between=(1, 120)
    )
    sync_interval_seconds: float = _setting(
        60.0, "time between two pulls of agents", between=(1, 3600)
    )
    lookup_per_second: int = _setting(50, "token look-ups at the hub a second", between=(1, 10_000))


@attrs.frozen(kw_only=True)
class RegistrySettings:
    snapshot_seconds: float = _setting(
        5.0, "time between two snapshots of the embedded registry", between=(0.1, 3600)
    )


@attrs.frozen(kw_only=True)
class BusSettings:
    queue_per_shard: int = _setting(
        256, "batches a shard holds before agents are told to wait", between=(1, 100_000)
    )


@attrs.frozen(kw_only=True)
class WorkerSettings:
    max_batch_samples: int = _setting(5000, "samples that make a write due", between=(1, 100_000))
    max_batch_wait_seconds: float = _setting(
        0.5, "age of the oldest sample that makes a write due", between=(0.01, 60)
    )
    shutdown_flush_seconds: float = _setting(
        10.0, "time to write what is left at the stop", between=(0, 60)
    )


@attrs.frozen(kw_only=True)
class StoreSettings:
    retention_hours: float = _setting(
        168.0, "age at which the embedded store forgets a sample", between=(0.1, 24 * 366)
    )
    snapshot_seconds: float = _setting(
        30.0, "time between two snapshots of the embedded store", between=(1, 3600)
    )
    points_max: int = _setting(
        5_000_000,
        "points the embedded store holds; the oldest go first",
        between=(1000, 1_000_000_000),
    )


@attrs.frozen(kw_only=True)
class AlertingSettings:
    agent_interval_seconds: float = _setting(
        30.0, "interval of agents that name none", between=(1, 300)
    )
    down_min_seconds: float = _setting(
        90.0, "an agent is never down before this much silence", between=(1, 86_400)
    )
    scan_interval_seconds: float = _setting(
        10.0, "time between two looks for silent agents", between=(0.1, 300)
    )
    blind_grace_max_seconds: float = _setting(
        300.0,
        "grace after a time in which nobody could be heard; not under the agents' longest backoff",
        between=(0, 3600),
    )
    seen_interval_seconds: float = _setting(
        60.0, "time between two reports of who was seen", between=(1, 60)
    )
    heartbeat_interval_seconds: float = _setting(
        60.0, "time between two signs of life to the hub", between=(1, 3600)
    )


@attrs.frozen(kw_only=True)
class OutboxSettings:
    flush_interval_seconds: float = _setting(
        1.0, "time between two looks for unsent events", between=(0.05, 60)
    )
    batch_max: int = _setting(200, "events in one request", between=(1, 200))
    backoff_min_seconds: float = _setting(1.0, "first wait after a failure", between=(0.1, 300))
    backoff_max_seconds: float = _setting(300.0, "longest wait after failures", between=(1, 3600))
    retention_hours: float = _setting(
        24.0, "age at which an unsent event becomes a dead letter", between=(0.1, 24 * 30)
    )
    dead_max: int = _setting(100_000, "dead letters kept", between=(1, 10_000_000))
    dead_retention_days: float = _setting(
        30.0, "age at which a dead letter is removed", between=(0.1, 3660)
    )


@attrs.frozen(kw_only=True)
class MailSettings:
    host: str = _setting("", "SMTP server; empty: e-mail is not configured", check=check_host)
    port: int = _setting(587, "its port", between=(1, 65_535))
    sender: str = _setting("", "From address")
    username: str = _setting("", "login name; empty: none; never sent with security plain")
    password: Secret = _setting(NO_SECRET, "login password")
    security: str = _setting(
        "starttls",
        "how the connection is protected; plain only on a trusted path",
        one_of=("starttls", "tls", "plain"),
    )
    timeout_seconds: float = _setting(30.0, "the server must answer by then", between=(1, 300))


@attrs.frozen(kw_only=True)
class NotifySettings:
    listen: Address = _setting(
        Address("127.0.0.1", 8424), "where the API of rules, contacts and history listens"
    )
    mail: MailSettings = _section(MailSettings)
    poll_seconds: float = _setting(0.5, "time between two looks for due work", between=(0.05, 60))
    digest_grace_seconds: float = _setting(
        60.0, "a digest waits so long after its period ended", between=(0, 3600)
    )


@attrs.frozen(kw_only=True)
class ConsoleSettings:
    listen: Address = _setting(Address("127.0.0.1", 8423), "where the console listens")
    password: Secret = _setting(
        NO_SECRET, "asked by the console; required where listen is not loopback"
    )
    refresh_seconds: int = _setting(
        10, "a page loads itself anew after this time", between=(2, 3600)
    )


@attrs.frozen(kw_only=True)
class ServerSettings:
    """Every setting of the server. Nothing set means one process with everything embedded."""

    state_dir: Path = _setting(
        Path("/var/lib/ah-server"), "everything that is kept between two runs"
    )
    collector_id: str = _setting(
        "", "this collector's name at the hub; empty: the host's name", check=check_id
    )
    log: LogSettings = _section(LogSettings)
    ingest: IngestSettings = _section(IngestSettings)
    admin: AdminSettings = _section(AdminSettings)
    hub: HubSettings = _section(HubSettings)
    registry: RegistrySettings = _section(RegistrySettings)
    bus: BusSettings = _section(BusSettings)
    worker: WorkerSettings = _section(WorkerSettings)
    store: StoreSettings = _section(StoreSettings)
    alerting: AlertingSettings = _section(AlertingSettings)
    outbox: OutboxSettings = _section(OutboxSettings)
    notify: NotifySettings = _section(NotifySettings)
    console: ConsoleSettings = _section(ConsoleSettings)
