"""What all doors answer while the start waits for a service.

The sockets listen before anything else begins, so whoever connects meanwhile would hang, and a
probe with them. Here `waiting_app` answers them.

The servers that answer have duplicates of the sockets. Connections that come between their end and
the beginning of the real ones wait in the kernel for the moment it takes.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from ah_server.parts import one_error
from ah_server.waiting_app import waiting_app
from ah_server.web_server import Application, WebServer
from ah_server.wiring._awaited import Awaited

_PATIENCE_SECONDS = 0.5
T = TypeVar("T")


async def answered_meanwhile(
    compose: Callable[[], Awaitable[T]],
    *,
    servers: Callable[[Application], Sequence[WebServer]],
    awaited: Awaited,
) -> T:
    """Returns what `compose` does; when that takes its time, the doors answer until it is done.

    Args:
        compose: the start. What it raises is raised, and its cancellation ends the answering too.
        servers: makes the servers of all doors for an application. They close their sockets.
        awaited: what the start waits for.
    """
    made: list[T] = []
    failure: Exception | None = None
    with one_error():
        async with anyio.create_task_group() as group:
            answering = _Answering(servers=partial(servers, waiting_app(awaited.checks)))
            group.start_soon(answering.run, group)
            try:
                made.append(await compose())
            except Exception as error:  # noqa: BLE001  # raised below, outside of the group
                failure = error
            finally:
                with anyio.CancelScope(shield=True):
                    await answering.end()
    if failure is not None:
        raise failure
    return made[0]


class _Answering:
    """Servers that begin when the start takes long, and end before the real ones begin."""

    def __init__(self, *, servers: Callable[[], Sequence[WebServer]]) -> None:
        self._make = servers
        self._patience = anyio.CancelScope()
        self._over = False
        self._open: list[tuple[WebServer, anyio.Event]] = []

    async def run(self, group: TaskGroup) -> None:
        with self._patience:
            # So that a quick start stays one. In real time, as those who wait for an answer count.
            await anyio.sleep(_PATIENCE_SECONDS)
        if self._over:
            return
        for server in self._make():
            done = anyio.Event()
            self._open.append((server, done))
            group.start_soon(self._serve, server, done)

    async def _serve(self, server: WebServer, done: anyio.Event) -> None:
        # Shielded: cut off in its midst, a server would leave its socket to take connections.
        with anyio.CancelScope(shield=True):
            try:
                await server.run(task_status=anyio.TASK_STATUS_IGNORED)
            finally:
                done.set()

    async def end(self) -> None:
        """Take no more connections, and let requests end within a second."""
        self._over = True
        self._patience.cancel()
        for server, _ in self._open:
            server.stop()
        for _, done in self._open:
            await done.wait()
