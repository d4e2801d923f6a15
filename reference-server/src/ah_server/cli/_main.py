"""Parses the command line, runs one command, turns its errors into sentences and exit codes."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import anyio

from ah_server._about import VERSION
from ah_server.cli import _admin, _demo, _hub, _notify, _rollups, _server
from ah_server.cli._printing import shown
from ah_server.errors import ServerError
from ah_server.settings import load_settings

EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        0: "done",
        1: "a check did not hold, a letter named is not there, or a part of the server failed",
        2: "the command line cannot be understood",
        3: "a setting cannot be used, or what it names cannot be reached",
        4: "a port is taken",
        5: "the state directory cannot be used, or another process holds it",
        130: "stopped by Ctrl-C before it was done",
        141: "who read the output went away",
    }
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `ah-server`; returns its exit code."""
    if sys.stdout is None:
        # Started with `>&-`. Open until the end, so that no file of ours comes to be descriptor 1.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    try:
        try:
            return _run(arguments)
        finally:
            # What is held back is written here, where it can be told that nobody reads it.
            sys.stdout.flush()
    except BrokenPipeError:
        # `… | head` has what it wanted. What is left must go somewhere when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return 141


def _run(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.needs_settings:
            options.settings = load_settings(options.config, os.environ)
        return int(anyio.run(options.command, options) or 0)
    except ServerError as error:
        for line in error.problems:
            print(f"ah-server: {shown(line)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("ah-server: stopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ah-server",
        description="Runs the whole monitoring and notification server, or looks into it.",
        epilog="exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()),
    )
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    with_settings = argparse.ArgumentParser(add_help=False)
    with_settings.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=Path(os.environ["AHC_CONFIG"]) if os.environ.get("AHC_CONFIG") else None,
        help="YAML settings file (or AHC_CONFIG); AHC_* variables are over it",
    )
    with_settings.set_defaults(needs_settings=True)
    without = argparse.ArgumentParser(add_help=False)
    without.set_defaults(needs_settings=False)
    _server.add_commands(commands, with_settings, without)
    _demo.add_commands(commands, without)
    _hub.add_commands(commands, with_settings)
    _admin.add_commands(commands, with_settings)
    _notify.add_commands(commands, with_settings)
    _rollups.add_commands(commands, with_settings)
    return parser
