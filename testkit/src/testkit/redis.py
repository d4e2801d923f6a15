"""A private Redis that keeps its data: append-only file, synced every second."""

import socket
from typing import ClassVar

from testkit.base import Service
from testkit.install import Program

__all__ = ["RedisServer"]

_TIMEOUT_SECONDS = 1.0


class RedisServer(Service):
    """redis-server with the append-only file on."""

    program: ClassVar[Program] = Program(
        name="Redis", executables=("redis-server",), package="redis-server"
    )

    def __init__(
        self,
        *,
        appendfsync: str = "everysec",
        start_timeout_seconds: float = 30.0,
        stop_timeout_seconds: float = 10.0,
    ) -> None:
        """Choose when the append-only file is synced: "always", "everysec" or "no"."""
        super().__init__(
            start_timeout_seconds=start_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
        )
        self._appendfsync = appendfsync

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:port/0`."""
        return f"redis://{self.host}:{self.port}/0"

    def _command(self) -> list[str]:
        return [
            str(self.executable),
            *("--bind", self.host, "--port", str(self.port)),
            *("--dir", str(self.directory), "--daemonize", "no"),
            *("--appendonly", "yes", "--appendfsync", self._appendfsync, "--save", ""),
        ]

    def _answers(self) -> bool:
        # While it loads its data, Redis answers every command with -LOADING.
        with socket.create_connection((self.host, self.port), _TIMEOUT_SECONDS) as peer:
            peer.sendall(b"PING\r\n")
            return peer.recv(64).startswith(b"+PONG")
