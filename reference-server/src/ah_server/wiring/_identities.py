"""Who is known to the collector: the registry, what follows the hub, and who looks tokens up."""

import attrs

from ah_server.parts import Loop, Part
from ah_server.settings import ServerSettings
from ah_server.wiring._carrier import Carrier
from ah_server.wiring._companies import company_defaults
from ah_server.wiring._patience import reached
from ah_server.wiring._redis import is_redis_away
from ah_server.wiring._samples import Samples
from ah_server.wiring._seams import Seams
from ahcollector.bus import Bus
from ahcollector.clock import AsyncClock
from ahcollector.departures import Departures
from ahcollector.hub import HttpHub
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import Outbox, SenderLease
from ahcollector.presence import Presence
from ahcollector.redis import RedisClient
from ahcollector.registry import (
    CachedRegistry,
    CompanySettingsCache,
    CompanySettingsStore,
    Directory,
    FullSync,
    MemoryRegistry,
    NegativeCache,
    Registry,
    Resolver,
    SnapshotKeeper,
    Syncer,
)
from ahcollector.registry.directory import Follower
from ahcollector.registry.redis import RedisCompanySettings, RedisRegistry
from ahcollector.store import Store


@attrs.frozen(kw_only=True)
class CollectorSide:
    """What the sides of the collector share.

    `redis` is None where all state is embedded, and `lease` where no event is ever sent. `clock` is
    the one by which presence counts.
    """

    samples: Samples
    presence: Presence
    outbox: Outbox
    lease: SenderLease | None
    carrier: Carrier
    metrics: PrometheusMetrics
    redis: RedisClient | None
    clock: AsyncClock
    departures: Departures

    @property
    def store(self) -> Store:
        """The store of samples."""
        return self.samples.store

    @property
    def bus(self) -> Bus:
        """What carries batches to the worker."""
        return self.carrier.bus


@attrs.frozen(kw_only=True)
class Identities:
    """The registry, and everything that reads it or writes it."""

    registry: Registry
    directory: Directory
    resolver: Resolver
    companies: CompanySettingsCache
    loops: tuple[Part, ...]


@attrs.frozen(kw_only=True)
class _Kept:
    """Where identities and the hub's words of companies are kept, and the loops of that."""

    registry: Registry
    company_settings: CompanySettingsStore | None
    loops: tuple[Part, ...]


async def identities_of(
    settings: ServerSettings,
    seams: Seams,
    hub: HttpHub,
    side: CollectorSide,
    *,
    followers: tuple[Follower, ...],
) -> Identities:
    """Opens the registry and composes what stands around it.

    `followers` are told of agents that go away.
    """
    clock, registry_settings = seams.clock, settings.registry
    negative = NegativeCache()
    kept = await _kept(settings, seams, side, negative)
    companies = CompanySettingsCache(
        hub=hub,
        clock=clock,
        store=kept.company_settings,
        configured=company_defaults(settings.alerting),
    )
    directory = Directory(
        registry=kept.registry,
        presence=side.presence,
        negative=negative,
        clock=clock,
        interval_seconds=settings.alerting.agent_interval_seconds,
        rules=companies.watch_rule,
        followers=followers,
        departures=side.departures,
    )
    # Silence of an agent is noticed even if it never speaks to this run of the server. Redis may
    # have gone since it was looked at: the store was waited for meanwhile.
    await reached("Redis", directory.ensure_known, seams, name="redis", away=is_redis_away)
    resolver = Resolver(
        registry=kept.registry,
        directory=directory,
        hub=hub,
        negative=negative,
        clock=clock,
        lookups_per_second=settings.hub.lookup_per_second,
        metrics=side.metrics,
    )
    syncer = Syncer(
        hub=hub,
        registry=kept.registry,
        directory=directory,
        clock=clock,
        interval_seconds=settings.hub.sync_interval_seconds,
        tombstone_ttl_seconds=registry_settings.tombstone_ttl_days * 86_400,
        metrics=side.metrics,
    )
    full_sync = FullSync(
        hub=hub,
        registry=kept.registry,
        directory=directory,
        clock=clock,
        interval_seconds=registry_settings.full_sync_interval_hours * 3600,
        remove_orphans=registry_settings.remove_orphans,
        metrics=side.metrics,
    )
    loops = (
        *kept.loops,
        Loop(name="company settings", body=companies.run),
        Loop(name="registry sync", body=syncer.run),
        Loop(name="full sync", body=full_sync.run),
    )
    return Identities(
        registry=kept.registry,
        directory=directory,
        resolver=resolver,
        companies=companies,
        loops=loops,
    )


async def _kept(
    settings: ServerSettings, seams: Seams, side: CollectorSide, negative: NegativeCache
) -> _Kept:
    if side.redis is not None:
        shared = RedisRegistry(client=side.redis)
        cached = CachedRegistry(
            registry=shared,
            negative=negative,
            clock=seams.clock,
            feed=shared,
            ttl_seconds=settings.redis.cache_ttl_seconds,
        )
        return _Kept(
            registry=cached,
            company_settings=RedisCompanySettings(client=side.redis),
            loops=(Loop(name="registry changes", body=cached.run),),
        )
    registry = MemoryRegistry()
    keeper = SnapshotKeeper(
        registry=registry,
        path=settings.state_dir / "registry.json",
        clock=seams.clock,
        delay_seconds=settings.registry.snapshot_seconds,
    )
    await keeper.load()
    return _Kept(
        registry=registry,
        company_settings=None,
        loops=(Loop(name="registry file", body=keeper.run),),
    )
