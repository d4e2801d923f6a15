"""`ah-server run`, `check` and `settings`."""

import argparse
import gc
import logging
import sys
from typing import Any

from ah_server._about import host_id
from ah_server.check import check
from ah_server.cli._printing import add_json_option, print_rows, shown
from ah_server.connections import raise_descriptor_limit
from ah_server.errors import ServerError, SettingsError
from ah_server.logs import configure_logs
from ah_server.run import serve
from ah_server.settings import setting_lines
from ah_server.wiring import Assembly

ROLES = (
    "all",
    "ingest",
    "worker",
    "admin",
    "incidents",
    "matching",
    "scheduler",
    "sender",
    "api",
    "hub",
)
_GC_THRESHOLD = 50_000
_log = logging.getLogger("ah_server.run")


def add_commands(
    commands: Any, with_settings: argparse.ArgumentParser, without: argparse.ArgumentParser
) -> None:
    """Adds the commands of this module."""
    run = commands.add_parser(
        "run",
        parents=[with_settings],
        help="run the server until SIGINT or SIGTERM",
        epilog="example: ah-server run --config server.yaml",
    )
    run.add_argument(
        "--role",
        default="all",
        choices=ROLES,
        help="what this process does: all, or one part, which needs backends that are shared",
    )
    run.add_argument(
        "--check", action="store_true", help="only check the settings and reach what they name"
    )
    run.set_defaults(command=_run)
    checked = commands.add_parser(
        "check",
        parents=[with_settings],
        help="check the settings and reach what they name",
        epilog="example: ah-server check --config server.yaml",
    )
    checked.set_defaults(command=_check)
    settings = commands.add_parser(
        "settings",
        parents=[without],
        help="list all settings with defaults, ranges and meaning",
        epilog="example: ah-server settings --json",
    )
    add_json_option(settings)
    settings.set_defaults(command=_settings)


async def _run(options: argparse.Namespace) -> int:
    if options.role != "all":
        raise SettingsError(
            [
                (
                    f"--role {options.role}: a process that does one part needs backends that are"
                    " shared with the others, and this version keeps notifications in each process;"
                    " run one process with --role all"
                )
            ]
        )
    if options.check:
        return await _check(options)
    settings = options.settings
    raise_descriptor_limit()
    configure_logs(settings.log, collector_id=settings.collector_id or host_id())

    def ready(assembly: Assembly) -> None:
        if not settings.notify.mail.host:
            _log.warning(
                "e-mail is not configured, so rules with the channel email reach nobody:"
                " set notify.mail.host and notify.mail.sender"
            )
        _log.info("ready", extra={name: str(at) for name, at in assembly.addresses.items()})

    def progress(what: str, part: str) -> None:
        _log.debug("%s %s", part, what)

    # Batches are many small values that live for a moment. With the interpreter's own threshold a
    # quarter of the ingest door's time went into looking for cycles among them.
    gc.set_threshold(_GC_THRESHOLD)
    try:
        await serve(settings, progress=progress, ready=ready)
    except ServerError as error:
        if settings.log.format != "json":
            raise
        # Whoever reads the log as JSON reads the last word as JSON too.
        for problem in error.problems:
            _log.error("%s", problem)  # the sentence is for the operator
        return error.exit_code
    return 0


async def _check(options: argparse.Namespace) -> int:
    checked = await check(options.settings)
    for line in checked.found:
        print(f"ok  {shown(line)}")
    if checked.error is not None:
        sys.stdout.flush()
        raise checked.error
    return 0


async def _settings(options: argparse.Namespace) -> int:
    rows = [
        {"name": line.name, "default": line.default, "allowed": line.allowed, "meaning": line.doc}
        for line in setting_lines()
    ]
    print_rows(
        rows,
        columns=("name", "default", "allowed", "meaning"),
        as_json=options.json,
        empty="there are no settings",
    )
    sys.stdout.flush()
    return 0
