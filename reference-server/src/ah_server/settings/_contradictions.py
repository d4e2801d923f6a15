"""What is right alone and wrong together: settings that contradict each other."""

from ah_server.settings._checks import shown
from ah_server.settings._model import IngestSettings, MailSettings, RedisSettings, ServerSettings


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
    found += _mail_problems(settings.notify.mail)
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
