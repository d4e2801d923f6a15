"""The notification center, on SQLite and the job queue in the same file."""

from contextlib import AsyncExitStack

import anyio
import attrs

import ahnotify
from ah_server.parts import Loop, Part
from ah_server.settings import ServerSettings
from ah_server.wiring._seams import Doors, Seams, kept_file, web
from ahnotify.providers.email import EmailProvider, EmailSettings


@attrs.frozen(kw_only=True)
class NotifySide:
    """The notification center."""

    database: ahnotify.Database
    broker: ahnotify.SqlBroker
    directory: ahnotify.Directory
    rules: ahnotify.RuleStore


async def notify_side(
    settings: ServerSettings, seams: Seams, doors: Doors, stack: AsyncExitStack
) -> tuple[NotifySide, tuple[Part, ...]]:
    path = settings.state_dir / "notify" / "notify.sqlite"
    url = f"sqlite:///{path}"
    with kept_file(path, "the notification database"):
        await anyio.to_thread.run_sync(ahnotify.migrate, url)
    database = ahnotify.Database.open(url)
    stack.push_async_callback(database.aclose)
    broker = ahnotify.SqlBroker(database=database, clock=seams.clock)
    side = NotifySide(
        database=database,
        broker=broker,
        directory=ahnotify.Directory(database=database, clock=seams.clock),
        rules=ahnotify.RuleStore(database=database, clock=seams.clock),
    )
    incidents = ahnotify.SqlIncidentStore(database=database, clock=seams.clock)
    cache = ahnotify.RuleCache(
        store=side.rules, clock=seams.clock, reload_seconds=settings.notify.poll_seconds
    )
    matching = ahnotify.Matching(database=database, broker=broker, rules=cache, clock=seams.clock)
    scheduling = ahnotify.Scheduling(
        database=database,
        broker=broker,
        clock=seams.clock,
        grace_seconds=settings.notify.digest_grace_seconds,
        look_seconds=settings.notify.poll_seconds,
    )
    channels = _channels(settings, seams)
    sending = ahnotify.Sending(
        database=database,
        broker=broker,
        channels=channels,
        directory=side.directory,
        incidents=incidents,
        clock=seams.clock,
    )
    recorder = ahnotify.IncidentRecorder(store=incidents, broker=broker, clock=seams.clock)
    dead = ahnotify.DeadLetterRecorder(database=database, broker=broker, clock=seams.clock)
    app = ahnotify.rules_app(
        database=database, broker=broker, clock=seams.clock, channels=channels.keys()
    )
    return side, (
        Loop(name="sending", body=sending.run, stop_seconds=3.0),
        Loop(name="dead letters", body=dead.run),
        Loop(name="scheduling", body=scheduling.run),
        Loop(name="incidents", body=recorder.run),
        Loop(name="matching", body=matching.run),
        web("notify", app, doors.notify),
    )


def _channels(settings: ServerSettings, seams: Seams) -> dict[str, ahnotify.Channel[EmailSettings]]:
    mail = settings.notify.mail
    if not mail.host:
        return {}
    email = EmailSettings(
        host=mail.host,
        port=mail.port,
        tls=mail.security,
        sender=mail.sender,
        username=mail.username or None,
        password=mail.password.reveal() or None,
        timeout_seconds=mail.timeout_seconds,
    )
    provider = EmailProvider(clock=seams.clock)
    channel = ahnotify.Channel(
        provider=provider, settings=email, attempt_timeout_seconds=mail.timeout_seconds
    )
    return {"email": channel}
