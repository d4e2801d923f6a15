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
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio
import nats.aio.client
import nats.errors

from ahcollector._nats_config import NatsConfig, NatsMessage
from ahcollector.clock import AsyncClock, SystemClock
from ahcollector.errors import NatsError

__all__ = ["NatsClient", "NatsConfig"]

_log = logging.getLogger("ahcollector.nats")

_PING_SECONDS: Final = 5
_NO_RESPONDERS: Final = "503"


Heard = Callable[[NatsMessage], None]
Lost = Callable[[], None]


class Inbox:
    """A subject of its own, on which one connection hears until that is lost or it is closed.

    Attributes:
        subject: What others reply to.
    """

    def __init__(self, *, client: NatsClient, line: _Line, subject: str) -> None:
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
        self._line: _Line | None = None
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
        self, line: _Line, subject: str, data: bytes, *, headers: Mapping[str, str] | None
    ) -> NatsMessage:
        """Send a request on a connection; see `Inbox.request`."""
        answer: asyncio.Future[NatsMessage | None] = asyncio.get_running_loop().create_future()

        def settle(message: NatsMessage | None) -> None:
            if not answer.done():
                answer.set_result(message)

        reply = line.expect(settle, lambda: settle(None))
        try:
            with self._translated(subject), anyio.fail_after(self._config.timeout_seconds):
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

    async def on(self, line: _Line, subject: str, data: bytes, *, reply: str) -> None:
        """Send something on a connection; see `Inbox.send`."""
        with self._translated(subject), anyio.fail_after(self._config.timeout_seconds):
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

    async def _connected(self) -> _Line:
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

    async def _connect(self) -> _Line:
        if self._is_closed:
            raise NatsError("the client of NATS is closed: the process is stopping")
        now = self._clock.monotonic()
        if self._failed is not None and now - self._failed[0] < self._retry_seconds:
            raise NatsError(self._failed[1])
        line = _Line(self._config)
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

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Turn what nats-py and the socket raise into `NatsError`."""
        try:
            yield
        except nats.errors.AuthorizationError as error:
            raise NatsError(
                f"{self._where} refuses the login ({error}): check username and password, token "
                "or credentials"
            ) from error
        except nats.errors.MaxPayloadError as error:
            raise NatsError(
                f"{self._where} takes no message as large as that for {what}: raise its "
                "max_payload, or lower entry_bytes_max"
            ) from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise NatsError(
                f"{self._where} gave no answer to {what}: {str(error) or type(error).__name__}"
            ) from error


class _Strict(nats.aio.client.Client):
    """A client that sends no password in clear where TLS was asked for, and says when it ended.

    Args:
        needs_tls: Whether TLS was asked for.
        ended: Called when the connection is gone, for whatever reason.
    """

    def __init__(self, *, needs_tls: bool, ended: Callable[[], None]) -> None:
        super().__init__()
        self._needs_tls = needs_tls
        self._ended = ended

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # What nats-py calls with the greeting, before it sends anything. By itself it would speak
        # TLS only where the server asks for it, and whoever is in between would not.
        if self._needs_tls and initial_connection and not info.get("tls_required"):
            raise nats.errors.Error("the server speaks no TLS, and tls is set")
        await super()._process_info(info, initial_connection)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # What nats-py calls at every end. By itself it would still write what is left to a socket
        # that is gone, fail at that, and tell nobody of the end.
        self._pending.clear()
        self._pending_data_size = 0
        try:
            await super()._close(status, do_cbs)
        except OSError as error:
            _log.debug("a connection to NATS ended", extra={"error": str(error)})
        finally:
            self._ended()


class _Line:
    """One connection of nats-py, never repaired."""

    def __init__(self, config: NatsConfig) -> None:
        self.is_lost = False
        self._config = config
        self._nats = _Strict(needs_tls=config.tls, ended=self._lose)
        self._heard: dict[str, tuple[Heard, Lost]] = {}
        self._inboxes: dict[str, Any] = {}
        self._closed_inboxes: list[Any] = []
        self._prefix = ""
        self._count = 0

    async def open(self) -> None:
        config = self._config
        await self._nats.connect(
            servers=list(config.servers),
            allow_reconnect=False,
            connect_timeout=config.timeout_seconds,  # type: ignore[arg-type]  # any number will do
            max_reconnect_attempts=1,
            ping_interval=_PING_SECONDS,
            max_outstanding_pings=2,
            error_cb=self._note,
            name="ahcollector",
            user=config.username or None,
            password=config.password or None,
            token=config.token or None,
            user_credentials=None
            if config.credentials_file is None
            else str(config.credentials_file),
            **_tls(config),
        )
        self._prefix = self._nats.new_inbox()
        await self._subscribe(f"{self._prefix}.*", self._hear)

    async def _subscribe(self, subject: str, heard: Callable[[Any], Awaitable[None]]) -> Any:
        # What comes is bounded by what is asked for, and taken at once.
        return await self._nats.subscribe(
            subject, cb=heard, pending_msgs_limit=0, pending_bytes_limit=0
        )

    @property
    def payload_bytes_max(self) -> int:
        return self._nats.max_payload

    def expect(self, heard: Heard, lost: Lost) -> str:
        self._count += 1
        subject = f"{self._prefix}.{self._count}"
        self._heard[subject] = (heard, lost)
        return subject

    def forget(self, subject: str) -> None:
        self._heard.pop(subject, None)

    async def open_inbox(self, heard: Heard, lost: Lost) -> str:
        """Return a subject of its own: entries come under the subject that they were put on."""
        if self.is_lost:
            raise nats.errors.ConnectionClosedError
        await self._unsubscribe()
        self._count += 1
        subject = f"{self._prefix}-{self._count}"

        async def hear(message: Any) -> None:
            if subject in self._heard:
                heard(_message(message))

        self._heard[subject] = (heard, lost)
        try:
            self._inboxes[subject] = await self._subscribe(subject, hear)
        except BaseException:
            self._heard.pop(subject, None)
            raise
        return subject

    def close_inbox(self, subject: str) -> None:
        self._heard.pop(subject, None)
        inbox = self._inboxes.pop(subject, None)
        if inbox is not None:
            self._closed_inboxes.append(inbox)

    async def _unsubscribe(self) -> None:
        """Tell the server of the inboxes that were closed: those who do so do not wait."""
        while self._closed_inboxes:
            await self._closed_inboxes.pop().unsubscribe()

    async def send(
        self, subject: str, data: bytes, *, reply: str, headers: Mapping[str, str] | None
    ) -> None:
        if self.is_lost:
            raise nats.errors.ConnectionClosedError
        if self._closed_inboxes:
            await self._unsubscribe()
        await self._nats.publish(
            subject, data, reply=reply, headers=None if headers is None else dict(headers)
        )

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
            await self._nats.close()
        self._lose()

    async def _hear(self, message: Any) -> None:
        one = self._heard.get(message.subject)
        if one is not None:
            one[0](_message(message))

    async def _note(self, error: Exception) -> None:
        # What becomes of it is told to whoever waits; this says why.
        text = str(error) or type(error).__name__
        _log.debug("the connection to NATS", exc_info=error, extra={"error": text})

    def _lose(self) -> None:
        self.is_lost = True
        heard, self._heard = self._heard, {}
        for _, lost in heard.values():
            lost()


def _message(message: Any) -> NatsMessage:
    return NatsMessage(
        subject=message.subject,
        reply=message.reply,
        data=message.data,
        headers=message.headers or {},
    )


def _tls(config: NatsConfig) -> dict[str, Any]:
    if not config.tls:
        return {}
    context = ssl.create_default_context(
        cafile=None if config.tls_ca_file is None else str(config.tls_ca_file)
    )
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return {"tls": context}
