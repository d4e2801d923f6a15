"""Runs the composed server until a signal."""

import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

import anyio
from anyio.abc import TaskStatus

from ah_server.parts import Supervisor, one_error
from ah_server.settings import ServerSettings
from ah_server.wiring import Assembly, Seams, assembled

_log = logging.getLogger("ah_server.run")


async def serve(
    settings: ServerSettings,
    *,
    seams: Seams | None = None,
    progress: Callable[[str, str], None] = lambda *_: None,
    ready: Callable[[Assembly], None] = lambda _: None,
) -> None:
    """Runs the server until SIGINT or SIGTERM, then stops its parts in reverse order.

    A signal that comes while it is still waiting for a service ends it too.

    Args:
        settings: the settings.
        seams: other parts than the real ones, for tests.
        progress: told each part that starts and stops.
        ready: told once all parts serve.

    Raises:
        ServerError: it could not start, or a part failed.
    """
    stop = _Stop()
    with one_error():
        async with anyio.create_task_group() as group:
            # Before anything is waited for: a container's first process dies of no signal that it
            # does not catch.
            await group.start(stop_on_signal, stop)
            try:
                await _serve(settings, seams, stop, progress, ready)
            finally:
                group.cancel_scope.cancel()


async def _serve(
    settings: ServerSettings,
    seams: Seams | None,
    stop: "_Stop",
    progress: Callable[[str, str], None],
    ready: Callable[[Assembly], None],
) -> None:
    async with AsyncExitStack() as stack:
        with stop.start:
            assembly = await stack.enter_async_context(assembled(settings, seams=seams))
        if stop.requested:
            return
        supervisor = Supervisor(assembly.parts, progress=progress)
        stop.supervisor = supervisor
        async with anyio.create_task_group() as group:
            group.start_soon(_announce, supervisor, assembly, ready)
            try:
                await supervisor.run()
            finally:
                group.cancel_scope.cancel()


class _Stop:
    """Ends the start while it goes on, and the parts once they run."""

    def __init__(self) -> None:
        self.start = anyio.CancelScope()
        self.requested = False
        self.supervisor: Supervisor | None = None

    def request_stop(self) -> None:
        """Begins the orderly end."""
        self.requested = True
        if self.supervisor is None:
            self.start.cancel()
        else:
            self.supervisor.request_stop()


class _Stoppable(Protocol):
    def request_stop(self) -> None: ...


async def _announce(
    supervisor: Supervisor, assembly: Assembly, ready: Callable[[Assembly], None]
) -> None:
    await supervisor.all_started.wait()
    ready(assembly)


async def stop_on_signal(server: _Stoppable, *, task_status: TaskStatus[None]) -> None:
    """Turns the first SIGINT or SIGTERM into an orderly stop; later ones change nothing."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            _log.info("stopping on %s", signal.Signals(number).name)
            server.request_stop()
