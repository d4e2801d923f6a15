"""`ah-server hub …`: the development hub from the command line, on its file, running or not."""

import argparse
import json
import time
from datetime import UTC, datetime
from typing import Any

from ah_server.cli import _lists
from ah_server.cli._hub_file import hub_database
from ah_server.cli._printing import add_json_option, print_rows
from ah_server.errors import SettingsError
from ah_server.hub import EventLog, Identities, LoggedEvent

_SERIES_CHARS_MAX = 60
_EVENT_COLUMNS = (
    "received",
    "type",
    "severity",
    "company",
    "server",
    "rule",
    "series",
    "value",
    "suppressed_by",
    "event_id",
)


def add_commands(commands: Any, with_settings: argparse.ArgumentParser) -> None:
    """Adds the commands of this module."""
    hub = commands.add_parser("hub", help="licenses, agents and events of the development hub")
    kinds = hub.add_subparsers(metavar="KIND", required=True)
    license_kind = kinds.add_parser("license", help="one-time licenses")
    verbs = license_kind.add_subparsers(metavar="VERB", required=True)
    new = verbs.add_parser(
        "new",
        parents=[with_settings],
        help="make a one-time license and print it",
        epilog="example: ah-server hub license new --company acme --server web1 > license.txt",
    )
    new.add_argument("--company", required=True, help="whose agent it will be")
    new.add_argument("--server", required=True, help="which server it will speak for")
    new.add_argument("--hours", type=float, default=24.0, help="how long it can be used (24)")
    new.set_defaults(command=_new_license)
    listing = verbs.add_parser(
        "list",
        parents=[with_settings],
        help="list the newest licenses, without the licenses themselves",
        epilog="example: ah-server hub license list",
    )
    add_json_option(listing)
    listing.set_defaults(command=_list_licenses)
    _lists.add_commands(kinds, with_settings)
    for kind, verb, function, text in (
        ("agents", "list", _list_agents, "list enrolled agents"),
        ("events", "list", _list_events, "list the newest events"),
    ):
        group = kinds.add_parser(kind, help=text)
        listing = group.add_subparsers(metavar="VERB", required=True).add_parser(
            verb,
            parents=[with_settings],
            help=text,
            epilog=f"example: ah-server hub {kind} {verb} --json",
        )
        add_json_option(listing)
        listing.set_defaults(command=function)


async def _new_license(options: argparse.Namespace) -> int:
    if not 0 < options.hours <= 24 * 366:
        raise SettingsError([f"--hours {options.hours:g} cannot be used: expected up to 8784"])
    async with hub_database(options.settings) as database:
        identities = Identities(database=database, clock=time)
        try:
            text = await identities.new_license(
                options.company, options.server, options.hours * 3600
            )
        except ValueError as error:
            raise SettingsError([str(error)]) from error
    print(text)
    return 0


async def _list_licenses(options: argparse.Namespace) -> int:
    async with hub_database(options.settings) as database:
        lines = await Identities(database=database, clock=time).list_licenses()
    rows = [
        {
            "company_id": line.company_id,
            "server_id": line.server_id,
            "made": _utc(line.created_ms),
            "expires": _utc(line.expires_ms),
            "used_by": line.agent_id,
        }
        for line in lines
    ]
    print_rows(
        rows,
        columns=("company_id", "server_id", "made", "expires", "used_by"),
        as_json=options.json,
        empty="no license was made yet; make one with: ah-server hub license new",
    )
    return 0


async def _list_agents(options: argparse.Namespace) -> int:
    async with hub_database(options.settings) as database:
        lines = await Identities(database=database, clock=time).list_agents()
    rows = [
        {
            "agent_id": line.agent_id,
            "company_id": line.company_id,
            "server_id": line.server_id,
            "state": line.state,
            "last_seen": _utc(line.last_seen_ms),
        }
        for line in lines
    ]
    print_rows(
        rows,
        columns=("company_id", "server_id", "agent_id", "state", "last_seen"),
        as_json=options.json,
        empty="no agent has enrolled yet; make a license with: ah-server hub license new",
    )
    return 0


async def _list_events(options: argparse.Namespace) -> int:
    async with hub_database(options.settings) as database:
        found = await EventLog(database=database, clock=time).newest(100)
    rows = [_event_row(one, whole=options.json) for one in found]
    print_rows(
        rows,
        columns=_EVENT_COLUMNS,
        as_json=options.json,
        empty="no event yet: nothing has fallen silent, and no alert was opened",
    )
    return 0


def _event_row(one: LoggedEvent, *, whole: bool) -> dict[str, Any]:
    """A line of the table, or the whole event with when it came and what had overtaken it."""
    event = one.event
    if whole:
        body: dict[str, Any] = json.loads(event.to_json())
        return {"received": _utc(one.received_ms), "superseded_by": one.superseded_by, **body}
    return {
        "received": _utc(one.received_ms),
        "type": event.type.value,
        "severity": event.severity and event.severity.value,
        "company": event.company_id,
        "server": event.server_id,
        "rule": event.rule_id,
        "series": event.series_key and _cut(event.series_key),
        "value": None if event.value is None else f"{event.value:.6g}",
        "suppressed_by": one.suppressed_by,
        "event_id": event.event_id,
    }


def _cut(text: str) -> str:
    return text if len(text) <= _SERIES_CHARS_MAX else f"{text[: _SERIES_CHARS_MAX - 1]}…"


def _utc(at_ms: int | None) -> str | None:
    return None if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%F %T}Z"
