"""`ah-server notify …`: tenants and API keys of the notification center, on its file."""

import argparse
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ahnotify
from ah_server.errors import SettingsError, StateDirectoryError
from ah_server.settings import ServerSettings
from ahnotify.errors import InvalidError


def add_commands(commands: Any, with_settings: argparse.ArgumentParser) -> None:
    """Adds the commands of this module."""
    notify = commands.add_parser("notify", help="tenants and keys of the notification center")
    kinds = notify.add_subparsers(metavar="KIND", required=True)
    tenant = kinds.add_parser("tenant", help="tenants: a company that rules are written for")
    new = tenant.add_subparsers(metavar="VERB", required=True).add_parser(
        "new",
        parents=[with_settings],
        help="make a tenant, or change its name and time zone",
        epilog="example: ah-server notify tenant new --tenant acme --timezone Europe/Berlin",
    )
    new.add_argument("--tenant", required=True, help="the company's id")
    new.add_argument("--name", default="", help="its name for people")
    new.add_argument("--timezone", default="UTC", help="time zone of rules that name none (UTC)")
    new.set_defaults(command=_new_tenant)
    key = kinds.add_parser("key", help="keys of the rules API")
    made = key.add_subparsers(metavar="VERB", required=True).add_parser(
        "new",
        parents=[with_settings],
        help="make a key and print it; it is shown once",
        epilog="example: ah-server notify key new --tenant acme --role editor",
    )
    made.add_argument("--tenant", required=True, help="whose rules it opens")
    made.add_argument("--role", default="editor", choices=["viewer", "editor", "admin"])
    made.add_argument("--name", default="", help="what it is for")
    made.set_defaults(command=_new_key)


@asynccontextmanager
async def _database(settings: ServerSettings) -> AsyncIterator[ahnotify.Database]:
    path = settings.state_dir / "notify" / "notify.sqlite"
    if not path.exists():
        raise StateDirectoryError(
            f"{path} is not there yet: start the server once with this state_dir"
        )
    database = ahnotify.Database.open(f"sqlite:///{path}")
    try:
        yield database
    except InvalidError as error:
        raise SettingsError([str(error)]) from error
    finally:
        await database.aclose()


async def _new_tenant(options: argparse.Namespace) -> int:
    async with _database(options.settings) as database:
        directory = ahnotify.Directory(database=database, clock=time)
        await directory.put_tenant(options.tenant, name=options.name, timezone=options.timezone)
    print(f"tenant {options.tenant} is known")
    return 0


async def _new_key(options: argparse.Namespace) -> int:
    async with _database(options.settings) as database:
        keys = ahnotify.ApiKeys(database=database, clock=time)
        made = await keys.create(options.tenant, role=options.role, name=options.name)
    print(made.key)
    return 0
