"""A private NATS server with JetStream."""

import socket
from typing import ClassVar

from testkit.base import Service
from testkit.install import Program

__all__ = ["NatsServer"]

_TIMEOUT_SECONDS = 1.0
_QUESTION = b'CONNECT {"verbose":false}\r\nSUB ready 1\r\nPUB $JS.API.INFO ready 0\r\n\r\n'


class NatsServer(Service):
    """nats-server with a JetStream file store in its directory.

    The file store does not sync each publish by default: kill -9 loses nothing, a power cut may.
    """

    program: ClassVar[Program] = Program(
        name="NATS",
        executables=("nats-server",),
        package="nats-server",
        folders=("/usr/sbin", "/usr/local/sbin"),
    )

    @property
    def url(self) -> str:
        """`nats://127.0.0.1:port`."""
        return f"nats://{self.host}:{self.port}"

    def _command(self) -> list[str]:
        return [
            str(self.executable),
            *("-a", self.host, "-p", str(self.port)),
            *("-js", "-sd", str(self.directory / "jetstream")),
        ]

    def _answers(self) -> bool:
        # A greeting says that the server is there; this reply says that JetStream is, too.
        with socket.create_connection((self.host, self.port), _TIMEOUT_SECONDS) as peer:
            peer.sendall(_QUESTION)
            received = b""
            while b"MSG ready" not in received:
                chunk = peer.recv(65_536)
                if not chunk:
                    return False
                received += chunk
        return True
