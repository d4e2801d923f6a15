"""The development hub and its bridge to the notification center."""

from contextlib import AsyncExitStack

import attrs
from sqlalchemy.exc import OperationalError

import ahnotify
from ah_server.hub import (
    AlertingLists,
    Bridge,
    CompanySettingsTable,
    EventLog,
    Identities,
    hub_app,
    open_database,
)
from ah_server.parts import Loop, Part
from ah_server.settings import Secret, ServerSettings
from ah_server.wiring._notify import NotifySide
from ah_server.wiring._seams import Doors, Seams, kept_file, web
from ahnotify.errors import BrokerUnavailableError, DatabaseUnavailableError


@attrs.frozen(kw_only=True)
class HubSide:
    """The development hub, when this process plays it."""

    identities: Identities
    event_log: EventLog
    settings: CompanySettingsTable
    lists: AlertingLists


async def hub_side(
    settings: ServerSettings, seams: Seams, doors: Doors, token: Secret, stack: AsyncExitStack
) -> tuple[HubSide | None, tuple[Part, ...]]:
    if doors.hub is None:
        return None, ()
    path = settings.state_dir / "hub" / "hub.sqlite"
    with kept_file(path, "the hub's file"):
        database = await open_database(path)
    stack.push_async_callback(database.aclose)
    side = HubSide(
        identities=Identities(
            database=database,
            clock=seams.clock,
            renew_overlap_seconds=settings.registry.renew_overlap_hours * 3600,
        ),
        event_log=EventLog(database=database, clock=seams.clock),
        settings=CompanySettingsTable(database=database),
        lists=AlertingLists(database=database),
    )
    app = hub_app(
        token=token,
        identities=side.identities,
        event_log=side.event_log,
        settings=side.settings,
        lists=side.lists,
    )
    return side, (web("hub", app, doors.hub),)


def bridge_part(hub: HubSide, notify: NotifySide, seams: Seams) -> Part:
    bridge = Bridge(
        event_log=hub.event_log,
        publish=lambda incident: ahnotify.publish_incidents(notify.broker, [incident]),
        failures=(BrokerUnavailableError, DatabaseUnavailableError, OperationalError),
        clock=seams.clock,
        rng=seams.rng,
    )
    return Loop(name="bridge", body=bridge.run)
