"""The application by which agents enter the collector."""

import attrs

from ah_server.parts import Loop, Part
from ah_server.settings import ServerSettings
from ah_server.web_server import Application
from ah_server.wiring._identities import CollectorSide, identities_of
from ah_server.wiring._seams import Seams
from ahcollector.budget import BudgetKeeper, FileBudgetStore, SeriesBudget
from ahcollector.budget.redis import RedisBudgetStore
from ahcollector.enroll import EnrollProxy, Renewal
from ahcollector.hub import HttpHub
from ahcollector.ingest import Check, IngestLimits, ingest_app
from ahcollector.presence import IngestBeacon
from ahcollector.registry import Directory, Registry
from ahwire.limits import Limits as BatchLimits


@attrs.frozen(kw_only=True)
class _Door:
    registry: Registry
    directory: Directory
    app: Application
    loops: tuple[Part, ...]


async def open_door_of(
    settings: ServerSettings, seams: Seams, hub: HttpHub, side: CollectorSide
) -> _Door:
    """Who may enter, and the application they enter by."""
    clock, ingest = seams.clock, settings.ingest
    budget = SeriesBudget(
        per_hour=ingest.series_per_hour,
        first_hour=ingest.series_first_hour,
        metrics=side.metrics,
    )
    # Series that agents began stay begun over a restart, and for the other processes of one Redis.
    keeper = BudgetKeeper(
        budget=budget,
        store=FileBudgetStore(directory=settings.state_dir / "series", metrics=side.metrics)
        if side.redis is None
        else RedisBudgetStore(client=side.redis),
        clock=clock,
        metrics=side.metrics,
    )
    known = await identities_of(settings, seams, hub, side, followers=(keeper,))
    app = ingest_app(
        resolver=known.resolver,
        presence=side.presence,
        bus=side.bus,
        settings=known.companies,
        hub=hub,
        enroll=EnrollProxy(
            hub=hub, directory=known.directory, public_url=ingest.public_url, metrics=side.metrics
        ),
        renewal=Renewal(hub=hub, directory=known.directory),
        budget=budget,
        keeper=keeper,
        limits=_limits(settings),
        trusted_proxies=ingest.trusted_proxies,
        clock=clock,
        rng=seams.rng,
        checks=_ingest_checks_of(side),
        metrics=side.metrics,
    )
    loops = (
        *known.loops,
        Loop(name="known series", body=keeper.run, stop_seconds=5.0),
        Loop(name="ingest beacon", body=IngestBeacon(presence=side.presence, clock=clock).run),
    )
    return _Door(registry=known.registry, directory=known.directory, app=app, loops=loops)


def checks_of(side: CollectorSide) -> dict[str, Check]:
    """What must be usable for all of the collector to be ready, by name."""
    checks: dict[str, Check] = {
        "tsdb" if side.samples.shared else "store": side.store.ping,
        "presence": side.presence.ping,
        "outbox": side.outbox.ping,
    }
    if side.carrier.ping is not None:
        checks["bus"] = side.carrier.ping
    return checks if side.redis is None else {**checks, "redis": side.redis.ping}


def _ingest_checks_of(side: CollectorSide) -> dict[str, Check]:
    """What must be usable for agents to be let in.

    A store that is away is no reason to send agents elsewhere while what they bring waits on a bus
    that keeps it: elsewhere it is away too. In this process it would wait in memory alone.
    """
    checks = checks_of(side)
    if side.samples.shared and side.carrier.ping is not None:
        del checks["tsdb"]
    return checks


def _limits(settings: ServerSettings) -> IngestLimits:
    ingest = settings.ingest
    return IngestLimits(
        compressed_bytes_max=ingest.compressed_bytes_max,
        plain_bytes_max=ingest.plain_bytes_max,
        small_body_bytes_max=ingest.small_body_bytes_max,
        body_timeout_seconds=ingest.body_timeout_seconds,
        batch=BatchLimits(
            points_per_batch=ingest.points_per_batch_max,
            labels_per_series=ingest.labels_per_series_max,
            name_bytes=ingest.name_bytes_max,
            label_value_bytes=ingest.label_value_bytes_max,
            point_age_seconds=ingest.point_age_hours_max * 3600,
            point_future_seconds=ingest.point_future_seconds_max,
        ),
        # Two uses of one fact: how long an agent may wait that was told to come later.
        backoff_seconds_max=settings.alerting.blind_grace_max_seconds,
        metrics_burst=ingest.metrics_burst,
        metrics_per_minute_min=ingest.metrics_per_minute_min,
        points_per_minute=ingest.points_per_minute,
        config_per_minute=ingest.config_per_minute,
        enroll_per_minute=ingest.enroll_per_minute,
        interval_seconds=settings.alerting.agent_interval_seconds,
        interval_seconds_min=ingest.interval_min_seconds,
        interval_seconds_max=ingest.interval_max_seconds,
        known_series_bytes_max=ingest.known_series_bytes_max,
        series_per_hour=ingest.series_per_hour,
        series_first_hour=ingest.series_first_hour,
    )
