"""Reaches all that settings name, and says of each whether it can be used."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import anyio
import attrs

from ah_server.errors import DependencyError, ServerError, joined
from ah_server.settings import ServerSettings
from ah_server.state_directory import StateDirectory
from ah_server.wiring import Seams, assembled, reach_each
from ahcollector.errors import HubError
from ahcollector.hub import HttpHub

_CONNECT_SECONDS = 5.0
_COMPANIES_SHOWN = 5


@attrs.frozen(kw_only=True)
class Checked:
    """What a check found.

    Attributes:
        found: a line for each thing that can be used.
        error: all that cannot, with the exit code of the first; None: everything can.
    """

    found: tuple[str, ...]
    error: ServerError | None


async def check(settings: ServerSettings) -> Checked:
    """Reaches all that the settings name, whatever is found on the way.

    Ports and the state directory are tried too, so a running server on the same ones is a problem;
    the services are reached all the same.
    """
    found: list[str] = []
    problems: list[ServerError] = []
    token = settings.hub.token.reveal()
    try:
        async with assembled(settings, seams=Seams(patient=False)) as assembly:
            found += [f"{name} can listen on {at}" for name, at in assembly.addresses.items()]
            found.append(f"state_dir {settings.state_dir} can be written")
            found += assembly.found
            found += _companies(settings)
    except ServerError as error:
        problems.append(error)
        await _look_at_the_rest(settings, error, found, problems)
    if settings.hub.base_url:
        line = f"hub {settings.hub.base_url} answers"
        await _note(partial(_reach_hub, settings, token), line, found, problems)
    mail = settings.notify.mail
    if mail.host:
        reach = partial(_reach, mail.host, mail.port, "notify.mail.host")
        line = f"mail server {mail.host}:{mail.port} takes connections"
        await _note(reach, line, found, problems)
    return Checked(found=tuple(found), error=joined(problems) if problems else None)


def _companies(settings: ServerSettings) -> tuple[str, ...]:
    """A line that names those of which something is set, as far as there is room."""
    names = sorted(settings.alerting.companies)
    if not names:
        return ()
    shown = ", ".join(names[:_COMPANIES_SHOWN])
    more = len(names) - _COMPANIES_SHOWN
    return (f"alerting.companies are {shown}{f' and {more} more' if more > 0 else ''}",)


async def _look_at_the_rest(
    settings: ServerSettings,
    first: ServerError,
    found: list[str],
    problems: list[ServerError],
) -> None:
    """Tries by itself what was not come to, since `first` ended the composition."""
    told = {problem.partition(":")[0] for problem in first.problems}
    if any(name.endswith(".listen") for name in told):
        try:
            StateDirectory.open(settings.state_dir).close()
        except ServerError as error:
            problems.append(error)
    async with AsyncExitStack() as stack:
        for line, problem in await reach_each(settings, Seams(patient=False), stack, beyond=told):
            if problem is None:
                found.append(line)
            else:
                problems.append(problem)


async def _note(
    reach: Callable[[], Awaitable[None]],
    line: str,
    found: list[str],
    problems: list[ServerError],
) -> None:
    try:
        await reach()
    except ServerError as error:
        problems.append(error)
    else:
        found.append(line)


async def _reach_hub(settings: ServerSettings, token: str) -> None:
    client = HttpHub(
        base_url=settings.hub.base_url,
        token=token,
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
