"""What every service has in common: a port, a directory, a life cycle.

The life of a service:

    new ──start()──▶ running ──kill(), stop()──▶ down ──start(), restart()──▶ running
    any of them ──close()──▶ gone

The port and the directory stay the same from `__init__` to `close()`, so that what a service
wrote is there after a restart. `start()` returns when the service answers its own protocol, not
when its port is open.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from testkit._leash import Leash
from testkit.errors import KeeperError, StartError
from testkit.install import Program, locate
from testkit.ports import HOST, Port

__all__ = ["Service"]

_POLL_SECONDS = 0.02
_TAIL_LINES = 40


class Service(ABC):
    """A private server process on a free loopback port in a temporary directory.

    Use it as a context manager, or call `start()` and `close()`. Methods block; none is safe to
    call from two threads at once.
    """

    program: ClassVar[Program]
    """Which executable it needs and where that comes from."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """What asks this service to end in order."""

    def __init__(
        self, *, start_timeout_seconds: float = 60.0, stop_timeout_seconds: float = 20.0
    ) -> None:
        """Take a port and a directory; nothing runs yet.

        Raises:
            MissingProgramError: The program is not on this machine.
        """
        self.executable = locate(self.program)
        self.host = HOST
        self._port = Port()
        name = self.program.name.lower()
        self.directory = Path(tempfile.mkdtemp(prefix=f"testkit-{name}-"))
        self.log = self.directory / "service.log"
        self.pid: int | None = None
        self._start_timeout_seconds = start_timeout_seconds
        self._stop_timeout_seconds = stop_timeout_seconds
        self._prepared = False
        self._leash: Leash | None = None

    @property
    def port(self) -> int:
        """The TCP port it listens on, the same for its whole life."""
        return self._port.number

    @property
    @abstractmethod
    def url(self) -> str:
        """Where its client finds it."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command line of the server, in the foreground."""

    @abstractmethod
    def _answers(self) -> bool:
        """Ask the service in its own protocol whether it is ready.

        `OSError` counts as no.
        """

    def _prepare(self) -> None:  # noqa: B027 - most services need nothing
        """Write what the first start needs (configuration, an empty database)."""

    def _environment(self) -> dict[str, str]:
        """Return the environment of the server process."""
        kept = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        return env | {"HOME": str(self.directory)}

    def _user(self) -> str | None:
        """Return the account the server must run as, None for our own."""
        return None

    def start(self) -> None:
        """Start the service and return when it answers.

        Raises:
            StartError: It ended or did not answer in time; the text ends with its log.
        """
        if not self._prepared:
            self._prepare()
            self._prepared = True
        if self._leash is None:
            self._leash = Leash(directory=self.directory)
        self.pid = self._leash.start(
            self._command(), env=self._environment(), user=self._user(), log=self.log
        )
        self._wait(self._leash)

    def kill(self) -> None:
        """SIGKILL it and all it started; returns when no process is left."""
        if self._leash is not None:
            self._leash.kill()
        self.pid = None

    def stop(self) -> None:
        """End it in order; what does not end in time is killed. Port and directory stay."""
        if self._leash is not None:
            self._leash.stop(self.stop_signal, grace_seconds=self._stop_timeout_seconds)
        self.pid = None

    def restart(self) -> None:
        """Start it again on the same port and directory, stopping it first if it runs."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP it: connections stay open and nothing is answered, as on a hung machine."""
        if self._leash is not None:
            self._leash.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT it after `pause()`."""
        if self._leash is not None:
            self._leash.signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it, remove its directory and give the port back; may be called twice."""
        if self._leash is not None:
            # Without its keeper the service is gone already, and there is nothing to stop.
            with contextlib.suppress(KeeperError):
                self.stop()
            self._leash.close()
            self._leash = None
        shutil.rmtree(self.directory, ignore_errors=True)
        self._release_ports()

    def _release_ports(self) -> None:
        self._port.release()

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the service's output."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _wait(self, leash: Leash) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        while True:
            code = leash.exit_code()
            if code is not None:
                problem = f"ended with exit code {code} before it was ready"
                break
            if self._is_ready():
                return
            if time.monotonic() >= deadline:
                problem = f"did not answer within {self._start_timeout_seconds:g} s"
                break
            time.sleep(_POLL_SECONDS)
        self.kill()
        tail = self.log_tail() or "(it wrote nothing)"
        raise StartError(
            f"{self.program.name} on port {self.port} {problem}.\n"
            f"command: {' '.join(self._command())}\nthe end of its log:\n{tail}"
        )

    def _is_ready(self) -> bool:
        try:
            return self._answers()
        except OSError:
            return False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "down" if self.pid is None else f"pid {self.pid}"
        return f"<{type(self).__name__} {self.host}:{self.port} {state}>"
