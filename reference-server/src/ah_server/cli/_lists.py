"""`ah-server hub rules …` and `ah-server hub silences …`: the lists that collectors pull."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import anyio

from ah_server.cli._hub_file import hub_database
from ah_server.cli._printing import add_json_option, print_rows
from ah_server.errors import SettingsError
from ah_server.hub import AlertingLists, ListName
from ah_server.hub.alerting_lists import RefusedListError

_KINDS: tuple[tuple[ListName, str, str], ...] = (
    ("rules", "threshold rules", "rules.json"),
    ("silences", "silences and maintenance windows", "silences.json"),
)
_COLUMNS: dict[ListName, tuple[str, ...]] = {
    "rules": ("rule_id", "version", "company_id", "metric", "op", "threshold", "severity"),
    "silences": ("silence_id", "company_id", "starts_at", "ends_at", "reason"),
}


def add_commands(kinds: Any, with_settings: argparse.ArgumentParser) -> None:
    """Adds the commands of this module below `ah-server hub`."""
    for name, text, example in _KINDS:
        group = kinds.add_parser(name, help=text)
        verbs = group.add_subparsers(metavar="VERB", required=True)
        taking = verbs.add_parser(
            "import",
            parents=[with_settings],
            help=f"replace all {name} by those of a file",
            description=f'The file is JSON: {{"{name}": […]}}. One that is wrong refuses all.',
            epilog=f"example: ah-server hub {name} import {example}",
        )
        taking.add_argument("file", help="where they are; - reads standard input")
        taking.set_defaults(command=_import, list=name)
        listing = verbs.add_parser(
            "list",
            parents=[with_settings],
            help=f"list all {name}",
            epilog=f"example: ah-server hub {name} list --json",
        )
        add_json_option(listing)
        listing.set_defaults(command=_list, list=name)


async def _import(options: argparse.Namespace) -> int:
    try:
        if options.file == "-":
            text = await anyio.to_thread.run_sync(sys.stdin.read)
        else:
            text = await anyio.Path(options.file).read_text("utf-8")
        document = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError([f"{Path(options.file)}: {error}; give a file of JSON"]) from error
    async with hub_database(options.settings) as database:
        try:
            count = await AlertingLists(database=database).put(options.list, document)
        except RefusedListError as error:
            raise SettingsError(
                [*error.faults, f"nothing was imported: mend {options.file} and import it again"]
            ) from error
    pulls = f"alerting.{options.list}_sync_interval_seconds"
    noun = options.list.removesuffix("s") if count == 1 else options.list
    print(f"{count} {noun}; collectors have the list within their {pulls}")
    return 0


async def _list(options: argparse.Namespace) -> int:
    async with hub_database(options.settings) as database:
        items = await AlertingLists(database=database).items(options.list)
    columns = _COLUMNS[options.list]
    rows = items if options.json else [{name: item.get(name) for name in columns} for item in items]
    print_rows(
        rows,
        columns=columns,
        as_json=options.json,
        empty=f"there are no {options.list}; import some with: ah-server hub {options.list} import",
    )
    return 0
