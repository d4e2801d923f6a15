"""The agent's second half: from the queue to the collector, beside collecting."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from ahwal.agent._waiting import wait_for
from ahwal.clock import AsyncClock
from ahwal.sender import DeliveryState, Sender
from ahwire import Rng

# What an earlier process left is sent within so many seconds of the start, and not in the very
# moment in which a whole fleet may have been started.
START_JITTER_SECONDS = 2.0


class DeliveryLoop:
    """Ticks the sender when there is something new, and when a backoff is over.

    What is queued when it begins is sent within `START_JITTER_SECONDS`.

    Args:
        sender: What it ticks.
        clock: Measures the pauses.
        rng: Chooses the moment of the first tick.
        on_step: Called after each step that did not end in a revocation.
        on_revoked: Called when the agent was revoked.
        logger: The agent's logger.
    """

    def __init__(
        self,
        *,
        sender: Sender,
        clock: AsyncClock,
        rng: Rng,
        on_step: Callable[[], None],
        on_revoked: Callable[[], None],
        logger: logging.Logger,
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._rng = rng
        self._on_step = on_step
        self._on_revoked = on_revoked
        self._log = logger
        self._wake = anyio.Event()
        self._stopping = False
        self._revoked = False
        # Whether the last step was allowed to send and had nothing to: an empty queue, or one that
        # cannot be read now.
        self._idle = False

    def wake(self) -> None:
        """Tick soon: there is something new in the queue."""
        self._wake.set()

    def stop(self) -> None:
        """Send what is queued and then return from `run`."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Send until `stop`, then what is left, as far as the collector takes it."""
        pause = self._first_pause_seconds()
        while not self._stopping:
            await wait_for(self._clock, self._wake, pause)
            self._wake = anyio.Event()
            await self._supervised(self._step)
            pause = self._pause_seconds()
        await self._supervised(self._flush)

    async def _supervised(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception:  # noqa: BLE001 - see below
            # The one supervisor of this loop: a mistake of ours in one step must not end delivery
            # for the life of the host program. The queue still has the batch.
            self._log.exception("a delivery step failed")

    def _first_pause_seconds(self) -> float | None:
        if not self._sender.status().queued_batches:
            return None
        return self._rng.uniform(0.0, START_JITTER_SECONDS)

    def _pause_seconds(self) -> float | None:
        """Return how long to wait for a new batch; None means for ever."""
        if self._sender.state not in (DeliveryState.BACKOFF, DeliveryState.UNAUTHORIZED):
            return None
        pause = self._sender.due_in_seconds()
        # Else this loop would spin until the queue has something to send again.
        return None if self._idle and pause == 0 else pause

    async def _step(self) -> None:
        if self._revoked:
            return
        due = self._sender.due_in_seconds() == 0
        before = self._sender.status().requests
        await self._sender.tick()
        self._idle = due and self._sender.status().requests == before
        if self._sender.state is DeliveryState.AGENT_REVOKED:
            self._revoked = True
            self._on_revoked()
        else:
            self._on_step()

    async def _flush(self) -> None:
        while self._sender.status().queued_batches:
            before = self._sender.status().requests
            await self._sender.tick()
            if (
                self._sender.status().requests == before
                or self._sender.state is not DeliveryState.OK
            ):
                return
