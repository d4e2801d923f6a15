"""`ah-server outbox …`, `bus …`, `worker …`, `presence …`: asks a running server, as its admin."""

import argparse
import sys
from typing import Any

from ah_server.cli._printing import add_json_option, print_mapping, print_rows, shown
from ah_server.cli._progress import with_progress
from ah_server.http_client import DoorClient
from ah_server.settings import ServerSettings
from ah_server.state_directory import stored_secret


def add_commands(commands: Any, with_settings: argparse.ArgumentParser) -> None:
    """Adds the commands of this module."""
    outbox = commands.add_parser("outbox", help="events that the hub does not have yet")
    verbs = outbox.add_subparsers(metavar="VERB", required=True)
    stats = verbs.add_parser(
        "stats",
        parents=[with_settings],
        help="how many wait, how old the oldest is, how many dead letters there are",
        epilog="example: ah-server outbox stats --json",
    )
    add_json_option(stats)
    stats.set_defaults(command=_outbox_stats)
    _add_dead(verbs, with_settings, "outbox", "events that the hub did not take")
    bus = commands.add_parser("bus", help="batches on their way to the workers")
    bus_verbs = bus.add_subparsers(metavar="VERB", required=True)
    _add_dead(bus_verbs, with_settings, "bus", "entries that no worker could take")
    worker = commands.add_parser("worker", help="batches on their way to the store")
    worker_verbs = worker.add_subparsers(metavar="VERB", required=True)
    _add_dead(worker_verbs, with_settings, "worker", "batches that the store refused")
    presence = commands.add_parser("presence", help="who was heard when")
    listing = presence.add_subparsers(metavar="VERB", required=True).add_parser(
        "list",
        parents=[with_settings],
        help="list agents with state and last sign of life",
        epilog="example: ah-server presence list",
    )
    add_json_option(listing)
    listing.set_defaults(command=_presence_list)


def _add_dead(verbs: Any, with_settings: argparse.ArgumentParser, part: str, what: str) -> None:
    dead = verbs.add_parser("dead", help=f"dead letters: {what}")
    kinds = dead.add_subparsers(metavar="VERB", required=True)
    listing = kinds.add_parser(
        "list",
        parents=[with_settings],
        help=f"list {what}",
        epilog=f"example: ah-server {part} dead list --json",
    )
    add_json_option(listing)
    listing.set_defaults(command=_dead_list, part=part)
    for verb, text in (("replay", "send again"), ("purge", "forget for good")):
        acting = kinds.add_parser(
            verb,
            parents=[with_settings],
            help=f"{text} {what}",
            epilog=f"example: ah-server {part} dead {verb} --all",
        )
        chosen = acting.add_mutually_exclusive_group(required=True)
        chosen.add_argument(
            "--id",
            action="append",
            type=_letter_id,
            metavar="ID",
            help="this letter; repeatable",
        )
        chosen.add_argument("--all", action="store_true", help="all of them")
        add_json_option(acting)
        acting.set_defaults(command=_dead_act, part=part, verb=verb)


def _client(settings: ServerSettings) -> DoorClient:
    token = settings.admin.token or stored_secret(settings.state_dir, "admin.token")
    return DoorClient(
        name="admin API",
        base_url=f"http://{settings.admin.listen.netloc}",
        token=token,
        hint="; is the server running, and is admin.listen the same as its own?",
    )


async def _outbox_stats(options: argparse.Namespace) -> int:
    async with _client(options.settings) as client:
        print_mapping(await client.get_json("/admin/v1/outbox"), as_json=options.json)
    return 0


async def _presence_list(options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    async with _client(options.settings) as client:
        after: str | None = ""
        while after is not None:
            page = await client.get_json("/admin/v1/presence", after=after)
            rows += [_told(agent) for agent in page["agents"]]
            after = page["next_after"]
    print_rows(
        rows,
        columns=("company_id", "server_id", "agent_id", "state", "last_seen_at"),
        as_json=options.json,
        empty="no agent is known yet",
    )
    return 0


def _told(agent: dict[str, Any]) -> dict[str, Any]:
    """An agent that is enrolled and was never heard is not called up."""
    waiting = agent["state"] == "up" and agent["last_seen_at"] is None
    return {**agent, "state": "waiting"} if waiting else agent


async def _dead_list(options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    async with _client(options.settings) as client:
        after: str | None = ""
        while after is not None:
            page = await client.get_json(f"/admin/v1/{options.part}/dead", after=after)
            rows += page["letters"]
            after = page["next_after"]
    print_rows(
        rows,
        columns=("letter_id", "reason", "dead_at"),
        as_json=options.json,
        empty="no dead letter",
    )
    return 0


async def _dead_act(options: argparse.Namespace) -> int:
    body = {"all": True} if options.all else {"ids": options.id}
    path = f"/admin/v1/{options.part}/dead"
    method = "DELETE"
    if options.verb == "replay":
        path, method = f"{path}/replay", "POST"
    async with _client(options.settings) as client:

        async def look() -> str:
            what = f"{options.part} dead {options.verb}"
            if options.part != "outbox":
                return f"{what}: still at work"
            left = (await client.get_json("/admin/v1/outbox"))["dead"]
            return f"{what}: still at work, {left} dead letters are left"

        done = await with_progress(
            # So many letters are moved that no bound of time fits all.
            lambda: client.send_json(method, path, body, timeout_seconds=None),
            look,
        )
    print_mapping(done, as_json=options.json)
    named = list(dict.fromkeys(options.id or ()))
    missing = len(named) - sum(done.values())
    if missing <= 0:
        return 0
    print(
        f"ah-server: {missing} of the {len(named)} letters that were named are not there (named: "
        f"{shown(', '.join(named))}); ah-server {options.part} dead list shows which are",
        file=sys.stderr,
    )
    return 1


def _letter_id(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an id is expected, as dead list shows it")
    return text
