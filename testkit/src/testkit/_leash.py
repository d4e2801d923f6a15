"""The test process's end of a keeper: see `_keeper` for what is said over the two pipes."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testkit import _keeper
from testkit.errors import KeeperError

__all__ = ["Leash"]


class Leash:
    """Starts a keeper process for one service and talks to it."""

    def __init__(self, *, directory: Path) -> None:
        """Start the keeper; it removes `directory` when it leaves."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_keeper.__file__), str(os.getpid()), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str], user: str | None, log: Path
    ) -> int:
        """Start the service and return its process id."""
        answer = self._ask(do="start", argv=list(argv), env=dict(env), user=user, log=str(log))
        return int(answer["pid"])

    def exit_code(self) -> int | None:
        """Return None while the service runs, else its exit code (negative: a signal)."""
        code = self._ask(do="state")["exit"]
        return None if code is None else int(code)

    def signal(self, number: int) -> None:
        """Send a signal to every process of the service."""
        self._ask(do="signal", number=int(number))

    def stop(self, number: int, *, grace_seconds: float) -> bool:
        """End the service with a signal; return whether force was needed after the grace."""
        answer = self._ask(do="stop", number=int(number), grace_seconds=grace_seconds)
        return bool(answer["forced"])

    def kill(self) -> None:
        """SIGKILL every process of the service and wait until none is left."""
        self._ask(do="kill")

    def close(self) -> None:
        """Let the keeper end what still runs, remove the directory and leave."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # what a dead keeper was not told
                self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _ask(self, **order: Any) -> dict[str, Any]:
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        if pipe_in is None or pipe_out is None or pipe_in.closed:
            raise KeeperError("this service was closed: make a new one")
        try:
            pipe_in.write(json.dumps(order).encode() + b"\n")
            pipe_in.flush()
            line = pipe_out.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            code = self._process.poll()
            raise KeeperError(
                f"the keeper of the service is gone (exit {code}): run the test again"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KeeperError(f"order {order['do']!r}: {answer['error']}")
        return answer
