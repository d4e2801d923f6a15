"""What is right alone and wrong together: settings that contradict each other."""

from ah_server.settings._backends import (
    HELD_HOURS_MAX,
    BusSettings,
    NatsSettings,
    RedisSettings,
    TsdbSettings,
)
from ah_server.settings._checks import shown
from ah_server.settings._fields import Shards
from ah_server.settings._model import IngestSettings, MailSettings, ServerSettings


def contradictions(settings: ServerSettings) -> list[str]:
    """One sentence for each contradiction, beginning with the setting to change."""
    found = []
    found += _ingest_problems(settings.ingest)
    if settings.hub.base_url and not settings.hub.token:
        found.append("hub.token: required with hub.base_url; set it, or hub.token_file")
    if not settings.console.listen.is_loopback and not settings.console.password:
        found.append(
            f"console.password: required because console.listen is {settings.console.listen},"
            " which other machines reach; set it, or listen on 127.0.0.1"
        )
    if settings.admin.previous_token and not settings.admin.token:
        found.append(
            "admin.token: required with admin.previous_token; set the new one, or leave the"
            " previous one empty"
        )
    found += _redis_problems(settings.redis)
    found += _bus_problems(settings)
    # What is waited for in NATS has no settings here.
    found += [] if settings.bus_backend == "jetstream" else _lease_problems(settings.bus)
    found += _nats_problems(settings.nats)
    found += _tsdb_problems(settings.tsdb)
    found += _age_problems(settings)
    found += _mail_problems(settings.notify.mail)
    if settings.outbox.backend == "redis" and settings.redis.addr is None:
        found.append("outbox.backend: redis needs redis.addr; set it, or outbox.backend: file")
    shared = settings.outbox_backend == "redis"
    if shared and settings.outbox.lease_seconds < 1.5 * settings.hub.timeout_seconds:
        found.append(
            f"outbox.lease_seconds: {settings.outbox.lease_seconds:g} is under one and a half times"
            f" hub.timeout_seconds ({settings.hub.timeout_seconds:g}): the lease would end while"
            " the hub is waited for; raise it, or lower the other"
        )
    if settings.outbox.backoff_min_seconds > settings.outbox.backoff_max_seconds:
        found.append(
            f"outbox.backoff_min_seconds: {settings.outbox.backoff_min_seconds:g} is over"
            f" outbox.backoff_max_seconds ({settings.outbox.backoff_max_seconds:g})"
        )
    return found


def _ingest_problems(ingest: IngestSettings) -> list[str]:
    found = []
    if bool(ingest.tls_cert) != bool(ingest.tls_key):
        found.append("ingest.tls_cert: works only together with ingest.tls_key; set both or none")
    if ingest.compressed_bytes_max > ingest.plain_bytes_max:
        found.append(
            f"ingest.plain_bytes_max: {ingest.plain_bytes_max} is under"
            f" ingest.compressed_bytes_max ({ingest.compressed_bytes_max}), and a body inflated is"
            " not smaller; raise it, or lower the other"
        )
    if ingest.interval_min_seconds > ingest.interval_max_seconds:
        found.append(
            f"ingest.interval_min_seconds: {ingest.interval_min_seconds:g} is over"
            f" ingest.interval_max_seconds ({ingest.interval_max_seconds:g})"
        )
    return found


def _redis_problems(redis: RedisSettings) -> list[str]:
    found = []
    if redis.tls_ca_file is not None and not redis.tls:
        found.append("redis.tls_ca_file: works only with redis.tls; set that to true, or none")
    if redis.username and not redis.password:
        found.append(
            "redis.password: required with redis.username; set it, or redis.password_file, or leave"
            " the username empty"
        )
    return found


def _bus_problems(settings: ServerSettings) -> list[str]:
    found = []
    if settings.bus.backend == "redis" and settings.redis.addr is None:
        found.append(
            "bus.backend: redis needs redis.addr; set that, or set bus.backend to auto or inproc"
        )
    if settings.bus.backend == "jetstream" and not settings.nats.url:
        found.append(
            "bus.backend: jetstream needs nats.url; set that, or set bus.backend to auto or inproc"
        )
    if settings.bus.backend == "auto" and settings.nats.url:
        found.append(
            "bus.backend: auto does not use the NATS of nats.url; set it to jetstream, or leave"
            " nats.url empty"
        )
    if settings.bus_backend == "inproc" and settings.worker.shards != Shards.every():
        found.append(
            f"worker.shards: {settings.worker.shards} leaves shards that nobody else can read,"
            " because the bus is in this process; set it to all, or set bus.backend to a bus that"
            " is shared"
        )
    return found


