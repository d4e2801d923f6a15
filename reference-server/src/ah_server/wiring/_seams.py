"""What all sides of the composition share: sockets, clock and chance, and how to serve."""

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import attrs
import sqlalchemy.exc

from ah_server.connections import fair_share
from ah_server.errors import ServerError, StateDirectoryError, joined
from ah_server.parts import Part
from ah_server.settings import Address, ServerSettings
from ah_server.web_server import Application, WebServer, bind
from ah_server.wiring._awaited import Awaited
from ahcollector.clock import AsyncClock, SystemClock


@attrs.frozen(kw_only=True)
class Doors:
    """The sockets the server listens on, all bound before anything else begins."""

    ingest: socket.socket
    admin: socket.socket
    hub: socket.socket | None
    console: socket.socket
    notify: socket.socket


@attrs.frozen(kw_only=True)
class Seams:
    """Where a test, or a build of one's own, puts another part in; the defaults are real.

    `patient` is whether to wait for a service that does not answer yet, as at the start of a
    machine; a check does not. `awaited` is told what is waited for.
    """

    clock: AsyncClock = attrs.field(factory=SystemClock)
    rng: random.Random = attrs.field(factory=random.SystemRandom)
    patient: bool = True
    awaited: Awaited = attrs.field(factory=Awaited)
    parts: Callable[[tuple[Part, ...]], tuple[Part, ...]] = attrs.field(default=lambda parts: parts)


def bind_all(settings: ServerSettings, stack: AsyncExitStack) -> Doors:
    """Binds all doors.

    Raises:
        ServerError: some cannot be bound; all of those are named, with the class of the first.
    """
    problems: list[ServerError] = []

    def open_door(address: Address, setting: str) -> socket.socket:
        try:
            return stack.enter_context(bind(address, setting))
        except ServerError as error:
            problems.append(error)
            return stack.enter_context(socket.socket())

    plays_hub = not settings.hub.base_url
    doors = Doors(
        ingest=open_door(settings.ingest.listen, "ingest.listen"),
        admin=open_door(settings.admin.listen, "admin.listen"),
        hub=open_door(settings.hub.listen, "hub.listen") if plays_hub else None,
        console=open_door(settings.console.listen, "console.listen"),
        notify=open_door(settings.notify.listen, "notify.listen"),
    )
    if problems:
        raise joined(problems)
    return doors


def web(name: str, app: Application, door: socket.socket) -> WebServer:
    """A web server without TLS of its own."""
    return WebServer(name=name, app=app, listener=door, connections_max=fair_share(parts=1, of=16))


def ingest_web(settings: ServerSettings, app: Application, door: socket.socket) -> WebServer:
    """The web server of agents."""
    return WebServer(
        name="ingest",
        app=app,
        listener=door,
        tls_cert=settings.ingest.tls_cert,
        tls_key=settings.ingest.tls_key,
        # Half of the descriptors are for agents; the other doors share a quarter.
        connections_max=fair_share(parts=1, of=2),
    )


@contextmanager
def kept_file(path: Path, what: str) -> Iterator[None]:
    """Guards the opening of a file that must not silently begin anew.

    A mark beside it says that it was made. With the mark, a file that is gone or empty is refused:
    nobody would be told of anything any more, and nobody would know.

    Raises:
        StateDirectoryError: it is gone, empty or cannot be used; the text names it.
    """
    mark = path.with_suffix(".made")
    way_out = f"restore it from a backup, or remove {path.parent} to begin anew"
    if mark.exists() and not (path.exists() and path.stat().st_size):
        state = "empty" if path.exists() else "gone"
        raise StateDirectoryError(f"{what} {path} is {state}, though it was made before: {way_out}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except sqlalchemy.exc.SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StateDirectoryError(f"{what} {path} cannot be used ({cause}): {way_out}") from error
    mark.touch(mode=0o600)
