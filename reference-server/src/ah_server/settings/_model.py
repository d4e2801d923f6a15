"""The settings as frozen values, each field with its default, its range and one line of meaning.

Durations are seconds unless the name says otherwise, sizes are bytes.
"""

from pathlib import Path

import attrs

from ah_server.settings._alerting import AlertingSettings
from ah_server.settings._backends import (
    BusSettings,
    NatsSettings,
    RedisSettings,
    StoreSettings,
    TsdbSettings,
    WorkerSettings,
)
from ah_server.settings._checks import (
    check_admin_token,
    check_host,
    check_http_url,
    check_id,
    check_token,
)
from ah_server.settings._fields import NO_SECRET, Address, Network, Secret, section, setting
from ahwire import limits as wire


@attrs.frozen(kw_only=True)
class LogSettings:
    level: str = setting(
        "info", "least level printed", one_of=("debug", "info", "warning", "error")
    )
    format: str = setting(
        "text", "text for people, json for collectors of logs", one_of=("text", "json")
    )


@attrs.frozen(kw_only=True)
class IngestSettings:
    listen: Address = setting(Address("127.0.0.1", 8420), "where agents connect")
    public_url: str = setting(
        "",
        "the address told to agents at enrolment; empty: http:// and listen",
        check=check_http_url,
    )
    tls_cert: Path | None = setting(
        None, "PEM certificate chain; with tls_key the door speaks HTTPS"
    )
    tls_key: Path | None = setting(None, "PEM private key of tls_cert")
    trusted_proxies: tuple[Network, ...] = setting(
        (),
        "networks of our own proxies, as in 10.0.0.0/8, 192.0.2.7: from them X-Forwarded-For is"
        " believed, as the address of an enrolling agent",
    )
    body_timeout_seconds: float = setting(
        15.0, "a request body must have arrived by then", between=(1, 300)
    )
    compressed_bytes_max: int = setting(
        wire.MAX_COMPRESSED_BYTES, "a body of samples as it arrives", between=(1 << 16, 16 << 20)
    )
    plain_bytes_max: int = setting(
        wire.MAX_PLAIN_BYTES, "a body of samples when inflated", between=(1 << 16, 64 << 20)
    )
    small_body_bytes_max: int = setting(
        256 << 10, "any other body, as it arrives and when inflated", between=(1 << 12, 16 << 20)
    )
    points_per_batch_max: int = setting(
        wire.MAX_POINTS_PER_BATCH, "points in one body", between=(1, 200_000)
    )
    labels_per_series_max: int = setting(
        wire.MAX_LABELS_PER_SERIES,
        "labels of a series; with its name and the tenant's two they are at most 30 in the store",
        between=(1, 27),
    )
    name_bytes_max: int = setting(
        wire.MAX_NAME_BYTES, "a metric's or a label's name", between=(16, 250)
    )
    label_value_bytes_max: int = setting(
        wire.MAX_LABEL_VALUE_BYTES, "a label's value", between=(16, 4096)
    )
    point_age_hours_max: float = setting(
        wire.MAX_POINT_AGE_SECONDS / 3600, "older points are refused", between=(0.1, 24 * 31)
    )
    point_future_seconds_max: float = setting(
        float(wire.MAX_POINT_FUTURE_SECONDS),
        "points further in the future are refused",
        between=(0, 3600),
    )
    metrics_burst: int = setting(
        10, "batches an agent may send at once before its rate counts", between=(1, 10_000)
    )
    metrics_per_minute_min: float = setting(
        4.0,
        "batches an agent may send in a minute whatever its interval; two an interval if more",
        between=(4, 10_000),
    )
    points_per_minute: int = setting(
        wire.POINTS_PER_MINUTE,
        "points an agent may send in a minute by remote write and OTLP",
        between=(1, 1_000_000_000),
    )
    config_per_minute: float = setting(
        float(wire.CONFIG_PER_MINUTE),
        "questions of an agent for its configuration in a minute; as many renewals and inventories",
        between=(0.1, 600),
    )
    enroll_per_minute: float = setting(
        float(wire.ENROLL_PER_MINUTE),
        "enrolments from one address in a minute (IPv6: from one /64)",
        between=(0.1, 6000),
    )
    known_series_bytes_max: int = setting(
        128 << 20,
        "memory for series that are recognised by their bytes, which makes batches quick to judge",
        between=(1 << 20, 1 << 36),
    )
    series_per_hour: int = setting(
        500, "new series an agent may make an hour", between=(1, 1_000_000)
    )
    series_first_hour: int = setting(
        5000, "new series an agent may make in its first hour", between=(1, 1_000_000)
    )
    interval_min_seconds: float = setting(
        float(wire.MIN_INTERVAL_SECONDS),
        "shorter agent intervals count as this one",
        between=(1, 300),
    )
    interval_max_seconds: float = setting(
        float(wire.MAX_INTERVAL_SECONDS),
        "longer agent intervals count as this one",
        between=(1, 3600),
    )


