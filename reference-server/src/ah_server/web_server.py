"""Serves ASGI applications with uvicorn, on sockets that were bound before anything else began."""

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from ah_server.connections import Room, connection_class
from ah_server.errors import AddressInUseError, ServerError, SettingsError
from ah_server.settings import Address

_BACKLOG = 64


def bind(address: Address, setting: str) -> socket.socket:
    """Binds and listens, so that a taken port is known before the server changes anything.

    Args:
        address: where; port 0 takes a free one.
        setting: the setting's name, for the error.

    Raises:
        AddressInUseError: another program listens there.
        SettingsError: the address is none of this machine's, or may not be used.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Lets a restarted server take its port back while old connections linger.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(
                f"{setting}: another program listens on {address}; stop it, or set {setting} to"
                " another port (0 takes a free one)"
            ) from error
        reason = error.strerror or str(error)
        raise SettingsError(
            [f"{setting}: cannot listen on {address} ({reason}); name an address of this machine"]
        ) from error
    listener.setblocking(False)  # noqa: FBT003  # the library's signature
    return listener


def bound_address(listener: socket.socket) -> Address:
    """The address a socket really has."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


Application = ASGIApp
"""An ASGI application, as the libraries hand them over."""


class _QuietServer(uvicorn.Server):
    """A uvicorn server that leaves signals to its program and tells when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


class WebServer:
    """One ASGI application on one socket, as a part of the server.

    Args:
        name: how the part is called.
        app: the application.
        listener: the bound socket.
        tls_cert: PEM certificate chain; with `tls_key` the door speaks HTTPS.
        tls_key: its key.
        stop_seconds: how long open requests may take at the stop.
        connections_max: how many connections it has room for.
    """

    def __init__(
        self,
        *,
        name: str,
        app: ASGIApp,
        listener: socket.socket,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        stop_seconds: float = 3.0,
        connections_max: int = 128,
    ) -> None:
        self.name = name
        self.room = Room(connections_max)
        self.stop_seconds = stop_seconds
        self._listener = listener
        config = uvicorn.Config(
            app,
            http=connection_class(self.room),
            # So many connections are accepted before any of them can be closed for room.
            backlog=_BACKLOG,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            # Whom X-Forwarded-For is believed from is the application's setting; the server's own
            # default would believe every program on this machine.
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(stop_seconds) - 1),
            h11_max_incomplete_event_size=64 << 10,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                [f"ingest.tls_cert: {tls_cert} and {tls_key} cannot be used ({error})"]
            ) from error
        self._server = _QuietServer(config)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serves until told to stop; ready once connections are taken."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._announce, task_status)
            await self._server.serve(sockets=[self._listener])
            group.cancel_scope.cancel()
        if not self._server.started:
            raise ServerError(f"the web server {self.name} could not start")

    async def _announce(self, task_status: TaskStatus[None]) -> None:
        await self._server.up.wait()
        task_status.started()

    def stop(self) -> bool:
        """Lets open requests end, takes no new ones."""
        self._server.should_exit = True
        return True
