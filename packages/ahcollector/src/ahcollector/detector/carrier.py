"""From the intents of presence to the outbox: the protocol, and the way with nothing in between."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs

from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.detector._events import event_of
from ahcollector.detector._told import count, tell
from ahcollector.errors import OutboxError
from ahcollector.metrics import Metrics
from ahcollector.outbox.base import Outbox
from ahcollector.presence.base import Presence, Transition

__all__ = ["PAGE", "Carried", "Fetch", "IntentCarrier", "PlainCarrier"]

_log = logging.getLogger("ahcollector.detector")

PAGE: Final = 500
"""Intents that are worked on at once."""

Fetch = Callable[[int], Awaitable[list[Transition]]]
"""Gives at most so many intents, the oldest first."""


@attrs.frozen(kw_only=True)
class Carried:
    """What came of it.

    Attributes:
        emitted: Transitions whose event is in the outbox and whose intent is confirmed.
        complete: Nothing was left for the next scan.
        waiting: Events decided besides transitions, and not in the outbox yet.
    """

    emitted: int
    complete: bool
    waiting: int = 0


class IntentCarrier(Protocol):
    """Takes intents, and confirms each when its event is durable."""

    @property
    def takes_turns(self) -> bool:
        """Whether its turn may come and go; then `is_mine` is asked twice a second."""
        ...

    async def is_mine(self) -> bool:
        """Whether it is this process' turn to carry; False: another's."""
        ...

    async def carry(self, fetch: Fetch, now: float) -> Carried:
        """Carry intents until there are no more, or until something fails, which is logged.

        Raises:
            PresenceError: Presence gives no answer.
        """
        ...

    async def drop(self) -> None:
        """Let another have the turn."""
        ...


class PlainCarrier:
    """Puts each transition in the outbox as it is. Any number of processes may do so at once.

    Args:
        presence: Whose intents they are.
        outbox: Where events go.
        clock: Paces the log.
        metrics: Where to count.
    """

    def __init__(
        self, *, presence: Presence, outbox: Outbox, clock: AsyncClock, metrics: Metrics
    ) -> None:
        self._presence = presence
        self._outbox = outbox
        self._clock = clock
        self._metrics = metrics
        self._waiting = Trouble(_log, "events wait for the outbox", "the outbox takes events again")

    @property
    def takes_turns(self) -> bool:
        """Return False."""
        return False

    async def is_mine(self) -> bool:
        """Return True: presence shares the work out."""
        return True

    async def carry(self, fetch: Fetch, now: float) -> Carried:
        """Carry intents page by page."""
        emitted = 0
        while True:
            page = await fetch(PAGE)
            if not await self._emit(page, now):
                return Carried(emitted=emitted, complete=False)
            emitted += len(page)
            if len(page) < PAGE:
                return Carried(emitted=emitted, complete=True)

    async def _emit(self, page: list[Transition], now: float) -> bool:
        """Append a page's events, then confirm its intents; False when the outbox fails."""
        if not page:
            return True
        events = [event_of(transition) for transition in page]
        try:
            await self._outbox.append(events, now)
        except OutboxError as error:
            self._waiting.goes_on(
                self._clock.monotonic(), {"events": len(events), "error": str(error)}
            )
            return False
        self._waiting.is_over()
        count(self._metrics, events)
        await self._presence.confirm_all(page)
        for transition in page:
            tell(transition)
        return True

    async def drop(self) -> None:
        """Do nothing."""
