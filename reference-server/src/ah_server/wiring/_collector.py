"""The collector: the door, the samples' way to the store, the silence's way to the hub."""

from contextlib import AsyncExitStack
from functools import partial

import attrs

from ah_server._about import VERSION, host_id
from ah_server.errors import DependencyError
from ah_server.parts import Loop, Part
from ah_server.settings import Secret, ServerSettings
from ah_server.wiring._alerting import agent_events_of, alerting_of
from ah_server.wiring._departures import departures_of, sieve_of
from ah_server.wiring._door import checks_of, open_door_of
from ah_server.wiring._identities import CollectorSide
from ah_server.wiring._outbox import outbox_of
from ah_server.wiring._patience import reached
from ah_server.wiring._redis import (
    found_of_redis,
    is_redis_away,
    redis_loops,
    shared_redis,
)
from ah_server.wiring._samples import samples_of
from ah_server.wiring._seams import Doors, Seams, ingest_web, web
from ah_server.wiring._stream import (
    carrier_of,
    dead_batches_of,
    say_what_is_parted,
    worker_of,
)
from ahcollector.admin import admin_app
from ahcollector.detector import AgentEventStage, Detector, Reporter, TrafficTotals
from ahcollector.errors import RedisError
from ahcollector.hub import HttpHub
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import OutboxSender
from ahcollector.presence import MemoryPresence, Presence
from ahcollector.presence.redis import RedisPresence
from ahcollector.redis import RedisClient
from ahcollector.shared_clock import SharedClock
from ahcollector.worker import Worker
from ahwire import UUID7Generator


async def collector_side(
    settings: ServerSettings,
    seams: Seams,
    doors: Doors,
    hub: HttpHub,
    admin_token: Secret,
    stack: AsyncExitStack,
) -> tuple[CollectorSide, tuple[Part, ...]]:
    """What can be asked of the collector, and its parts in the order of their start."""
    redis = await shared_redis(settings.redis, seams, stack)
    seams, time_loops = await _with_shared_time(seams, redis)
    side, state_loops = await _open_state(settings, seams, stack, redis)
    say_what_is_parted(settings)
    dead_batches = await dead_batches_of(settings, side.metrics, redis)
    door = await open_door_of(settings, seams, hub, side)
    sieve = sieve_of(settings, side.departures, door.registry, seams.clock)
    alerting = await alerting_of(settings, seams, hub, side, sieve, stack)
    worker = worker_of(
        settings,
        seams,
        side.metrics,
        carrier=side.carrier,
        samples=side.samples,
        observer=alerting.engine,
        sieve=sieve,
        dead_batches=dead_batches,
    )
    admin = admin_app(
        token=admin_token.reveal(),
        previous_token=settings.admin.previous_token.reveal() or None,
        registry=door.registry,
        directory=door.directory,
        presence=side.presence,
        store=side.store,
        deleter=side.samples.deleter,
        outbox=side.outbox,
        dead_batches=dead_batches,
        bus=side.bus,
        bus_dead=side.carrier.dead,
        alerts=alerting.engine,
        reload_rules=alerting.rules.pull,
        reload_silences=alerting.silences.pull,
        # Not at the door of agents: what they bring is taken, and waits or passes unjudged.
        checks={**checks_of(side), **alerting.checks},
        clock=seams.clock,
        rng=seams.rng,
        metrics=side.metrics,
    )
    flush = settings.worker.shutdown_flush_seconds
    parts = (
        *redis_loops(redis),
        *time_loops,
        *state_loops,
        *side.samples.loops,
        *door.loops,
        *alerting.loops,
        Loop(name="worker", body=worker.run, stop_seconds=flush + 1),
        *_silence(
            settings,
            seams,
            hub,
            side,
            worker,
            agent_events_of(settings, seams, side, alerting, door.companies),
        ),
        web("admin", admin, doors.admin),
        ingest_web(settings, door.app, doors.ingest),
    )
    return side, parts


def found_of(settings: ServerSettings, side: CollectorSide) -> tuple[str, ...]:
    """A line for each service of the collector's that was reached."""
    redis = found_of_redis(settings.redis, side.redis)
    return tuple(line for line in (redis, side.carrier.found, side.samples.found) if line)


