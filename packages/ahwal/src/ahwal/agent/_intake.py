"""The agent's second way in: samples that other threads hand in, beside the collectors.

Law of this file: samples that are taken are in the sender's books before the call returns, and
none are taken once the agent has begun to close its queue.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable

from ahwal._sample import Sample
from ahwal._threads import CallSoon, call_soon_of_this_loop
from ahwal.sender import DeliveryState, Enqueued, Sender
from ahwal.sender._sendable import as_list

FLUSH_POLL_SECONDS = 0.05


class Intake:
    """Takes samples from any thread while the agent runs.

    Args:
        logger: The agent's logger.
    """

    def __init__(self, *, logger: logging.Logger) -> None:
        self._log = logger
        self._sender: Sender | None = None
        self._wake_in_loop: Callable[[], None] | None = None
        self._call_soon: CallSoon | None = None
        self._closed = False
        self._pid = 0
        # Set once it is known whether samples are taken: by `open` or by `close`.
        self._settled = threading.Event()
        # Held during an append, so that the queue is not closed in the middle of one.
        self._lock = threading.Lock()
        self._warned = False

    def start(self) -> None:
        """Belong to this process from now on."""
        self._pid = os.getpid()

    def open(self, sender: Sender, wake: Callable[[], None]) -> None:
        """Take samples from now on; called in the agent's loop.

        Args:
            sender: Where they go.
            wake: Called in the loop after each append; makes the agent send soon.
        """
        self._sender, self._wake_in_loop = sender, wake
        self._call_soon = call_soon_of_this_loop()
        self._settled.set()

    def in_child(self) -> bool:
        """Whether this is a child made by `fork` while the agent ran: there it has no thread."""
        return self._pid not in (0, os.getpid())

    def close(self) -> None:
        """Take no more samples; one append may still be under way, see `drain`."""
        self._closed = True
        self._settled.set()

    def drain(self) -> None:
        """Wait for the append under way, if there is one. Blocking."""
        with self._lock:
            return

    def enqueue(
        self, samples: Iterable[Sample], *, collected_at_ms: int | None, timeout_seconds: float
    ) -> Enqueued:
        """Put samples into the agent's queue; see `Agent.enqueue`."""
        deadline = time.monotonic() + timeout_seconds
        # Outside the lock: the host's own code gives them.
        given = as_list(samples)
        sender = self._ready(timeout_seconds)
        if sender is None:
            return self._refused("it does not run")
        if sender.state is DeliveryState.AGENT_REVOKED:
            return self._refused("the collector revoked it")
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return self._refused("the disk is still busy with earlier samples")
        try:
            if self._closed:
                return self._refused("it has ended")
            enqueued = sender.append(given, collected_at_ms=collected_at_ms)
        finally:
            self._lock.release()
        self._warned = False
        self._wake()
        return enqueued

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until nothing is queued; see `Agent.flush`."""
        deadline = time.monotonic() + timeout_seconds
        sender = self._ready(timeout_seconds)
        if sender is None:
            return False
        while sender.status().queued_batches:
            left = deadline - time.monotonic()
            if left <= 0 or self._closed or sender.due_in_seconds() is None:
                return False
            self._wake()
            time.sleep(min(FLUSH_POLL_SECONDS, left))
        return True

    def _ready(self, timeout_seconds: float) -> Sender | None:
        """Return the sender once the agent has started; None when it does not run."""
        if not self._settled.is_set():
            self._settled.wait(timeout_seconds)
        # In a forked child there is no thread of the agent, and its queue is the parent's.
        return None if self._closed or self.in_child() else self._sender

    def _wake(self) -> None:
        if self._call_soon is not None and self._wake_in_loop is not None:
            # When the loop ends in this very moment, the samples are for the next agent.
            self._call_soon(self._wake_in_loop)

    def _refused(self, cause: str) -> Enqueued:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        self._log.log(level, "the agent did not take samples handed to it: %s", cause)
        return Enqueued(points=0, on_disk=False, dropped={})
