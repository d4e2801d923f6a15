"""`ahagent enroll`."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import anyio

from ahwal.agent._config import AgentConfig
from ahwal.agent._enrol import LICENSE_CHARS_MAX
from ahwal.agent._enrol import enroll as enroll_agent
from ahwal.cli._exit import ExitCode
from ahwal.cli._log import configure_logging
from ahwal.cli._say import say
from ahwal.errors import ConfigError


def enroll(config: AgentConfig, options: argparse.Namespace) -> ExitCode:
    """Enrol this machine and say who it is now."""
    configure_logging(config)
    license_text = read_license(options.license_file)
    credentials = anyio.run(partial(enroll_agent, config, license_text, force=options.force))
    say(
        f"enrolled: agent_id={credentials.agent_id} company_id={credentials.company_id} "
        f"server_id={credentials.server_id}"
    )
    return ExitCode.OK


def read_license(file: str | None) -> str:
    """Return the license from a file, standard input or AH_LICENSE; never from an argument.

    Raises:
        ConfigError: It is nowhere, cannot be read, or is no license by its size.
    """
    text, source = _read_license(file)
    if not 0 < len(text.strip()) <= LICENSE_CHARS_MAX:
        raise ConfigError(
            f"{source}: is empty or over {LICENSE_CHARS_MAX} characters; a license is one line "
            "that the collector's side gave you"
        )
    return text


def _read_license(file: str | None) -> tuple[str, str]:
    """Return the text, and where it came from."""
    if file is None:
        text = os.environ.get("AH_LICENSE", "")
        if not text:
            raise ConfigError("no license: give --license-file FILE, or set AH_LICENSE")
        return text, "AH_LICENSE"
    try:
        if file == "-":
            return sys.stdin.read(LICENSE_CHARS_MAX + 1), "--license-file - (standard input)"
        with Path(file).open(encoding="utf-8") as stream:
            return stream.read(LICENSE_CHARS_MAX + 1), f"--license-file {file}"
    except OSError as error:
        raise ConfigError(f"--license-file {file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise ConfigError(f"--license-file {file}: is not UTF-8 text") from None