def _lease_problems(bus: BusSettings) -> list[str]:
    found = []
    if bus.claim_idle_seconds <= 2 * bus.block_seconds:
        found.append(
            f"bus.claim_idle_seconds: {bus.claim_idle_seconds:g} is not over twice"
            f" bus.block_seconds ({bus.block_seconds:g}), so batches that are just being read would"
            " be claimed; raise it, or lower the other"
        )
    if bus.lease_seconds <= 4 * bus.block_seconds:
        found.append(
            f"bus.lease_seconds: {bus.lease_seconds:g} is not over four times bus.block_seconds"
            f" ({bus.block_seconds:g}), so a lease would end while its owner waits; raise it, or"
            " lower the other"
        )
    return found


def _nats_problems(nats: NatsSettings) -> list[str]:
    found = []
    logins = {
        "nats.username and nats.password": bool(nats.username or nats.password),
        "nats.token": bool(nats.token),
        "nats.credentials": nats.credentials is not None,
    }
    given = [name for name, is_set in logins.items() if is_set]
    if len(given) > 1:
        found.append(f"{given[-1]}: works only without {given[0]}; keep one way to log in")
    elif bool(nats.username) != bool(nats.password):
        missing, there = ("password", "username") if nats.username else ("username", "password")
        found.append(
            f"nats.{missing}: required with nats.{there}; set it, or leave the other empty"
        )
    if nats.tls_ca_file is not None and not (nats.tls or "tls://" in nats.url):
        found.append("nats.tls_ca_file: works only with nats.tls; set that to true, or no file")
    if nats.buffer_shard_batches > nats.buffer_batches:
        found.append(
            f"nats.buffer_batches: {nats.buffer_batches} is under nats.buffer_shard_batches"
            f" ({nats.buffer_shard_batches}); raise it, or lower the other"
        )
    return found


def _tsdb_problems(tsdb: TsdbSettings) -> list[str]:
    found = []
    if tsdb.long_url and not tsdb.url:
        found.append("tsdb.url: required with tsdb.long_url; set it, or leave long_url empty")
    if tsdb.bearer and (tsdb.username or tsdb.password):
        found.append(
            "tsdb.bearer: works only without tsdb.username and tsdb.password; keep one of the two"
            " ways to log in"
        )
    elif tsdb.username and not tsdb.password:
        found.append(
            "tsdb.password: required with tsdb.username; set it, or tsdb.password_file, or leave"
            " the username empty"
        )
    elif tsdb.password and not tsdb.username:
        found.append(
            "tsdb.username: required with tsdb.password; set it, or leave the password empty"
        )
    addresses = [url for url in (tsdb.url, tsdb.long_url) if url]
    if tsdb.tls_ca_file and not any(url.startswith("https://") for url in addresses):
        found.append(
            "tsdb.tls_ca_file: works only with an https:// address in tsdb.url or tsdb.long_url;"
            " set that, or no file"
        )
    return found


def _age_problems(settings: ServerSettings) -> list[str]:
    hours, days = settings.ingest.point_age_hours_max, settings.tsdb.retention_days
    if not settings.tsdb.url or hours + HELD_HOURS_MAX <= 24 * days:
        return []
    told = (
        f"ingest.point_age_hours_max: {hours:g}, and {HELD_HOURS_MAX} more that a batch may wait on"
        f" the bus, is over tsdb.retention_days ({days:g}), so points that agents were told are"
        " taken would not be stored; lower it, or raise the other and VictoriaMetrics'"
        " -retentionPeriod"
    )
    return [told]


def _mail_problems(mail: MailSettings) -> list[str]:
    found = []
    if mail.host and not mail.sender:
        found.append("notify.mail.sender: required with notify.mail.host; set the From address")
    if mail.sender and not _is_sender(mail.sender):
        found.append(
            f"notify.mail.sender: {shown(mail.sender)} cannot be used: expected an e-mail address"
            " in ASCII, as in monitoring@example.com"
        )
    if mail.username and mail.security == "plain":
        found.append(
            "notify.mail.username: never sent unprotected, and notify.mail.security is plain; set"
            " that to starttls or tls, or leave the username empty"
        )
    return found


def _is_sender(text: str) -> bool:
    # The e-mail provider decides, so that what is taken here is taken there. Imported only when
    # there is something to ask: it brings the SMTP library with it.
    from ahnotify.errors import ConfigurationError  # noqa: PLC0415  # see above
    from ahnotify.providers.email import EmailSettings  # noqa: PLC0415  # see above

    try:
        EmailSettings(host="localhost", sender=text)
    except ConfigurationError:
        return False
    return True
