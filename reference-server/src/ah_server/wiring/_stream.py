"""How samples go from the door to the store: the bus, the worker, and what the store refuses."""

import logging
from contextlib import AsyncExitStack

from ah_server.settings import ServerSettings
from ah_server.wiring._carrier import Carrier
from ah_server.wiring._samples import Samples
from ah_server.wiring._seams import Seams
from ahcollector.alerts import ObservingWriter, SampleObserver
from ahcollector.bus import InProcessBus
from ahcollector.bus.redis import RedisBus
from ahcollector.departures import Sieve, SparingWriter
from ahcollector.metrics import PrometheusMetrics
from ahcollector.redis import RedisClient
from ahcollector.worker import DeadBatches, FileDeadBatches, Worker
from ahcollector.worker.redis import RedisDeadBatches

_log = logging.getLogger("ah_server.wiring")


async def carrier_of(
    settings: ServerSettings,
    seams: Seams,
    metrics: PrometheusMetrics,
    redis: RedisClient | None,
    stack: AsyncExitStack,
) -> Carrier:
    """The bus that `bus.backend` names. It takes nothing more once `stack` is left.

    Raises:
        DependencyError: the NATS that is set does not answer, or has not what the bus needs.
    """
    bus = settings.bus
    if settings.bus_backend == "jetstream":
        # Imported only where it is used: it brings the NATS library with it.
        from ah_server.wiring._jetstream import jetstream_of  # noqa: PLC0415  # see above

        return await jetstream_of(settings, seams, metrics, stack)
    if settings.bus_backend == "redis" and redis is not None:
        shared = RedisBus(
            client=redis,
            clock=seams.clock,
            metrics=metrics,
            queue_batches_max=bus.queue_per_shard,
            readers=bus.readers,
            block_seconds=bus.block_seconds,
            lease_seconds=bus.lease_seconds,
            claim_idle_seconds=bus.claim_idle_seconds,
            dead_max=bus.dead_max,
        )
        stack.push_async_callback(shared.close)
        found = f"bus is on redis {settings.redis.addr}"
        return Carrier(bus=shared, dead=shared.dead, ping=redis.ping, found=found)
    own = InProcessBus(
        clock=seams.clock,
        queue_batches_max=bus.queue_per_shard,
        dead_max=bus.dead_max,
        metrics=metrics,
    )
    stack.push_async_callback(own.close)
    return Carrier(bus=own, dead=own.dead, ping=None, found="")


def say_what_is_parted(settings: ServerSettings) -> None:
    """Warns of what each server would have for itself, were there a second one."""
    if settings.redis.addr is not None and settings.bus_backend == "inproc":
        _log.warning(
            "bus.backend is inproc and redis.addr is set: each server on this Redis judges alerts"
            " over the samples that come to it, and keeps their states in a directory of its own;"
            " set bus.backend to redis, and tsdb.url, before there is a second one"
        )
    if settings.bus_backend != "inproc" and not settings.tsdb.url:
        _log.warning(
            "bus.backend is %s and tsdb.url is empty: another server on this bus would write"
            " samples into its own embedded store; set tsdb.url before there is a second one",
            settings.bus_backend,
        )


async def dead_batches_of(
    settings: ServerSettings, metrics: PrometheusMetrics, redis: RedisClient | None
) -> DeadBatches:
    """Where batches go that the store refused for good: to Redis where one is set, else a file."""
    if redis is not None:
        return RedisDeadBatches(client=redis, metrics=metrics)
    return await FileDeadBatches.open(settings.state_dir / "dead-batches.log", metrics=metrics)


def worker_of(
    settings: ServerSettings,
    seams: Seams,
    metrics: PrometheusMetrics,
    *,
    carrier: Carrier,
    samples: Samples,
    observer: SampleObserver,
    sieve: Sieve,
    dead_batches: DeadBatches,
) -> Worker:
    """What writes this process's shards, and shows the observer what is written.

    `sieve` keeps out what is of those who were deleted since.
    """
    tsdb = settings.tsdb
    return Worker(
        bus=carrier.bus,
        store=SparingWriter(
            writer=ObservingWriter(writer=samples.store, observer=observer),
            deleter=samples.deleter,
            sieve=sieve,
            metrics=metrics,
        ),
        clock=seams.clock,
        rng=seams.rng,
        shards=settings.worker.shards.numbers,
        dead_batches=dead_batches,
        metrics=metrics,
        flush_samples=tsdb.max_batch_samples,
        flush_seconds=tsdb.max_batch_wait_seconds,
        retry_max_seconds=tsdb.retry_max_seconds,
        durable_after_seconds=0.0 if samples.restarts is None else tsdb.durable_after_seconds,
        restarts=samples.restarts,
        shutdown_flush_seconds=settings.worker.shutdown_flush_seconds,
    )