async def _with_shared_time(
    seams: Seams, redis: RedisClient | None
) -> tuple[Seams, tuple[Part, ...]]:
    """The seams with the time that all processes of one Redis share, and what keeps it right."""
    if redis is None:
        return seams, ()
    clock = SharedClock(read=redis.time, clock=seams.clock)
    try:
        await reached("Redis", clock.set, seams, name="redis", away=is_redis_away)
    except RedisError as error:
        raise DependencyError(f"redis.addr: {error}") from error
    return attrs.evolve(seams, clock=clock), (Loop(name="shared time", body=clock.run),)


async def _open_state(
    settings: ServerSettings, seams: Seams, stack: AsyncExitStack, redis: RedisClient | None
) -> tuple[CollectorSide, tuple[Part, ...]]:
    """Opens what outlives a restart, and makes what does not."""
    clock, metrics = seams.clock, PrometheusMetrics()
    presence, loops = await _presence(settings, seams, redis, metrics)
    outbox = await outbox_of(settings, seams, metrics, redis, stack)
    samples = await samples_of(settings, seams, metrics, stack)
    carrier = await carrier_of(settings, seams, metrics, redis, stack)
    side = CollectorSide(
        samples=samples,
        presence=presence,
        outbox=outbox.outbox,
        lease=outbox.lease,
        carrier=carrier,
        metrics=metrics,
        redis=redis,
        clock=clock,
        departures=await departures_of(settings, metrics, redis),
    )
    return side, loops


async def _presence(
    settings: ServerSettings, seams: Seams, redis: RedisClient | None, metrics: PrometheusMetrics
) -> tuple[Presence, tuple[Part, ...]]:
    """Who was heard when: in Redis where one is set, else in this process and a file."""
    event_ids = UUID7Generator(seams.clock, seams.rng).next
    if redis is not None:
        shared = RedisPresence(
            client=redis,
            event_ids=event_ids,
            name=settings.collector_id or host_id(),
            # While a node may believe in the token of a removed agent, contacts bring nobody back.
            removed_quiet_seconds=max(60.0, 2 * settings.redis.cache_ttl_seconds),
            clock=seams.clock,
            # Over before another may have the turn of one that died with intents in its hands.
            intent_lease_seconds=settings.alerting.lease_seconds / 2,
            down_min_seconds=settings.alerting.down_min_seconds,
            default_interval_seconds=settings.alerting.agent_interval_seconds,
            metrics=metrics,
        )
        return shared, ()
    embedded = await MemoryPresence.open(
        settings.state_dir / "presence.json",
        event_ids=event_ids,
        down_min_seconds=settings.alerting.down_min_seconds,
        default_interval_seconds=settings.alerting.agent_interval_seconds,
        metrics=metrics,
    )
    return embedded, (Loop(name="presence file", body=partial(embedded.run, clock=seams.clock)),)


def _silence(
    settings: ServerSettings,
    seams: Seams,
    hub: HttpHub,
    side: CollectorSide,
    worker: Worker,
    stage: AgentEventStage,
) -> tuple[Part, ...]:
    """From silence to the hub: detector, outbox sender, reporter."""
    alerting = settings.alerting
    sender = OutboxSender(
        outbox=side.outbox,
        hub=hub,
        clock=seams.clock,
        rng=seams.rng,
        lease=side.lease,
        metrics=side.metrics,
        batch_max=settings.outbox.batch_max,
        poll_seconds=settings.outbox.flush_interval_seconds,
        backoff_min_seconds=settings.outbox.backoff_min_seconds,
        backoff_max_seconds=settings.outbox.backoff_max_seconds,
        retention_seconds=settings.outbox.retention_hours * 3600,
    )
    detector = Detector(
        presence=side.presence,
        outbox=side.outbox,
        clock=seams.clock,
        metrics=side.metrics,
        agent_interval_seconds=alerting.agent_interval_seconds,
        scan_interval_seconds=alerting.scan_interval_seconds,
        blind_grace_max_seconds=alerting.blind_grace_max_seconds,
        stage=stage,
    )

    def traffic() -> TrafficTotals:
        done = worker.stats()
        return TrafficTotals(batches=done.batches, samples=done.samples_written)

    reporter = Reporter(
        presence=side.presence,
        hub=hub,
        outbox=side.outbox,
        clock=seams.clock,
        collector_id=settings.collector_id or host_id(),
        version=VERSION,
        traffic=traffic,
        seen_interval_seconds=alerting.seen_interval_seconds,
        heartbeat_interval_seconds=alerting.heartbeat_interval_seconds,
    )
    return (
        Loop(name="outbox sender", body=sender.run, stop_seconds=4.0),
        Loop(name="detector", body=detector.run, stop_seconds=2.0),
        Loop(name="reporter", body=reporter.run),
    )
