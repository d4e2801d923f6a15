"""What all sides of the composition share: sockets, clock and chance, and how to serve."""

import random
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import attrs

from ah_server.parts import Part
from ah_server.settings import Address, ServerSettings
from ah_server.web_server import Application, WebServer, bind
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
    """Where a test, or a build of one's own, puts another part in; the defaults are real."""

    clock: AsyncClock = attrs.field(factory=SystemClock)
    rng: random.Random = attrs.field(factory=random.SystemRandom)
    parts: Callable[[tuple[Part, ...]], tuple[Part, ...]] = attrs.field(default=lambda parts: parts)


def bind_all(settings: ServerSettings, stack: AsyncExitStack) -> Doors:
    def open_door(address: Address, setting: str) -> socket.socket:
        return stack.enter_context(bind(address, setting))

    plays_hub = not settings.hub.base_url
    return Doors(
        ingest=open_door(settings.ingest.listen, "ingest.listen"),
        admin=open_door(settings.admin.listen, "admin.listen"),
        hub=open_door(settings.hub.listen, "hub.listen") if plays_hub else None,
        console=open_door(settings.console.listen, "console.listen"),
        notify=open_door(settings.notify.listen, "notify.listen"),
    )


def web(name: str, app: Application, door: socket.socket) -> WebServer:
    """A web server without TLS of its own."""
    return WebServer(name=name, app=app, listener=door)


def private_file(path: Path) -> Path:
    """Makes an empty file for its owner only, because SQLite would make it readable by others."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=True)
    return path
