"""The demo's agent: `ahagent`, as a child process with a configuration and a state of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import attrs
import psutil
import yaml
from anyio.abc import Process

from ah_server.errors import ServerError

_LOG_TAIL_BYTES = 4000
_LEFTOVER_SECONDS = 8.0


@attrs.frozen(kw_only=True)
class AgentFiles:
    """Where the agent's files are."""

    folder: Path

    @property
    def config(self) -> Path:
        """Its configuration."""
        return self.folder / "agent.yaml"

    @property
    def state(self) -> Path:
        """Its state directory, with credentials and WAL."""
        return self.folder / "state"

    @property
    def ledger(self) -> Path:
        """A line for each batch for which append had returned."""
        return self.folder / "ledger.jsonl"

    @property
    def log(self) -> Path:
        """Its log."""
        return self.folder / "agent.log"

    @property
    def output(self) -> Path:
        """What it prints past its log, a crash say."""
        return self.folder / "agent.out"

    @property
    def is_enrolled(self) -> bool:
        """Whether an earlier run left its credentials."""
        return (self.state / "credentials.json").exists()


class AgentProcess:
    """Enrols, starts, kills and stops the agent."""

    def __init__(self, *, files: AgentFiles, collector_url: str, interval_seconds: float) -> None:
        self.files = files
        self._collector_url = collector_url
        self._interval_seconds = interval_seconds
        self._process: Process | None = None

    def write_config(self) -> None:
        """Writes the configuration anew; the collector's port can differ from run to run."""
        self.files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = {
            "collector_url": self._collector_url,
            "state_dir": str(self.files.state),
            "interval": f"{self._interval_seconds:g}s",
            "allow_short_interval": True,
            "log": {"level": "info", "file": str(self.files.log)},
        }
        self.files.config.write_text(yaml.safe_dump(config, sort_keys=False))

    async def enroll(self, license_text: str) -> None:
        """Enrols with a license, which goes through standard input and stands on no command line.

        Raises:
            ServerError: the enrolment failed; the text has the agent's own words.
        """
        result = await anyio.run_process(
            [*_ahagent("enroll"), "--config", str(self.files.config), "--license-file", "-"],
            input=license_text.encode() + b"\n",
            check=False,
            env=_environment(),
        )
        if result.returncode != 0:
            said = (result.stderr + result.stdout).decode("utf-8", "replace").strip()
            raise ServerError(f"ahagent enroll ended with {result.returncode}: {said}")

    async def stop_leftover(self) -> int | None:
        """Ends an agent that a killed demo left running over the same state; its process id."""
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or []
            if "ahwal" in command and str(self.files.config) in command:
                process.terminate()
                await anyio.to_thread.run_sync(_wait_or_kill, process)
                return int(process.pid)
        return None

    async def start(self) -> int:
        """Starts `ahagent run`; returns its process id."""
        with self.files.output.open("ab") as output:
            self._process = await anyio.open_process(
                [
                    *_ahagent("run"),
                    "--config",
                    str(self.files.config),
                    "--ledger",
                    str(self.files.ledger),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(),
                # Ctrl-C at the terminal is for the demo, which stops the agent itself.
                start_new_session=True,
            )
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs or before it was started."""
        return None if self._process is None else self._process.returncode

    async def wait(self) -> None:
        """Returns when it has ended, for whatever reason."""
        assert self._process is not None
        await self._process.wait()

    async def kill(self) -> None:
        """Ends it without warning."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()

    async def stop(self, timeout_seconds: float) -> bool:
        """Asks it to stop, kills it after the time-out; whether it stopped by itself."""
        if self._process is None or self._process.returncode is not None:
            return True
        self._process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(timeout_seconds):
            await self._process.wait()
            return True
        await self.kill()
        return False

    def log_tail(self) -> str:
        """The last lines of its log and of what else it printed."""
        said = b"".join(
            path.read_bytes()[-_LOG_TAIL_BYTES:]
            for path in (self.files.log, self.files.output)
            if path.exists()
        )
        return said.decode("utf-8", "replace").strip() or "(the agent said nothing)"


def _wait_or_kill(process: psutil.Process) -> None:
    try:
        process.wait(timeout=_LEFTOVER_SECONDS)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(timeout=_LEFTOVER_SECONDS)


def _ahagent(command: str) -> list[str]:
    return [sys.executable, "-m", "ahwal", command]


def _environment() -> Mapping[str, str]:
    # AH_* of the caller's shell would configure an agent of another kind.
    return {name: value for name, value in os.environ.items() if not name.startswith("AH_")}
