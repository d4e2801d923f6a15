"""A small SMTP server on loopback that keeps what it is sent: the demo's one person's mailbox."""

import asyncio
import socket
from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import anyio
from aiosmtpd.smtp import SMTP, Envelope, Session
from anyio.abc import TaskStatus

_MESSAGES_MAX = 1000


class MailSink:
    """Receives mail, keeps it in memory and as `.eml` files, and tells a listener.

    It is a part like the others of the server, and needs asyncio.

    Args:
        listener: the bound socket it takes connections from.
        folder: where the files go; made when missing.
        on_mail: called with each message.
    """

    name = "mail sink"
    stop_seconds = 1.0

    def __init__(
        self, *, listener: socket.socket, folder: Path, on_mail: Callable[[EmailMessage], None]
    ) -> None:
        self._listener = listener
        self._folder = folder
        self._on_mail = on_mail
        self._messages: list[EmailMessage] = []
        self._arrived = anyio.Condition()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Takes mail until cancelled."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: SMTP(self, hostname="mail-sink", loop=loop), sock=self._listener
        )
        try:
            task_status.started()
            await server.serve_forever()
        finally:
            server.close()

    def stop(self) -> bool:
        """It ends by cancellation."""
        return False

    def messages(self) -> tuple[EmailMessage, ...]:
        """What has arrived so far, oldest first."""
        return tuple(self._messages)

    async def wait_for(self, count: int) -> None:
        """Returns when as many messages have arrived."""
        async with self._arrived:
            while len(self._messages) < count:
                await self._arrived.wait()

    # The name and the answers are aiosmtpd's.
    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Takes one message."""
        raw = envelope.content
        if not isinstance(raw, bytes):
            return "554 expected bytes"
        if len(self._messages) >= _MESSAGES_MAX:
            return "452 the mailbox is full"
        message = message_from_bytes(raw, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self._messages.append(message)
        (self._folder / f"{len(self._messages):04d}.eml").write_bytes(raw)
        self._on_mail(message)
        async with self._arrived:
            self._arrived.notify_all()
        return "250 kept"


def body_text(message: EmailMessage) -> str:
    """The plain text of a message; empty when it has none."""
    part = message.get_body(preferencelist=("plain",))
    return part.get_content() if part is not None else ""
