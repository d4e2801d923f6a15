"""The application by which agents enter the collector."""

import attrs

from ah_server.parts import Loop, Part
from ah_server.settings import ServerSettings
from ah_server.web_server import Application
from ah_server.wiring._identities import CollectorSide, identities_of
from ah_server.wiring._limits import ingest_limits
from ah_server.wiring._seams import Seams
from ahcollector.budget import BudgetKeeper, FileBudgetStore, SeriesBudget
from ahcollector.budget.redis import RedisBudgetStore
from ahcollector.enroll import EnrollProxy, Renewal
from ahcollector.hub import HttpHub
from ahcollector.ingest import Check, ingest_app
from ahcollector.presence import IngestBeacon
from ahcollector.registry import CompanySettingsCache, Directory, Registry


@attrs.frozen(kw_only=True)
class _Door:
    registry: Registry
    directory: Directory
    companies: CompanySettingsCache
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
            hub=hub,
            directory=known.directory,
            public_url=ingest.public_url,
            metrics=side.metrics,
            clock=clock,
        ),
        renewal=Renewal(hub=hub, directory=known.directory, clock=clock),
        budget=budget,
        keeper=keeper,
        limits=ingest_limits(settings),
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
    return _Door(
        registry=known.registry,
        directory=known.directory,
        companies=known.companies,
        app=app,
        loops=loops,
    )


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
