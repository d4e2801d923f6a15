"""The pytest plug-in: one session-wide fixture a service, and `start_service` for a test's own.

A test whose service is missing is skipped, and the end of the run lists what was missing in red;
under `CI=true` it fails instead, so that no run is green for want of a service.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from testkit.base import Service
from testkit.errors import MissingProgramError
from testkit.install import Installer
from testkit.nats import NatsServer
from testkit.postgres import PostgresServer
from testkit.rabbitmq import RabbitmqServer
from testkit.redis import RedisServer
from testkit.victoria_metrics import VictoriaMetricsServer

__all__ = [
    "nats_server",
    "postgres_server",
    "private_redis",
    "rabbitmq_server",
    "redis_server",
    "start_service",
    "testkit_session",
    "victoria_metrics",
]

S = TypeVar("S", bound=Service)

_MISSING = pytest.StashKey[dict[str, str]]()


class ServiceSession:
    """Starts services for a pytest run, or skips and fails for those that cannot be had."""

    def __init__(self, *, config: pytest.Config) -> None:
        """Take the run's configuration; it is where missing services are noted."""
        self._config = config
        self._installer = Installer(say=self._say)

    def start(self, kind: type[S], **options: Any) -> S:
        """Return a running service of `kind`, made with `options`; the caller closes it."""
        try:
            self._installer.require([kind.program])
        except MissingProgramError as error:
            self._config.stash[_MISSING][kind.program.name] = str(error)
            if os.environ.get("CI", "").lower() in {"1", "true"}:
                pytest.fail(f"CI has every service: {error}", pytrace=False)
            pytest.skip(str(error))
        service = kind(**options)
        try:
            service.start()
        except BaseException:
            service.close()
            raise
        return service

    def _say(self, text: str) -> None:
        """Print past pytest's capturing: a long installation must not look like a hang."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        if capture is None:
            os.write(2, f"{text}\n".encode())
            return
        with capture.global_and_fixture_disabled():
            os.write(2, f"\n{text}\n".encode())


def pytest_configure(config: pytest.Config) -> None:
    """Make the place where missing services are noted."""
    config.stash[_MISSING] = {}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """List the services that were missing, so that a skipped test is never overlooked."""
    missing = config.stash[_MISSING]
    if missing:
        terminalreporter.section("services missing: their tests did not run", red=True, bold=True)
        for text in missing.values():
            terminalreporter.line(text, red=True)


@pytest.fixture(scope="session")
def testkit_session(pytestconfig: pytest.Config) -> ServiceSession:
    """What starts services in this run."""
    return ServiceSession(config=pytestconfig)


def _one(session: ServiceSession, kind: type[S]) -> Iterator[S]:
    service = session.start(kind)
    yield service
    service.close()


@pytest.fixture(scope="session")
def redis_server(testkit_session: ServiceSession) -> Iterator[RedisServer]:
    """One Redis for the whole run: do not kill it, and use keys of your own."""
    yield from _one(testkit_session, RedisServer)


@pytest.fixture(scope="session")
def rabbitmq_server(testkit_session: ServiceSession) -> Iterator[RabbitmqServer]:
    """One RabbitMQ for the whole run: do not kill it, and use queues of your own."""
    yield from _one(testkit_session, RabbitmqServer)


@pytest.fixture(scope="session")
def postgres_server(testkit_session: ServiceSession) -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run: do not kill it, and use a database of your own."""
    yield from _one(testkit_session, PostgresServer)


@pytest.fixture(scope="session")
def nats_server(testkit_session: ServiceSession) -> Iterator[NatsServer]:
    """One NATS with JetStream for the whole run: do not kill it, and use streams of your own."""
    yield from _one(testkit_session, NatsServer)


@pytest.fixture(scope="session")
def victoria_metrics(testkit_session: ServiceSession) -> Iterator[VictoriaMetricsServer]:
    """One VictoriaMetrics for the whole run: do not kill it, and use metric names of your own."""
    yield from _one(testkit_session, VictoriaMetricsServer)


@pytest.fixture
def private_redis(testkit_session: ServiceSession) -> Iterator[RedisServer]:
    """A Redis of the test's own, to be killed, paused and restarted at will."""
    yield from _one(testkit_session, RedisServer)


@pytest.fixture
def start_service(testkit_session: ServiceSession) -> Iterator[Callable[..., Any]]:
    """Start services of the test's own, to be killed at will: `start_service(RedisServer, …)`."""
    with ExitStack() as services:

        def start(kind: type[S], **options: Any) -> S:
            service = testkit_session.start(kind, **options)
            services.callback(service.close)
            return service

        yield start
