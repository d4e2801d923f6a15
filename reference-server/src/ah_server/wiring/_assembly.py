"""The whole system, composed: what is made of which settings, and in which order it runs.

Read it from `assembled` down; `_door`, `_identities`, `_collector`, `_stream`, `_samples`,
`_alerting`, `_notify` and `_hub` compose the sides. With nothing set everything is embedded and
this one process plays the hub too; what is embedded keeps its state under `state_dir`. With
`redis.addr` set, registry, presence, departures, company settings, known series, the outbox and the
states of alerts are in Redis, so that other processes share them (the outbox and the bus have
settings of their own; while the bus is in this process, so are the states that rules are judged
by); with `tsdb.url` samples are in VictoriaMetrics; with both, batches wait in Redis in between.
Collector and hub talk over real HTTP even when they are one process, so that what holds here holds
when they stand apart.

    ingest ─▶ bus ─▶ worker ─▶ store ◀─ console, admin
       │               └─▶ threshold rules ─▶ outbox
       └─▶ presence ─▶ detector ─▶ outbox ─▶ sender ─HTTP▶ hub ─▶ bridge ─▶ broker
                                     broker ─▶ matching ─▶ scheduling ─▶ sending ─▶ SMTP
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs
import sqlalchemy.exc

from ah_server.console import Fleet, console_app
from ah_server.errors import DependencyError, StateDirectoryError
from ah_server.parts import Part
from ah_server.settings import Address, Secret, ServerSettings
from ah_server.state_directory import StateDirectory
from ah_server.web_server import Application, WebServer, bound_address
from ah_server.wiring._collector import collector_side, found_of
from ah_server.wiring._hub import HubSide, bridge_part, hub_side
from ah_server.wiring._identities import CollectorSide
from ah_server.wiring._notify import NotifySide, notify_side
from ah_server.wiring._seams import Doors, Seams, bind_all, ingest_web, web
from ah_server.wiring._waiting import answered_meanwhile
from ahcollector.errors import CollectorError, PresenceError, RegistryError
from ahcollector.hub import HttpHub
from ahnotify.errors import NotifyError


@attrs.frozen(kw_only=True)
class Assembly:
    """The composed server: its parts in the order of their start, and where it can be reached.

    `found` has a line for each service that was reached, for `ah-server check`.
    """

    parts: tuple[Part, ...]
    addresses: dict[str, Address]
    admin_token: Secret
    hub_token: Secret
    hub: HubSide | None
    notify: NotifySide
    collector: CollectorSide
    found: tuple[str, ...]


@asynccontextmanager
async def assembled(
    settings: ServerSettings, *, seams: Seams | None = None
) -> AsyncIterator[Assembly]:
    """Composes the server; the parts are not running yet. Leaving closes all that was opened.

    While it waits for a service, the doors say so to whoever comes.

    Raises:
        AddressInUseError: a port is taken.
        StateDirectoryError: the state directory cannot be used, or another process holds it.
        DependencyError: the Redis or VictoriaMetrics that is set does not answer, or loses what it
            is given.
        SettingsError: settings contradict what was found.
    """
    async with AsyncExitStack() as stack:
        try:
            assembly = await _opened(settings, Seams() if seams is None else seams, stack)
        except (RegistryError, PresenceError) as error:
            if settings.redis.addr is None:
                raise _unusable(settings, error) from error
            raise DependencyError(f"redis.addr: {settings.redis.addr}: {error}") from error
        except (CollectorError, NotifyError, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
            raise _unusable(settings, error) from error
        yield assembly


def _unusable(settings: ServerSettings, error: Exception) -> StateDirectoryError:
    return StateDirectoryError(
        f"what state_dir {settings.state_dir} holds cannot be used: {error}; repair it, or set"
        " another state_dir"
    )


async def _opened(settings: ServerSettings, seams: Seams, stack: AsyncExitStack) -> Assembly:
    doors = bind_all(settings, stack)
    compose = partial(_compose, settings, seams, doors, stack)
    if not seams.patient:
        return await compose()
    return await answered_meanwhile(
        compose,
        servers=partial(_servers_meanwhile, settings, doors),
        awaited=seams.awaited,
    )


def _servers_meanwhile(
    settings: ServerSettings, doors: Doors, app: Application
) -> tuple[WebServer, ...]:
    """Servers of all doors, on sockets of their own that they may close."""
    others = attrs.asdict(doors, recurse=False)
    ingest = others.pop("ingest")
    return (
        ingest_web(settings, app, ingest.dup()),
        *(web(name, app, door.dup()) for name, door in others.items() if door is not None),
    )


async def _compose(
    settings: ServerSettings, seams: Seams, doors: Doors, stack: AsyncExitStack
) -> Assembly:
    state = StateDirectory.open(settings.state_dir)
    stack.callback(state.close)
    admin_token = state.secret("admin.token", settings.admin.token)
    hub_token = state.secret("hub.token", settings.hub.token)
    hub, hub_parts = await hub_side(settings, seams, doors, hub_token, stack)
    notify, notify_parts = await notify_side(settings, seams, doors, stack)
    client = HttpHub(
        base_url=_hub_url(settings, doors),
        token=hub_token.reveal(),
        clock=seams.clock,
        timeout_seconds=settings.hub.timeout_seconds,
    )
    stack.push_async_callback(client.aclose)
    collector, collector_parts = await collector_side(
        settings, seams, doors, client, admin_token, stack
    )
    bridge_parts = () if hub is None else (bridge_part(hub, notify, seams),)
    console = console_app(
        view=Fleet(
            presence=collector.presence,
            store=collector.store,
            event_log=None if hub is None else hub.event_log,
        ),
        clock=collector.clock,
        password=settings.console.password,
        refresh_seconds=settings.console.refresh_seconds,
        step_seconds_min=collector.samples.step_seconds_min,
    )
    console_part = web("console", console, doors.console)
    parts = (*hub_parts, *notify_parts, *bridge_parts, *collector_parts, console_part)
    return Assembly(
        parts=seams.parts(parts),
        addresses={
            name: bound_address(door)
            for name, door in attrs.asdict(doors, recurse=False).items()
            if door is not None
        },
        admin_token=admin_token,
        hub_token=hub_token,
        hub=hub,
        notify=notify,
        collector=collector,
        found=found_of(settings, collector),
    )


def _hub_url(settings: ServerSettings, doors: Doors) -> str:
    if doors.hub is None:
        return settings.hub.base_url
    return f"http://{bound_address(doors.hub).netloc}"
