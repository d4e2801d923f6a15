"""A private RabbitMQ node with its own Erlang port mapper."""

import secrets
import socket
from typing import ClassVar

from testkit.base import Service
from testkit.install import Program
from testkit.ports import Port

__all__ = ["RabbitmqServer"]

_USER = "testkit"
_TIMEOUT_SECONDS = 1.0
_PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"  # AMQP 0-9-1
_METHOD_FRAME = b"\x01"

_CONFIGURATION = """\
listeners.tcp.1 = {host}:{port}
default_user = {user}
default_pass = {password}
loopback_users = none
log.console = true
log.console.level = info
log.file = false
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
"""


class RabbitmqServer(Service):
    """rabbitmq-server, called past the wrapper that would change the account.

    `kill()` also ends its port mapper (epmd), which RabbitMQ itself leaves running; a port mapper
    of another Erlang system on the machine is on another port and is not touched.
    """

    program: ClassVar[Program] = Program(
        name="RabbitMQ",
        executables=("rabbitmq-server",),
        package="rabbitmq-server",
        folders=("/usr/lib/rabbitmq/bin", "/usr/lib/rabbitmq/lib/*/sbin"),
        wrappers=("rabbitmq-script-wrapper",),
    )

    def __init__(
        self, *, start_timeout_seconds: float = 90.0, stop_timeout_seconds: float = 30.0
    ) -> None:
        """Take three ports: for clients, for other nodes and for the port mapper."""
        super().__init__(
            start_timeout_seconds=start_timeout_seconds,
            stop_timeout_seconds=stop_timeout_seconds,
        )
        self._node_port = Port()
        self._mapper_port = Port()
        self._password = secrets.token_hex(16)

    @property
    def url(self) -> str:
        """`amqp://user:password@127.0.0.1:port/`."""
        return f"amqp://{_USER}:{self._password}@{self.host}:{self.port}/"

    def _release_ports(self) -> None:
        super()._release_ports()
        self._node_port.release()
        self._mapper_port.release()

    def _prepare(self) -> None:
        settings = _CONFIGURATION.format(
            host=self.host, port=self.port, user=_USER, password=self._password
        )
        (self.directory / "rabbitmq.conf").write_text(settings, encoding="ascii")
        (self.directory / "enabled_plugins").write_text("[].\n", encoding="ascii")

    def _environment(self) -> dict[str, str]:
        place = self.directory
        return super()._environment() | {
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": f"testkit-{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq"),  # the server adds the suffix
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(place / "mnesia"),
            "RABBITMQ_LOG_BASE": str(place / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(place / "node.pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(place / "generated"),
            "RABBITMQ_DIST_PORT": str(self._node_port.number),
            # Idle Erlang schedulers spin by default, which two cores cannot spare.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none"
            " -kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_PORT": str(self._mapper_port.number),
            "ERL_EPMD_ADDRESS": self.host,
            "LANG": "C.UTF-8",
        }

    def _command(self) -> list[str]:
        return [str(self.executable)]

    def _answers(self) -> bool:
        with socket.create_connection((self.host, self.port), _TIMEOUT_SECONDS) as peer:
            peer.sendall(_PROTOCOL_HEADER)
            return peer.recv(1) == _METHOD_FRAME
