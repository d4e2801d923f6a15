"""What is told: threshold rules over samples, and what silences and groups make of events."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import attrs

from ah_server.errors import StateDirectoryError
from ah_server.parts import Loop, Part
from ah_server.settings import ServerSettings
from ah_server.wiring._companies import alert_settings, group_down_of
from ah_server.wiring._identities import CollectorSide
from ah_server.wiring._seams import Seams
from ahcollector.alerts import (
    AlertEngine,
    AlertStateStore,
    FileAlertStateStore,
    FileKeptLists,
    HubLists,
    KeptLists,
    RulePuller,
    SilencePuller,
    WatchedAlertStates,
)
from ahcollector.alerts.redis import RedisAlertStateStore, RedisKeptLists
from ahcollector.departures import Sieve
from ahcollector.detector import AgentEventStage
from ahcollector.detector.redis import RedisDetectorTurn
from ahcollector.errors import AlertStateError
from ahcollector.hub import HttpHub
from ahcollector.ingest import Check
from ahcollector.registry import CompanySettingsCache
from ahwire import UUID7Generator
from ahwire.hub import GroupDownSettings

_STOP_SECONDS = 5.0
_FAILURE_SECONDS = 60.0


@attrs.frozen(kw_only=True)
class Alerting:
    """The hub's rules and silences, what judges by them, and where states of agents are kept.

    Attributes:
        checks: What must be so for rules to be judged and their events to be told, by name.
    """

    rules: RulePuller
    silences: SilencePuller
    store: AlertStateStore
    engine: AlertEngine
    loops: tuple[Part, ...]
    checks: Mapping[str, Check]


async def alerting_of(
    settings: ServerSettings,
    seams: Seams,
    hub: HttpHub,
    side: CollectorSide,
    sieve: Sieve,
    stack: AsyncExitStack,
) -> Alerting:
    """Opens the states of alerts, with what the hub said last to an earlier process.

    Raises:
        StateDirectoryError: the directory of the states cannot be used, or another process holds
            it.
    """
    alerting, clock = settings.alerting, seams.clock
    own = None
    if side.redis is None or settings.bus_backend == "inproc":
        own = await _own_store(settings, stack)
    store, kept = _kept(settings, side, own)
    store, judged, watched = _watched(settings, seams, store, own)
    rules = RulePuller(
        hub=hub,
        kept=kept,
        clock=clock,
        metrics=side.metrics,
        interval_seconds=alerting.rules_sync_interval_seconds,
    )
    silences = SilencePuller(
        hub=hub,
        kept=kept,
        clock=clock,
        metrics=side.metrics,
        interval_seconds=alerting.silences_sync_interval_seconds,
    )
    # Before anything is told: what an earlier process knew to be silenced is so from the start.
    await rules.recall()
    await silences.recall()
    engine = AlertEngine(
        rules=lambda: rules.current,
        silences=lambda: silences.current,
        # What a bus in this process carries nobody else judges: were its states where several
        # servers find them, each would take all shards over from the others, again and again.
        store=judged,
        outbox=side.outbox,
        clock=clock,
        event_ids=UUID7Generator(clock, seams.rng).next,
        tenures=side.bus.tenures,
        sieve=sieve,
        lists=HubLists(rules=rules, silences=silences),
        settings=alert_settings(alerting, settings.ingest.point_future_seconds_max),
        metrics=side.metrics,
        tick_interval_seconds=alerting.scan_interval_seconds,
        state_interval_seconds=alerting.rules_state_interval_seconds,
        stop_seconds=_STOP_SECONDS,
    )
    loops = (
        Loop(name="threshold rules", body=rules.run),
        Loop(name="silences", body=silences.run),
        Loop(name="alerts", body=engine.run, stop_seconds=_STOP_SECONDS + 1),
    )
    return Alerting(
        rules=rules,
        silences=silences,
        store=store,
        engine=engine,
        loops=loops,
        checks={"alerts": watched, "rules": rules.check, "silences": silences.check},
    )


def agent_events_of(
    settings: ServerSettings,
    seams: Seams,
    side: CollectorSide,
    alerting: Alerting,
    companies: CompanySettingsCache,
) -> AgentEventStage:
    """What leads the events of agents through silences and groups to the outbox."""

    def of_company(company_id: str) -> GroupDownSettings | None:
        # The hub's word, once it has been heard; before it, what was known when it was last asked.
        known = companies.current(company_id)
        if known.settings is None:
            return None
        return known.group_down if known.group_down is not None else defaults(company_id)

    defaults = group_down_of(settings.alerting)
    turn = None
    if side.redis is not None:
        turn = RedisDetectorTurn(
            client=side.redis, lease_seconds=settings.alerting.lease_seconds, clock=seams.clock
        )
    return AgentEventStage(
        presence=side.presence,
        store=alerting.store,
        outbox=side.outbox,
        clock=seams.clock,
        event_ids=UUID7Generator(seams.clock, seams.rng).next,
        silences=lambda: alerting.silences.current,
        settings=of_company,
        defaults=defaults,
        turn=turn,
        metrics=side.metrics,
    )


def _kept(
    settings: ServerSettings, side: CollectorSide, own: AlertStateStore | None
) -> tuple[AlertStateStore, KeptLists]:
    """Where the states of agents and the hub's last lists are: with whoever shares the agents."""
    if side.redis is not None:
        return RedisAlertStateStore(client=side.redis), RedisKeptLists(client=side.redis)
    assert own is not None, "without Redis all states are this process' own"
    return own, FileKeptLists(directory=_directory(settings))


def _watched(
    settings: ServerSettings, seams: Seams, store: AlertStateStore, own: AlertStateStore | None
) -> tuple[AlertStateStore, AlertStateStore, Check]:
    """The states of agents and those that rules are judged by, and whether all can be kept."""
    # What fails is tried again with each scan.
    lasting = max(_FAILURE_SECONDS, 3 * settings.alerting.scan_interval_seconds)
    of_agents = WatchedAlertStates(store=store, clock=seams.clock, lasting_seconds=lasting)
    judged = of_agents
    if own is not None and own is not store:
        judged = WatchedAlertStates(store=own, clock=seams.clock, lasting_seconds=lasting)

    async def check() -> None:
        await judged.check()
        await of_agents.check()

    return of_agents, judged, check


def _directory(settings: ServerSettings) -> Path:
    return settings.alerting.rules_dir or settings.state_dir / "alerts"


async def _own_store(settings: ServerSettings, stack: AsyncExitStack) -> AlertStateStore:
    directory = _directory(settings)
    try:
        store = await FileAlertStateStore.open(directory)
    except AlertStateError as error:
        raise StateDirectoryError(f"alerting.rules_dir: {error}") from error
    stack.push_async_callback(store.close)
    return store
