"""vmalert as a command: it checks a rule file, or records what the rules say of a time gone by."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from testkit.install import Program, locate

__all__ = ["Vmalert"]


class Vmalert:
    """vmalert, of the package of VictoriaMetrics; nothing of it is left running.

    Args:
        timeout_seconds: How long one run may take.

    Raises:
        MissingProgramError: It is not on this machine.
    """

    program: ClassVar[Program] = Program(
        name="vmalert",
        executables=("vmalert", "vmalert-prod"),
        package="victoria-metrics",
    )

    def __init__(self, *, timeout_seconds: float = 60.0) -> None:
        self.executable = locate(self.program)
        self._timeout_seconds = timeout_seconds

    def check(self, rules: Path) -> None:
        """Return when the file is sound.

        Raises:
            ValueError: It is not; the text is what vmalert said.
        """
        self._run(f"-rule={rules}", "-dryRun")

    def replay(self, rules: Path, *, url: str, start_ms: int, end_ms: int) -> None:
        """Record what the rules say of a time, both ends included, in steps of five minutes.

        Args:
            rules: The file.
            url: The VictoriaMetrics that is asked and written to.
            start_ms: From when, Unix milliseconds, whole seconds.
            end_ms: Until when.

        Raises:
            ValueError: It failed; the text is what vmalert said.
        """
        self._run(
            f"-rule={rules}",
            f"-datasource.url={url}",
            f"-remoteWrite.url={url}",
            "-remoteWrite.flushInterval=100ms",
            "-replay.rulesDelay=200ms",
            "-replay.disableProgressBar",
            f"-replay.timeFrom={_instant(start_ms)}",
            f"-replay.timeTo={_instant(end_ms)}",
        )

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.executable), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self._timeout_seconds,
            check=False,
        )
        if done.returncode != 0:
            raise ValueError(f"vmalert ended with {done.returncode}: {done.stderr}")


def _instant(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
