"""One connection to NATS: what nats-py is used for, and all that is used of it."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio

from ahcollector._extras import missing_extra
from ahcollector._nats_config import NatsConfig, NatsMessage
from ahcollector.errors import NatsError

try:
    import nats.aio.client
    import nats.errors
except ModuleNotFoundError as error:
    raise missing_extra("ahcollector.nats", "nats", error) from error

__all__ = ["Heard", "Line", "Lost", "translated"]

_log = logging.getLogger("ahcollector.nats")

_PING_SECONDS: Final = 5

Heard = Callable[[NatsMessage], None]
Lost = Callable[[], None]


@contextmanager
def translated(what: str, where: str, said: Callable[[], str] = str) -> Iterator[None]:
    """Turn what nats-py and the socket raise into `NatsError`; nats-py's errors end here.

    `said` tells what the server said last beside its answers: to who asks for what is not allowed
    it gives no answer.
    """
    try:
        yield
    except nats.errors.MaxPayloadError as error:
        raise NatsError(
            f"{where} takes no message as large as that for {what}: raise its "
            "max_payload, or lower entry_bytes_max"
        ) from error
    except ImportError as error:
        raise NatsError(
            f"{where}: credentials_file needs a package that is not there ({error}): "
            "install nats-py[nkeys]"
        ) from error
    except (nats.errors.Error, OSError, TimeoutError) as error:
        if "authorization" in str(error).lower():
            raise NatsError(
                f"{where} refuses the login ({error}): check username and password, "
                "token or credentials",
                is_refusal=True,
            ) from error
        if _is_forbidden(what, said()):
            raise NatsError(
                f"{where} refuses {what} ({said()}): allow this user that (permissions), or "
                "correct the prefix",
                is_refusal=True,
            ) from error
        raise NatsError(
            f"{where} gave no answer to {what}: {str(error) or type(error).__name__}"
        ) from error


def _is_forbidden(what: str, said: str) -> bool:
    """Whether the server said that this is not allowed, or that no answer may be heard."""
    text = said.lower()
    return "permissions violation" in text and (
        f'"{what.lower()}"' in text or "for subscription" in text
    )


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
        if self._flush_queue is None:
            # It never began.
            return
        try:
            await super()._close(status, do_cbs)
        except OSError as error:
            _log.debug("a connection to NATS ended", extra={"error": str(error)})
        finally:
            self._ended()


class Line:
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
        self._said: Exception | None = None

    async def open(self) -> None:
        try:
            await self._connect(self._config)
        except nats.errors.NoServersError as error:
            # That none is left to be asked says nothing; what the last one said does.
            raise self._said or error from error
        self._prefix = self._nats.new_inbox()
        await self._subscribe(f"{self._prefix}.*", self._hear)

    async def _connect(self, config: NatsConfig) -> None:
        await self._nats.connect(
            servers=list(config.servers),
            allow_reconnect=False,
            connect_timeout=config.timeout_seconds,  # type: ignore[arg-type]  # any number will do
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
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

    async def _subscribe(self, subject: str, heard: Callable[[Any], Awaitable[None]]) -> Any:
        # What comes is bounded by what is asked for, and taken at once.
        return await self._nats.subscribe(
            subject, cb=heard, pending_msgs_limit=0, pending_bytes_limit=0
        )

    @property
    def said(self) -> str:
        """What the server said last beside its answers."""
        return "" if self._said is None else str(self._said)

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
                heard(_message_of(message))

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
            one[0](_message_of(message))

    async def _note(self, error: Exception) -> None:
        self._said = error
        text = str(error) or type(error).__name__
        _log.debug("the connection to NATS", exc_info=error, extra={"error": text})

    def _lose(self) -> None:
        self.is_lost = True
        heard, self._heard = self._heard, {}
        for _, lost in heard.values():
            lost()


def _message_of(message: Any) -> NatsMessage:
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
