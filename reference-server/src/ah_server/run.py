"""Runs the composed server until a signal, and checks what its settings name."""

import logging
import signal
from collections.abc import Callable

import anyio
from anyio.abc import TaskStatus

from ah_server.errors import DependencyError
from ah_server.parts import Supervisor, one_error
from ah_server.settings import ServerSettings
from ah_server.wiring import Assembly, Seams, assembled
from ahcollector.errors import HubError
from ahcollector.hub import HttpHub

_CONNECT_SECONDS = 5.0
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


async def check(settings: ServerSettings) -> list[str]:
    """Reaches what the settings name; returns a line for each thing that was reached.

    Ports and the state directory are tried too, so a running server on the same ones is an error.

    Raises:
        ServerError: something cannot be used or reached; the text names it.
    """
    found = []
    async with assembled(settings, seams=Seams(patient=False)) as assembly:
        found += [f"{name} can listen on {at}" for name, at in assembly.addresses.items()]
        found.append(f"state_dir {settings.state_dir} can be written")
        found += assembly.found
        if settings.hub.base_url:
            await _reach_hub(settings, assembly)
            found.append(f"hub {settings.hub.base_url} answers")
        mail = settings.notify.mail
        if mail.host:
            await _reach(mail.host, mail.port, "notify.mail.host")
            found.append(f"mail server {mail.host}:{mail.port} takes connections")
    return found


async def _reach_hub(settings: ServerSettings, assembly: Assembly) -> None:
    client = HttpHub(
        base_url=settings.hub.base_url,
        token=assembly.hub_token.reveal(),
        timeout_seconds=settings.hub.timeout_seconds,
    )
    try:
        await client.agents_since("", 1)
    except HubError as error:
        raise DependencyError(
            f"hub.base_url: {settings.hub.base_url} does not answer as it should: {error}"
        ) from error
    finally:
        await client.aclose()


async def _reach(host: str, port: int, setting: str) -> None:
    try:
        with anyio.fail_after(_CONNECT_SECONDS):
            stream = await anyio.connect_tcp(host, port)
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no answer within {_CONNECT_SECONDS:g} s"
        raise DependencyError(
            f"{setting}: {host}:{port} cannot be reached ({reason}); start it, or correct {setting}"
        ) from error
    await stream.aclose()
