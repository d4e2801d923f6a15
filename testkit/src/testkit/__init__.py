"""Starts private real services for tests on free loopback ports.

    with RedisServer() as server:
        client = redis.Redis.from_url(server.url)

Every service lives in a temporary directory on a port of its own, is ended with all it started
when its `with` block ends or the process dies, however that happens, and is never one that
somebody else started.
"""

from testkit.base import Service
from testkit.errors import KeeperError, MissingProgramError, StartError, TestkitError
from testkit.faults import wait_until
from testkit.install import Installer, Program
from testkit.nats import NatsServer
from testkit.ports import free_port
from testkit.postgres import PostgresServer
from testkit.prometheus import PrometheusServer
from testkit.rabbitmq import RabbitmqServer
from testkit.redis import RedisServer
from testkit.victoria_metrics import VictoriaMetricsServer
from testkit.vmagent import VmagentServer
from testkit.vmalert import Vmalert

__all__ = [
    "SERVICES",
    "Installer",
    "KeeperError",
    "MissingProgramError",
    "NatsServer",
    "PostgresServer",
    "Program",
    "PrometheusServer",
    "RabbitmqServer",
    "RedisServer",
    "Service",
    "StartError",
    "TestkitError",
    "VictoriaMetricsServer",
    "VmagentServer",
    "Vmalert",
    "free_port",
    "wait_until",
]

SERVICES: tuple[type[Service], ...] = (
    RedisServer,
    RabbitmqServer,
    PostgresServer,
    NatsServer,
    VictoriaMetricsServer,
    PrometheusServer,
    VmagentServer,
)
"""Every service there is."""