@attrs.frozen(kw_only=True)
class AdminSettings:
    listen: Address = setting(Address("127.0.0.1", 8421), "where the admin API listens")
    token: Secret = setting(
        NO_SECRET,
        "bearer token of the admin API, 16 characters at least; empty: made at the first start"
        " or check, in the state directory",
        check=check_admin_token,
    )
    previous_token: Secret = setting(
        NO_SECRET,
        "the token before this one, taken too while it is being replaced; empty: none",
        check=check_admin_token,
    )


@attrs.frozen(kw_only=True)
class HubSettings:
    base_url: str = setting(
        "", "the hub's address; empty: the development hub in this process", check=check_http_url
    )
    token: Secret = setting(
        NO_SECRET,
        "bearer token for the hub; empty: made at the first start or check, in the state directory",
        check=check_token,
    )
    listen: Address = setting(Address("127.0.0.1", 8422), "where the development hub listens")
    timeout_seconds: float = setting(
        10.0, "an answer of the hub must have come by then", between=(1, 120)
    )
    sync_interval_seconds: float = setting(
        60.0, "time between two pulls of agents", between=(1, 3600)
    )
    lookup_per_second: int = setting(50, "token look-ups at the hub a second", between=(1, 10_000))


@attrs.frozen(kw_only=True)
class RegistrySettings:
    snapshot_seconds: float = setting(
        5.0, "time between two snapshots of the embedded registry", between=(0.1, 3600)
    )
    tombstone_ttl_days: float = setting(
        90.0,
        "a revoked token is answered as revoked so long, then as unknown; who was deleted is"
        " remembered as long, and for 31 days at least",
        between=(0.01, 3660),
    )
    full_sync_interval_hours: float = setting(
        24.0,
        "time between two comparisons of all agents with the hub's, which find orphans",
        between=(0.01, 24 * 31),
    )
    remove_orphans: bool = setting(
        default=False,
        doc="whether agents that the hub no longer lists are removed, and not only reported",
    )
    renew_overlap_hours: float = setting(
        24.0,
        "a renewed agent's old token stays good so long, by the development hub; another hub"
        " decides itself",
        between=(0, 24 * 31),
    )


@attrs.frozen(kw_only=True)
class OutboxSettings:
    backend: str = setting(
        "auto",
        "where events wait for the hub: memory: in this process, lost with it; file: in outbox.dir;"
        " redis: the Redis of redis.addr, shared; discard: nowhere, they are only counted; auto:"
        " redis where redis.addr is set, else file",
        one_of=("auto", "memory", "file", "redis", "discard"),
    )
    dir: Path | None = setting(
        None, "directory of an outbox in a file, for it alone; empty: outbox under state_dir"
    )
    lease_seconds: float = setting(
        15.0,
        "so long after its last sign of life a server that sends from a shared outbox keeps the"
        " others waiting; at least one and a half times hub.timeout_seconds",
        between=(1, 300),
    )
    flush_interval_seconds: float = setting(
        1.0, "time between two looks for unsent events", between=(0.05, 60)
    )
    batch_max: int = setting(200, "events in one request", between=(1, 200))
    backoff_min_seconds: float = setting(1.0, "first wait after a failure", between=(0.1, 300))
    backoff_max_seconds: float = setting(
        300.0,
        "longest wait after failures, also where the hub asks for more with Retry-After",
        between=(1, 3600),
    )
    retention_hours: float = setting(
        24.0,
        "age at which an event that the hub does not take becomes a dead letter",
        between=(0.1, 24 * 30),
    )
    dead_max: int = setting(
        100_000, "dead letters kept, and of 64 MiB at most", between=(1, 10_000_000)
    )
    dead_retention_days: float = setting(
        30.0, "age at which a dead letter is removed", between=(0.1, 3660)
    )


