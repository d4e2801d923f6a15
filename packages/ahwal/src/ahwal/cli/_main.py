"""Arguments of `ahagent`, and the way from an error to an exit code."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from ahwal._version import package_version
from ahwal.agent._config import AgentConfig
from ahwal.agent._load import load_config
from ahwal.agent._settings import SETTINGS, Kind
from ahwal.cli import _enroll, _run, _status, _wal
from ahwal.cli._exit import ExitCode, exit_code
from ahwal.cli._say import say
from ahwal.errors import AhwalError, ConfigError

DEFAULT_CONFIG_FILE = "/etc/ahwal/agent.yaml"
_EPILOG = """exit codes: 0 done, 2 usage, 3 configuration, 4 not enrolled, 5 enrolment refused,
6 temporary (try again), 7 revoked, 8 state directory in use"""

Command = Callable[[AgentConfig, argparse.Namespace], ExitCode]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Without the program's name; default: those of the process.

    Returns:
        An `ExitCode`. Wrong usage ends with SystemExit(2), as argparse does it.
    """
    options = _parser().parse_args(arguments)
    command: Command = options.command
    try:
        return command(read_config(options), options)
    except ConfigError as error:
        for problem in error.problems:
            say(f"ahagent: {problem}", error=True)
        return ExitCode.CONFIGURATION
    except AhwalError as error:
        say(f"ahagent: {error}", error=True)
        return exit_code(error)
    except BrokenPipeError:
        # The reader of a pipe went away, as `head` does. Nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    finally:
        logging.shutdown()


def read_config(options: argparse.Namespace) -> AgentConfig:
    """Return the settings from all sources; also used when they are reloaded."""
    file = options.config or os.environ.get("AH_CONFIG") or None
    if file is None and os.path.exists(DEFAULT_CONFIG_FILE):  # noqa: PTH110 - a plain question
        file = DEFAULT_CONFIG_FILE
    flags = {
        setting.key: text
        for setting in SETTINGS
        if (text := getattr(options, setting.field)) is not None
    }
    return load_config(file=file, environ=os.environ, flags=flags)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ahagent",
        description="Collects this machine's metrics and delivers them at least once.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ahagent {package_version()}")
    commands = _Commands(parser)
    enroll = commands.add(
        "enroll",
        "exchange a one-time license for an identity",
        "enroll --collector-url https://collector.example --license-file license.txt",
        _enroll.enroll,
    )
    enroll.add_argument(
        "--license-file", metavar="FILE", help="file with the license, or - for standard input"
    )
    enroll.add_argument("--force", action="store_true", help="replace the identity there is")
    run = commands.add("run", "collect and send until stopped", "run --config agent.yaml", _run.run)
    run.add_argument(
        "--ledger", metavar="FILE", help="append one synced JSON line for each batch on disk"
    )
    status = commands.add(
        "status", "show identity and state of the agent", "status --json", _status.status
    )
    status.add_argument(
        "--check",
        action="store_true",
        help="for health checks: end with 6 unless the agent runs and may send",
    )
    check = commands.add(
        "check-config",
        "check the settings and show those in force",
        "check-config --config agent.yaml",
        _status.check_config,
    )
    verbs = commands.nested("wal", "look into the queue on disk")
    stats = verbs.add("stats", "show figures of the queue", "wal stats", _wal.stats)
    verify = verbs.add(
        "verify", "read everything; ends with 3 on damage", "wal verify", _wal.verify
    )
    dump = verbs.add("dump", "print one JSON line a batch", "wal dump --limit 1", _wal.dump)
    dump.add_argument(
        "--limit", metavar="COUNT", type=_count, default=0, help="at most so many batches; 0: all"
    )
    for verb in (stats, verify, dump):
        verb.add_argument(
            "--wal-dir", metavar="DIR", help="a queue of your own, instead of the agent's"
        )
    requeue = verbs.add(
        "requeue",
        "put what is in quarantine back; the agent must be stopped",
        "wal requeue",
        _wal.requeue,
    )
    for verb in (status, check, stats, verify, requeue):
        verb.add_argument("--json", action="store_true", help="print JSON")
    for command in (*commands.made, *verbs.made):
        _add_settings(command)
    return parser


def _count(text: str) -> int:
    """Return a number of 0 or more; argparse says what it is of."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is below 0; valid is 0 or more")
    return number


class _Commands:
    """The commands below one parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(required=True, metavar="COMMAND")
        self.made: list[argparse.ArgumentParser] = []

    def add(
        self, name: str, help_text: str, example: str, command: Command
    ) -> argparse.ArgumentParser:
        """Add a command that does something."""
        parser = self._parsers.add_parser(
            name,
            help=help_text,
            description=help_text,
            epilog=f"example: ahagent {example}",
            allow_abbrev=False,
        )
        parser.set_defaults(command=command)
        self.made.append(parser)
        return parser

    def nested(self, name: str, help_text: str) -> "_Commands":
        """Add a command that only holds others."""
        parser = self._parsers.add_parser(
            name, help=help_text, description=help_text, allow_abbrev=False
        )
        return _Commands(parser)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    # The usage names the command's own options only, among which the settings would drown them.
    own = parser.format_usage().removeprefix("usage: ").rstrip()
    parser.usage = f"{own} [SETTING ...]"
    group = parser.add_argument_group(
        "settings", "over AH_* variables, which are over the file, which is over the defaults"
    )
    group.add_argument("--config", metavar="FILE", help="YAML file (or AH_CONFIG)")
    for setting in SETTINGS:
        # A flag without a value means true; `--flag=false` switches it off.
        optional = {"nargs": "?", "const": "true"} if setting.kind is Kind.FLAG else {}
        group.add_argument(
            setting.flag,
            dest=setting.field,
            metavar=setting.kind.name,
            help=f"{setting.help} ({setting.range})",
            **optional,  # type: ignore[arg-type]  # the stubs know no such dictionary
        )
