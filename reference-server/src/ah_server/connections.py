"""Bounds of a door's connections, so that idle or slow clients cannot shut out the others.

A connection whose request headers are not complete in time is closed. A door has room for a share
of the descriptors that the process may open; when it is full, room is made by closing the
connection that waits longest, first among those that never completed a request, then among the
idle ones. Who is in the middle of a request is never closed; when all are, the newcomer is.
"""

import asyncio
import logging
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 15.0
_RESERVED_DESCRIPTORS = 128
_log = logging.getLogger("ah_server.connections")


class Room:
    """How many connections a door may have, and which are open.

    Args:
        connections_max: how many at once.
    """

    def __init__(self, connections_max: int) -> None:
        self.connections_max = max(1, connections_max)
        self.closed_for_room = 0
        # Insertion order is age: a connection is put at the end whenever it begins to wait.
        self._waiting_for_first: dict[BoundedConnection, None] = {}
        self._idle: dict[BoundedConnection, None] = {}
        self._busy: dict[BoundedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._waiting_for_first) + len(self._idle) + len(self._busy)

    def enter(self, newcomer: "BoundedConnection") -> bool:
        """Lets a connection in, closing another if it must; False: there is no room at all."""
        if len(self) >= self.connections_max:
            oldest = next(iter(self._waiting_for_first or self._idle), None)
            if oldest is None:
                return False
            self._note()
            self.leave(oldest)
            oldest.close_now()
        self._waiting_for_first[newcomer] = None
        return True

    def begins(self, connection: "BoundedConnection") -> None:
        """A request's headers are complete."""
        self.leave(connection)
        self._busy[connection] = None

    def rests(self, connection: "BoundedConnection") -> None:
        """A request was answered."""
        if connection in self._busy:
            self.leave(connection)
            self._idle[connection] = None

    def leave(self, connection: "BoundedConnection") -> None:
        """A connection is closed, or about to be."""
        for group in (self._waiting_for_first, self._idle, self._busy):
            group.pop(connection, None)

    def _note(self) -> None:
        self.closed_for_room += 1
        # Said at the 1st, 2nd, 4th, 8th … time: a flood must not become a flood of lines.
        if self.closed_for_room & (self.closed_for_room - 1) == 0:
            _log.warning(
                "a door is full: its longest waiting connection was closed for a new one",
                extra={"connections_max": self.connections_max, "times": self.closed_for_room},
            )


class BoundedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 connection with a place in a `Room` and a limit for its headers."""

    room: Room  # given by `connection_class`

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        """Takes a place in the room, and expects headers."""
        super().connection_made(transport)
        if not self.room.enter(self):
            self.close_now()
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives the place back."""
        self._headers_are_complete()
        self.room.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Notes when a request's headers are complete, and when more of one has begun."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            # Something of a further request has come, and not all of its headers.
            if self._header_deadline is None:
                self._expect_headers()
        else:
            self._headers_are_complete()
            self.room.begins(self)

    def on_response_complete(self) -> None:
        """The connection is idle until the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self.room.rests(self)

    def close_now(self) -> None:
        """Closes without waiting for what is in the buffers."""
        self.transport.abort()

    def _expect_headers(self) -> None:
        self._header_deadline = self.loop.call_later(HEADER_SECONDS, self.close_now)

    def _headers_are_complete(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None


def connection_class(room: Room) -> type[BoundedConnection]:
    """The protocol class for the connections of one door."""
    return type("DoorConnection", (BoundedConnection,), {"room": room})


def raise_descriptor_limit() -> None:
    """Lets this process open as many descriptors as its hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def fair_share(*, parts: int, of: int) -> int:
    """How many connections a door may have that gets `parts` of `of` parts of the descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    usable = 1 << 16 if soft == resource.RLIM_INFINITY else soft - _RESERVED_DESCRIPTORS
    return max(8, min(usable, 1 << 16) * parts // of)
