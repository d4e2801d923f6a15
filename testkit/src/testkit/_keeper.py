"""Keeps one service on a leash; run as a program, one process a service.

The keeper is the service's parent and a "child subreaper": whatever the service starts, even what
daemonises itself away (Erlang's epmd), becomes a descendant of the keeper, so it can be found and
ended exactly, and nothing else can be hit. The keeper outlives the test process by a moment: when
its standard input ends, or its parent changes, the test process is gone, however it died; the
keeper then ends the whole tree, removes the service's directory and leaves.

It is told what to do by one JSON object a line on standard input and answers each with one on
standard output:

    {"do": "start", "argv": […], "env": {…}, "user": null, "log": "…"}
                                                        → {"pid": 12}
    {"do": "state"}                                     → {"pid": 12, "exit": null}
    {"do": "signal", "number": 19}                      → {}, sent to every process of the tree
    {"do": "stop", "number": 15, "grace_seconds": 10}   → {"exit": 0, "forced": false}
    {"do": "kill"}                                      → {"exit": -9, "forced": true}

An error is answered with {"error": "…"}.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TICK_SECONDS = 0.25
_LAST_GRACE_SECONDS = 3.0


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def _die_with_keeper() -> None:
    """Run in the child before exec: should the keeper itself be killed, the service goes too."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Keeper:
    """The leash: start, look, signal, end."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._exit: int | None = None

    def handle(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order and return the answer."""
        what = order["do"]
        if what == "start":
            return self._start(order)
        if what == "state":
            self.reap()
            return {"pid": self._child.pid if self._child else None, "exit": self._exit}
        if what == "signal":
            self._signal_all(order["number"])
            return {}
        if what == "stop":
            return self.stop(order["number"], order["grace_seconds"])
        if what == "kill":
            return self.stop(signal.SIGKILL, 0)
        return {"error": f"unknown order {what!r}"}

    def _start(self, order: dict[str, Any]) -> dict[str, Any]:
        if psutil.Process().children(recursive=True):
            return {"error": "the service is still running: stop it first"}
        who: dict[str, Any] = {}
        if order["user"] is not None:
            who = {"user": order["user"], "group": order["user"], "extra_groups": []}
        try:
            with Path(order["log"]).open("ab") as log:
                self._child = subprocess.Popen(
                    order["argv"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=order["env"],
                    start_new_session=True,  # a Ctrl-C in the terminal is for the tests
                    preexec_fn=_die_with_keeper,  # noqa: PLW1509 - the keeper has one thread
                    **who,
                )
        except OSError as error:
            return {"error": str(error)}
        self._exit = None
        return {"pid": self._child.pid}

    def reap(self) -> None:
        """Collect every ended descendant and note the exit code of the service itself."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._child is not None and pid == self._child.pid:
                self._exit = os.waitstatus_to_exitcode(status)
                self._child.returncode = self._exit  # Popen must not wait for it again

    def _runs(self) -> bool:
        return self._child is not None and self._exit is None

    def _signal_all(self, number: int) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def stop(self, number: int, grace_seconds: float) -> dict[str, Any]:
        """Ask the service to end, wait, and end by force whatever of the tree is left."""
        forced = number == signal.SIGKILL
        if self._child is not None and self._runs() and not forced:
            self._signal_all(signal.SIGCONT)  # a paused process would not hear the signal
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)
            deadline = time.monotonic() + grace_seconds
            while self._runs() and time.monotonic() < deadline:
                self.reap()
                time.sleep(0.01)
            forced = self._runs()
        while True:  # a process may fork while it is being looked for, so look until none is left
            self.reap()
            if not psutil.Process().children(recursive=True):
                return {"exit": self._exit, "forced": forced}
            self._signal_all(signal.SIGKILL)
            time.sleep(0.01)


def _serve(keeper: Keeper, parent_pid: int) -> None:
    """Answer orders until the input ends or the parent is another one."""
    pending = b""
    while os.getppid() == parent_pid:
        keeper.reap()
        if not select.select([0], [], [], _TICK_SECONDS)[0]:
            continue
        received = os.read(0, 65_536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            answer = keeper.handle(json.loads(line))
            os.write(1, json.dumps(answer).encode() + b"\n")


def main(parent_pid: int, directory: Path) -> None:
    """Serve until the test process is gone, then end everything and remove `directory`."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    keeper = Keeper()
    try:
        _serve(keeper, parent_pid)
    except BrokenPipeError:
        pass  # the test process went while it was being answered
    finally:
        keeper.stop(signal.SIGTERM, _LAST_GRACE_SECONDS)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
