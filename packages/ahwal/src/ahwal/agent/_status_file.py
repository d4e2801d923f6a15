"""The status file: `<state_dir>/status.json`, what `ahagent status` shows.

It is replaced at the start, every 10 s and at the end: one JSON object with `pid`, `running`, `at`
(Unix seconds) and the figures of `AgentStatus`, those of the sender under `sender`. It has mode
0600, is only ever replaced whole, and holds no secret. It is not synced: after a power cut nobody
needs to know what an agent did before it.
"""

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio

from ahwal._threads import DaemonCalls
from ahwal.agent._files import fixed_path
from ahwal.agent._status import AgentState, AgentStatus
from ahwal.errors import BusyError

FILE_NAME = "status.json"
EVERY_SECONDS = 10.0
TIMEOUT_SECONDS = 1.0


class StatusFile:
    """Writes the file, and never fails: an agent whose disk is full or hangs goes on.

    Args:
        state_dir: The directory that holds it.
        read_status: Gives the figures of the moment.
        logger: The agent's logger.
    """

    def __init__(
        self, *, state_dir: str, read_status: Callable[[], AgentStatus], logger: logging.Logger
    ) -> None:
        self._path = Path(fixed_path(state_dir)) / FILE_NAME
        self._read_status = read_status
        self._log = logger
        # A thread that hangs in a dead disk is left behind, and the next write is left out.
        self._calls = DaemonCalls(name="status file", calls_max=1)

    async def run(self) -> None:
        """Write now and every 10 s, until it is cancelled."""
        while True:
            await self.write()
            # Real time and no clock of a test: the file is for people at a terminal, and nothing
            # that the agent does depends on it.
            await anyio.sleep(EVERY_SECONDS)

    async def write(self) -> None:
        """Replace the file, if the disk lets us within a second."""
        document = to_document(self._read_status())
        try:
            # Shielded, so that no write is still under way when the last one comes.
            with anyio.move_on_after(TIMEOUT_SECONDS, shield=True):
                await self._calls.run(lambda: self._replace(document))
        except (OSError, BusyError) as error:
            self._log.debug("the status file could not be written: %s", error)

    def _replace(self, document: dict[str, object]) -> None:
        temporary = self._path.with_name(f"{FILE_NAME}.tmp")
        # What another program may have put there is not written through.
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(document, stream, indent=2)
        temporary.replace(self._path)


def to_document(status: AgentStatus) -> dict[str, object]:
    """Return what the file says, of this process and this moment."""
    document: dict[str, object] = {
        "pid": os.getpid(),
        "running": status.state not in (AgentState.STOPPED, AgentState.FAILED),
        "at": time.time(),
        "state": str(status.state),
        "error": status.error,
        "line": status.line(),
        "storage": status.storage,
        "version": status.version,
        "collector_url": status.collector_url,
        "interval_seconds": status.interval_seconds,
        "uptime_seconds": round(status.uptime_seconds, 1),
        "cycles": status.cycles,
        "missed_cycles": status.missed_cycles,
    }
    sender = status.sender
    if sender is not None:
        document["sender"] = {
            "state": str(sender.state),
            "queued_batches": sender.queued_batches,
            "queue_bytes": sender.queue_bytes,
            "upgrade_required": sender.upgrade_required,
            "produced": sender.produced,
            "inherited": sender.inherited,
            "delivered": sender.delivered,
            "dropped": {str(reason): count for reason, count in sender.dropped.items()},
            "queued": sender.queued,
            "requests": sender.requests,
            "send_failures": sender.send_failures,
            "clock_skew_seconds": sender.clock_skew_seconds,
            "last_success_unix_seconds": sender.last_success_unix_seconds,
            "last_error": sender.last_error,
        }
    return document
