"""Real parts for the tests: a SQLite file, a broker in it, a mail server on loopback."""

from __future__ import annotations

import email
import email.policy
import shutil
import socket
from email.message import EmailMessage

import anyio
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from ahnotify.broker.base import TOPOLOGY
from ahnotify.broker.sql import SqlBroker
from ahnotify.database import Database, migrate
from ahnotify.directory import Directory
from ahnotify.incidents.sql import IncidentRecorder, SqlIncidentStore
from ahnotify.matching import Matching
from ahnotify.providers.base import Channel
from ahnotify.providers.email import EmailProvider, EmailSettings
from ahnotify.rules import RuleCache, RuleStore
from ahnotify.scheduling import Scheduling
from ahnotify.sending import DeadLetterRecorder, Sending
from ahnotify.testing import NOW, FakeClock


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def clock():
    return FakeClock(NOW.timestamp())


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An empty database with all tables, made once by the migrations and then copied."""
    path = tmp_path_factory.mktemp("database") / "empty.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def url(tmp_path, migrated):
    shutil.copy(migrated, tmp_path / "notify.db")
    return f"sqlite:///{tmp_path / 'notify.db'}"


@pytest.fixture
async def database(url, anyio_backend):
    database = Database.open(url)
    yield database
    await database.aclose()


@pytest.fixture
def broker(database, clock):
    return SqlBroker(database=database, clock=clock, poll_seconds=0.25)


@pytest.fixture
def directory(database, clock):
    return Directory(database=database, clock=clock)


@pytest.fixture
def rules(database, clock):
    return RuleStore(database=database, clock=clock)


class Sink:
    """A mail server's handler that keeps what it gets and refuses what it is told to."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.envelopes: list[Envelope] = []
        self.refuse_recipients: dict[str, str] = {}
        self.refuse_data: list[str] = []
        self.drop_after_data = 0

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address, options
    ):
        answer = self.refuse_recipients.get(address)
        if answer is None:
            envelope.rcpt_tos.append(address)
            return "250 OK"
        return answer

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope
    ):
        if self.refuse_data:
            return self.refuse_data.pop(0)
        assert isinstance(envelope.content, bytes)
        self.envelopes.append(envelope)
        self.mails.append(
            email.message_from_bytes(envelope.content, policy=email.policy.default)  # type: ignore[arg-type]
        )
        if self.drop_after_data:
            self.drop_after_data -= 1
            server.transport.abort()
            return None
        return "250 2.0.0 taken"

    def to(self, address: str) -> list[EmailMessage]:
        return [
            mail
            for mail, envelope in zip(self.mails, self.envelopes, strict=True)
            if address in envelope.rcpt_tos
        ]


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def free_port():
    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    return find


@pytest.fixture
def smtp_port(sink, free_port):
    controller = Controller(sink, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield controller.port
    controller.stop()


@pytest.fixture
def settings(smtp_port):
    return EmailSettings(
        host="127.0.0.1",
        port=smtp_port,
        tls="plain",
        sender="alerts@hub.example",
        local_hostname="hub.example",
        timeout_seconds=5,
    )


@pytest.fixture
def channels(settings, clock):
    return {"email": Channel(provider=EmailProvider(clock=clock), settings=settings)}


class Center:
    """All zones in one task group."""

    def __init__(self, database, broker, rules, channels, clock, *, record=True, **sending) -> None:
        self.record = record
        self.clock = clock
        self.broker = broker
        self.cache = RuleCache(store=rules, clock=clock)
        self.matching = Matching(database=database, broker=broker, rules=self.cache, clock=clock)
        self.scheduling = Scheduling(database=database, broker=broker, clock=clock)
        self.sending = Sending(
            database=database, broker=broker, channels=channels, clock=clock, **sending
        )
        self.recorder = DeadLetterRecorder(database=database, broker=broker, clock=clock)
        self.store = SqlIncidentStore(database=database, clock=clock)
        self.incidents = IncidentRecorder(store=self.store, broker=broker, clock=clock)

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            parts = [self.matching, self.scheduling, self.sending, self.recorder]
            for part in [*parts, self.incidents] if self.record else parts:
                tasks.start_soon(part.run)

    async def until(self, condition, *, step_seconds=0.0):
        """Let the parts work until `condition()`; moves the clock by `step_seconds` a turn."""
        with anyio.fail_after(30):
            while not condition():
                await anyio.sleep(0.01)
                # Pollers wake by the clock, so it never stands quite still; and it makes no leap
                # while a message is in work, or a lease would run out in no time.
                leap = step_seconds and not await self.at_work()
                await self.clock.advance(step_seconds if leap else 0.05)

    async def at_work(self) -> bool:
        depths = [await self.broker.depth(queue) for queue in sorted(TOPOLOGY.queues)]
        skipped = 0 if self.record else 1
        return sum(depth.ready + depth.unacked > 0 for depth in depths) > skipped

    async def settle(self, seconds=0.3):
        """Give what should not happen the chance to happen."""
        with anyio.move_on_after(seconds):
            while True:
                await anyio.sleep(0.02)
                await self.clock.advance(0.1)


@pytest.fixture
async def center(database, broker, rules, channels, clock):
    center = Center(database, broker, rules, channels, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(center.run)
        yield center
        tasks.cancel_scope.cancel()


@pytest.fixture
async def center_without_incidents(database, broker, rules, channels, clock):
    """The same without what stores incidents."""
    center = Center(database, broker, rules, channels, clock, record=False, missing_wait_seconds=45)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(center.run)
        yield center
        tasks.cancel_scope.cancel()
