"""The one way to NATS: connections that are made anew, requests that are sent once and bounded.

nats-py can repair its connection itself: it then keeps what was to be sent and sends it later,
when its caller has long given up. Here a connection that is lost is gone with all that was under
way on it, whoever waits for a reply is told at once, and the next request makes a new connection.
So a request is sent at most once, and one that raised may or may not have been done.

A request may be cancelled at any time; its reply, should it come, is thrown away. Replies are told
apart by the subject that each request names for its own, so none is taken for another's.

This module needs asyncio (nats-py does) and the extra ``[nats]``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

import anyio

from ahcollector._asyncio_only import check_asyncio
from ahcollector._nats_config import NatsConfig, NatsMessage
from ahcollector._nats_line import Heard, Line, Lost, translated
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import NatsError

__all__ = ["NatsClient", "NatsConfig"]

_NO_RESPONDERS: Final = "503"


class Inbox:
    """A subject of its own, on which one connection hears until that is lost or it is closed.

    Attributes:
        subject: What others reply to.
    """

    def __init__(self, *, client: NatsClient, line: Line, subject: str) -> None:
        self._client = client
        self._line = line
        self.subject = subject

    @property
    def is_lost(self) -> bool:
        """Whether its connection is gone."""
        return self._line.is_lost

    async def ask(self, subject: str, data: bytes) -> None:
        """Send something whose answers come to this inbox. Raises NatsError."""
        await self._client.on(self._line, subject, data, reply=self.subject)

    async def send(self, subject: str, data: bytes) -> None:
        """Send something that nobody answers, on this connection or not at all. Raises NatsError.

        What is sent so arrives in its order, and before a `request` that follows.
        """
        await self._client.on(self._line, subject, data, reply="")

    async def request(self, subject: str, data: bytes) -> NatsMessage:
        """Send a request on this connection or not at all, and return its answer.

        Raises:
            NatsError: As `NatsClient.request`.
        """
        return await self._client.request_on(self._line, subject, data, headers=None)

    def close(self) -> None:
        """Hear nothing more, from now on."""
        self._line.close_inbox(self.subject)


class NatsClient:
    """Requests and inboxes on one connection at a time.

    Every method raises `NatsError` when NATS gives no answer.

    Args:
        config: Where NATS is.
        clock: Time between attempts to connect.
        retry_seconds: Who asks within so long of a failed attempt has its error at once.
    """

    def __init__(
        self,
        *,
        config: NatsConfig,
        clock: AsyncClock | None = None,
        retry_seconds: float = 0.2,
    ) -> None:
        self.prefix = config.prefix
        self._config = config
        self._clock = clock if clock is not None else SystemClock()
        self._retry_seconds = retry_seconds
        self._line: Line | None = None
        self._connecting = anyio.Lock()
        self._failed: tuple[float, str] | None = None
        self._is_closed = False

    async def request(
        self, subject: str, data: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> NatsMessage:
        """Send a request and return its answer.

        Raises:
            NatsError: No answer came in time, or nobody answers to this subject.
        """
        return await self.request_on(await self._connected(), subject, data, headers=headers)

    async def request_on(
        self, line: Line, subject: str, data: bytes, *, headers: Mapping[str, str] | None
    ) -> NatsMessage:
        """Send a request on a connection; see `Inbox.request`."""
        answer: asyncio.Future[NatsMessage | None] = asyncio.get_running_loop().create_future()

        def settle(message: NatsMessage | None) -> None:
            if not answer.done():
                answer.set_result(message)

        reply = line.expect(settle, lambda: settle(None))
        try:
            with self._translated(subject, line), anyio.fail_after(self._config.timeout_seconds):
                await line.send(subject, data, reply=reply, headers=headers)
                message = await answer
        finally:
            line.forget(reply)
        if message is None:
            raise NatsError(f"{self._where} gave no answer to {subject}: the connection was lost")
        if message.status == _NO_RESPONDERS:
            raise NatsError(
                f"{self._where}: nobody answers to {subject}: what it belongs to is gone, or this "
                "NATS runs without JetStream (nats-server -js)",
                is_nobody=True,
            )
        return message

    async def on(self, line: Line, subject: str, data: bytes, *, reply: str) -> None:
        """Send something on a connection; see `Inbox.send`."""
        with self._translated(subject, line), anyio.fail_after(self._config.timeout_seconds):
            await line.send(subject, data, reply=reply, headers=None)

    async def inbox(self, heard: Heard, lost: Lost) -> Inbox:
        """Return an inbox on the connection of now; `lost` is called when that is gone."""
        line = await self._connected()
        with self._translated("subscribe"), anyio.fail_after(self._config.timeout_seconds):
            subject = await line.open_inbox(heard, lost)
        return Inbox(client=self, line=line, subject=subject)

    async def payload_bytes_max(self) -> int:
        """Return how large a message the server takes, in bytes, headers included."""
        return (await self._connected()).payload_bytes_max

    async def aclose(self) -> None:
        """Close the connection; whoever waits on it is told that it is lost."""
        self._is_closed = True
        line, self._line = self._line, None
        if line is not None:
            await line.aclose()

    # --- its connection

    @property
    def _where(self) -> str:
        return f"NATS at {', '.join(self._config.servers)}"

    async def _connected(self) -> Line:
        check_asyncio("the client of NATS")
        line = self._line
        if line is not None and not line.is_lost:
            return line
        with self._translated("connect"), anyio.fail_after(2 * self._config.timeout_seconds):
            await self._connecting.acquire()
        try:
            line = self._line
            if line is None or line.is_lost:
                line = await self._connect()
            return line
        finally:
            self._connecting.release()

    async def _connect(self) -> Line:
        if self._is_closed:
            raise NatsError("the client of NATS is closed: the process is stopping")
        now = self._clock.monotonic()
        if self._failed is not None and now - self._failed[0] < self._retry_seconds:
            raise NatsError(self._failed[1])
        line = Line(self._config)
        try:
            # Carried to its end: a connection that is half made is nobody's.
            with anyio.CancelScope(shield=True), self._translated("connect"):
                with anyio.fail_after(self._config.timeout_seconds):
                    await line.open()
        except NatsError as error:
            self._failed = (self._clock.monotonic(), str(error))
            await line.aclose()
            raise
        self._failed = None
        self._line = line
        return line

    def _translated(self, what: str, line: Line | None = None) -> AbstractContextManager[None]:
        return translated(what, self._where, lambda: "" if line is None else line.said)
