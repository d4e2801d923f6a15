"""The queue on disk: opened at the start, and tried again while it cannot be."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from ahwal._threads import in_thread
from ahwal.agent._config import AgentConfig
from ahwal.clock import AsyncClock
from ahwal.errors import WALError, WALLockedError
from ahwal.queue import Queue
from ahwal.sender import Sender
from ahwal.wal import WAL

RETRY_SECONDS = 60.0
DIRECTORY_NAME = "wal"
MEMORY_QUEUE_SHARE = 4

OpenQueue = Callable[[], Queue]


def open_wal(config: AgentConfig) -> Queue:
    """Open the WAL of a state directory, which is made when it is missing.

    Raises:
        WALLockedError: Another process uses it.
        WALError: It cannot be opened.
        OSError: The directory cannot be made.
    """
    path = Path(config.state_dir) / DIRECTORY_NAME
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return WAL.open(
        path,
        max_bytes=config.buffer_bytes_max,
        max_age_seconds=config.buffer_age_seconds_max,
    )


def memory_queue_bytes(config: AgentConfig) -> int:
    """Return how large the queue in memory may become, which holds what the disk refuses."""
    return min(config.buffer_bytes_max, config.memory_limit_bytes // MEMORY_QUEUE_SHARE)


class Disk:
    """Opens the queue and keeps it for closing.

    Args:
        open_queue: Blocking; raises a WALError or OSError when it cannot.
        clock: Measures the pause between tries.
        logger: The agent's logger.

    Attributes:
        queue: The queue on disk; None while it cannot be opened.
        problem: Why it cannot be opened; empty when it could be.
    """

    def __init__(self, *, open_queue: OpenQueue, clock: AsyncClock, logger: logging.Logger) -> None:
        self._open_queue = open_queue
        self._clock = clock
        self._log = logger
        self.queue: Queue | None = None
        self.problem = ""

    async def open(self) -> Queue | None:
        """Open the queue; None when that is not possible now, which is logged.

        Raises:
            WALLockedError: Another process uses it; waiting would not be right.
        """
        try:
            self.queue = await in_thread(self._open_queue)
        except WALLockedError:
            raise
        except (WALError, OSError) as error:
            self.problem = f"batches are kept in memory: {error}"
            self._log.error(
                "the queue on disk cannot be opened, batches are kept in memory: %s", error
            )
            return None
        self.problem = ""
        left = self.queue.stats().batches
        if left:
            self._log.info("recovered %d buffered batches from disk", left)
        return self.queue

    async def run(self, sender: Sender) -> None:
        """Try again each minute until the queue is open and the sender has it.

        Raises:
            WALLockedError: Another process uses it meanwhile.
        """
        while self.queue is None:
            await self._clock.sleep(RETRY_SECONDS)
            queue = await self.open()
            if queue is not None:
                await sender.attach(queue)
                self._log.info("the queue on disk works, batches moved to it")

    async def save(self, sender: Sender) -> None:
        """Give the disk a last chance to take what waits in memory, and tell what it did not."""
        left = await sender.save()
        if left and self.queue is None:
            with contextlib.suppress(WALLockedError):
                queue = await self.open()
                if queue is not None:
                    await sender.attach(queue)
                    left = await sender.save()
        if left:
            self._log.error(
                "%d batches are in memory only, and end with this process: the disk refused them",
                left,
            )

    async def close(self) -> None:
        """Close the queue, if it is open."""
        if self.queue is not None:
            await in_thread(self.queue.close)
