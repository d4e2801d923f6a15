"""Who may enter the collector, and the application they enter by."""

import attrs

from ah_server.parts import Loop, Part
from ah_server.settings import ServerSettings
from ah_server.web_server import Application
from ah_server.wiring._seams import Seams
from ahcollector.bus import InProcessBus
from ahcollector.enroll import EnrollProxy, Renewal
from ahcollector.hub import HttpHub
from ahcollector.ingest import IngestLimits, SeriesBudget, ingest_app
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import Outbox
from ahcollector.presence import IngestBeacon, MemoryPresence
from ahcollector.registry import (
    CompanySettingsCache,
    Directory,
    MemoryRegistry,
    NegativeCache,
    Resolver,
    SnapshotKeeper,
    Syncer,
)
from ahcollector.store import MemoryStore
from ahwire.limits import Limits as BatchLimits


@attrs.frozen(kw_only=True)
class CollectorSide:
    """What the sides of the collector share."""

    store: MemoryStore
    presence: MemoryPresence
    outbox: Outbox
    bus: InProcessBus
    metrics: PrometheusMetrics


@attrs.frozen(kw_only=True)
class _Door:
    registry: MemoryRegistry
    directory: Directory
    app: Application
    loops: tuple[Part, ...]


async def open_door_of(
    settings: ServerSettings, seams: Seams, hub: HttpHub, side: CollectorSide
) -> _Door:
    """Who may enter, and the application they enter by."""
    clock, ingest = seams.clock, settings.ingest
    registry = MemoryRegistry()
    keeper = SnapshotKeeper(
        registry=registry,
        path=settings.state_dir / "registry.json",
        clock=clock,
        delay_seconds=settings.registry.snapshot_seconds,
    )
    await keeper.load()
    negative = NegativeCache()
    budget = SeriesBudget(per_hour=ingest.series_per_hour, first_hour=ingest.series_first_hour)
    directory = Directory(
        registry=registry,
        presence=side.presence,
        negative=negative,
        clock=clock,
        interval_seconds=settings.alerting.agent_interval_seconds,
        followers=(budget,),
    )
    # Silence of an agent is noticed even if it never speaks to this run of the server.
    await directory.ensure_all(registry.active_agents())
    resolver = Resolver(
        registry=registry,
        directory=directory,
        hub=hub,
        negative=negative,
        clock=clock,
        lookups_per_second=settings.hub.lookup_per_second,
        metrics=side.metrics,
    )
    companies = CompanySettingsCache(hub=hub, clock=clock)
    syncer = Syncer(
        hub=hub,
        registry=registry,
        directory=directory,
        clock=clock,
        interval_seconds=settings.hub.sync_interval_seconds,
        tombstone_ttl_seconds=settings.registry.tombstone_ttl_days * 86_400,
        metrics=side.metrics,
    )
    app = ingest_app(
        resolver=resolver,
        presence=side.presence,
        bus=side.bus,
        settings=companies,
        hub=hub,
        enroll=EnrollProxy(
            hub=hub, directory=directory, public_url=ingest.public_url, metrics=side.metrics
        ),
        renewal=Renewal(hub=hub, directory=directory),
        budget=budget,
        limits=_limits(settings),
        trusted_proxies=ingest.trusted_proxies,
        clock=clock,
        rng=seams.rng,
        checks={
            "store": side.store.ping,
            "presence": side.presence.ping,
            "outbox": side.outbox.ping,
        },
        metrics=side.metrics,
    )
    loops = (
        Loop(name="registry file", body=keeper.run),
        Loop(name="company settings", body=companies.run),
        Loop(name="registry sync", body=syncer.run),
        Loop(name="ingest beacon", body=IngestBeacon(presence=side.presence, clock=clock).run),
    )
    return _Door(registry=registry, directory=directory, app=app, loops=loops)


def _limits(settings: ServerSettings) -> IngestLimits:
    ingest = settings.ingest
    return IngestLimits(
        compressed_bytes_max=ingest.compressed_bytes_max,
        plain_bytes_max=ingest.plain_bytes_max,
        body_timeout_seconds=ingest.body_timeout_seconds,
        batch=BatchLimits(
            points_per_batch=ingest.points_per_batch_max,
            labels_per_series=ingest.labels_per_series_max,
            name_bytes=ingest.name_bytes_max,
            label_value_bytes=ingest.label_value_bytes_max,
            point_age_seconds=ingest.point_age_hours_max * 3600,
            point_future_seconds=ingest.point_future_seconds_max,
        ),
        metrics_burst=ingest.metrics_burst,
        points_per_minute=ingest.points_per_minute,
        config_per_minute=ingest.config_per_minute,
        enroll_per_minute=ingest.enroll_per_minute,
        interval_seconds=settings.alerting.agent_interval_seconds,
        interval_seconds_min=ingest.interval_min_seconds,
        interval_seconds_max=ingest.interval_max_seconds,
        series_per_hour=ingest.series_per_hour,
        series_first_hour=ingest.series_first_hour,
    )