@attrs.frozen(kw_only=True)
class MailSettings:
    host: str = setting("", "SMTP server; empty: e-mail is not configured", check=check_host)
    port: int = setting(587, "its port", between=(1, 65_535))
    sender: str = setting("", "From address")
    username: str = setting("", "login name; empty: none; never sent with security plain")
    password: Secret = setting(NO_SECRET, "login password")
    security: str = setting(
        "starttls",
        "how the connection is protected; plain only on a trusted path",
        one_of=("starttls", "tls", "plain"),
    )
    timeout_seconds: float = setting(30.0, "the server must answer by then", between=(1, 300))


@attrs.frozen(kw_only=True)
class NotifySettings:
    listen: Address = setting(
        Address("127.0.0.1", 8424), "where the API of rules, contacts and history listens"
    )
    mail: MailSettings = section(MailSettings)
    poll_seconds: float = setting(0.5, "time between two looks for due work", between=(0.05, 60))
    digest_grace_seconds: float = setting(
        60.0, "a digest waits so long after its period ended", between=(0, 3600)
    )


@attrs.frozen(kw_only=True)
class ConsoleSettings:
    listen: Address = setting(Address("127.0.0.1", 8423), "where the console listens")
    password: Secret = setting(
        NO_SECRET, "asked by the console; required where listen is not loopback"
    )
    refresh_seconds: int = setting(
        10, "a page loads itself anew after this time", between=(2, 3600)
    )


@attrs.frozen(kw_only=True)
class ServerSettings:
    """Every setting of the server. Nothing set means one process with everything embedded."""

    state_dir: Path = setting(
        Path("/var/lib/ah-server"), "everything that is kept between two runs"
    )
    collector_id: str = setting(
        "", "this collector's name at the hub; empty: the host's name", check=check_id
    )
    log: LogSettings = section(LogSettings)
    ingest: IngestSettings = section(IngestSettings)
    admin: AdminSettings = section(AdminSettings)
    hub: HubSettings = section(HubSettings)
    registry: RegistrySettings = section(RegistrySettings)
    redis: RedisSettings = section(RedisSettings)
    bus: BusSettings = section(BusSettings)
    nats: NatsSettings = section(NatsSettings)
    worker: WorkerSettings = section(WorkerSettings)
    tsdb: TsdbSettings = section(TsdbSettings)
    store: StoreSettings = section(StoreSettings)
    alerting: AlertingSettings = section(AlertingSettings)
    outbox: OutboxSettings = section(OutboxSettings)
    notify: NotifySettings = section(NotifySettings)
    console: ConsoleSettings = section(ConsoleSettings)

    @property
    def outbox_backend(self) -> str:
        """The outbox that `outbox.backend` stands for: memory, file, redis or discard."""
        if self.outbox.backend != "auto":
            return self.outbox.backend
        return "file" if self.redis.addr is None else "redis"

    @property
    def bus_backend(self) -> str:
        """The bus that `bus.backend` stands for: inproc, redis or jetstream."""
        if self.bus.backend != "auto":
            return self.bus.backend
        # A worker on a shared bus takes the batches of every server. In a store that is its own
        # nobody else would find them, so this takes both.
        return "redis" if self.redis.addr is not None and self.tsdb.url else "inproc"
