"""The bus on NATS JetStream."""

import logging
import ssl
from contextlib import AsyncExitStack

from ah_server.errors import DependencyError
from ah_server.settings import HELD_HOURS_MAX, NatsSettings, ServerSettings
from ah_server.wiring._carrier import Carrier
from ah_server.wiring._patience import reached
from ah_server.wiring._seams import Seams
from ahcollector.bus.jetstream import BufferSize, JetStreamBus
from ahcollector.errors import BusError, CollectorError, NatsError
from ahcollector.metrics import PrometheusMetrics
from ahcollector.nats import NatsClient, NatsConfig

_log = logging.getLogger("ah_server.wiring")


async def jetstream_of(
    settings: ServerSettings, seams: Seams, metrics: PrometheusMetrics, stack: AsyncExitStack
) -> Carrier:
    """The bus on the NATS that is set, with streams that lose nothing they took.

    Raises:
        DependencyError: NATS does not answer, has not the room, or has such a stream that may lose
            what it took; or a file of the settings cannot be used.
    """
    nats = settings.nats
    try:
        client = NatsClient(config=nats_config(nats), clock=seams.clock)
    except (OSError, ssl.SSLError, ValueError, ImportError) as error:
        raise DependencyError(f"nats.url: {nats.url} cannot be used: {error}") from error
    stack.push_async_callback(client.aclose)
    bus = JetStreamBus(
        client=client,
        clock=seams.clock,
        metrics=metrics,
        size=BufferSize(
            bytes_max=nats.buffer_bytes,
            batches_max=nats.buffer_batches,
            shard_batches_max=nats.buffer_shard_batches,
            seconds=HELD_HOURS_MAX * 3600.0,
        ),
        entry_bytes_max=settings.bus.entry_bytes_max,
        replicas=nats.replicas,
        lease_seconds=settings.bus.lease_seconds,
        dead_max=settings.bus.dead_max,
    )
    stack.push_async_callback(bus.close)
    try:
        warnings = await reached("NATS", bus.check, seams, name="bus", away=_is_away)
    except BusError as error:
        says_how = isinstance(error.__cause__, NatsError) and error.__cause__.is_refusal
        way_out = "; start it, or correct nats.url" if _is_away(error) and not says_how else ""
        raise DependencyError(f"nats.url: {nats.url} cannot be used: {error}{way_out}") from error
    for warning in warnings:
        _log.warning("%s", warning)

    async def ping() -> None:
        await bus.check()

    return Carrier(
        bus=bus, dead=bus.dead, ping=ping, found=f"bus is on the JetStream of {nats.url}"
    )


def _is_away(error: CollectorError) -> bool:
    return isinstance(error.__cause__, NatsError)


def nats_config(nats: NatsSettings) -> NatsConfig:
    """How NATS is spoken to."""
    return NatsConfig(
        servers=tuple(nats.url.split(",")),
        username=nats.username,
        password=nats.password.reveal(),
        token=nats.token.reveal(),
        credentials_file=nats.credentials,
        prefix=nats.prefix,
        tls=nats.tls,
        tls_ca_file=nats.tls_ca_file,
        timeout_seconds=nats.timeout_seconds,
    )
