"""Runs the composed server until a signal."""

import logging
import signal
from collections.abc import Callable

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

    Args:
        settings: the settings.
        seams: other parts than the real ones, for tests.
        progress: told each part that starts and stops.
        ready: told once all parts serve.

    Raises:
        ServerError: it could not start, or a part failed.
    """
    async with assembled(settings, seams=seams) as assembly:
        with one_error():
            await _serve(assembly, progress, ready)


async def _serve(
    assembly: Assembly,
    progress: Callable[[str, str], None],
    ready: Callable[[Assembly], None],
) -> None:
    supervisor = Supervisor(assembly.parts, progress=progress)
    async with anyio.create_task_group() as group:
        await group.start(stop_on_signal, supervisor)
        group.start_soon(_announce, supervisor, assembly, ready)
        try:
            await supervisor.run()
        finally:
            group.cancel_scope.cancel()


async def _announce(
    supervisor: Supervisor, assembly: Assembly, ready: Callable[[Assembly], None]
) -> None:
    await supervisor.all_started.wait()
    ready(assembly)


async def stop_on_signal(supervisor: Supervisor, *, task_status: TaskStatus[None]) -> None:
    """Turns the first SIGINT or SIGTERM into an orderly stop; later ones change nothing."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            _log.info("stopping on %s", signal.Signals(number).name)
            supervisor.request_stop()
