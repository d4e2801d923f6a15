"""Events until the hub has them: the protocol.

The law that every implementation keeps:

* The queue is bounded by count and bytes: what does not fit is refused, and its source keeps it.
  Its age is bounded by whoever calls `expire`.
* `append` returns only when the events are as durable as the implementation can make them; an event
  whose id it holds, or handed over a short while ago, is ignored. So whoever appends may repeat it.
* `peek` gives the order of `append`. An event leaves the queue by `ack`, or becomes a dead letter
  by `dead` or `expire`; a dead letter leaves by `replay`, `purge`, or because the bounds of the
  dead letters (count, bytes, age) push out the oldest, which is counted.
* An event that cannot be read any more becomes a dead letter and never stands in the way of others.
* A `fence` is the fencing token of the sender's lease. Once a newer one was seen, `ack` and `dead`
  with an older one are refused and change nothing. None means that there is no lease to lose.

All instants are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

import attrs

from ahwire import Event

__all__ = [
    "REASON_EXPIRED",
    "REASON_REFUSED",
    "REASON_REJECTED",
    "REASON_UNREADABLE",
    "DeadLetter",
    "Outbox",
    "OutboxEntry",
    "OutboxStats",
    "SenderLease",
    "reason_kind",
]

REASON_EXPIRED: Final = "expired"
"""The hub did not take the event within the retention."""
REASON_REFUSED: Final = "refused"
"""The hub refuses the request that carries the event (4xx)."""
REASON_REJECTED: Final = "rejected"
"""The hub read the event and rejected it."""
REASON_UNREADABLE: Final = "unreadable"
"""What was kept is no event any more."""


def reason_kind(reason: str) -> str:
    """Return the word of a reason; what follows a colon is detail."""
    return reason.partition(":")[0]


@attrs.frozen(kw_only=True)
class OutboxEntry:
    """An event in the queue, and when it was appended.

    Attributes:
        event: The event.
        enqueued_at: Unix seconds.
    """

    event: Event
    enqueued_at: float


@attrs.frozen(kw_only=True)
class DeadLetter:
    """An event that was not delivered.

    Attributes:
        letter_id: The event's id; for an unreadable one the id it was kept under, or where there
            is none one made from its bytes.
        body: The event's canonical JSON, or whatever there was in its place.
        reason: One of the ``REASON_`` words, with detail after a colon.
        enqueued_at: When it was appended; None when that is unknown.
        dead_at: When it became a dead letter.
        replayable: False when `body` is no event.
    """

    letter_id: str
    body: bytes
    reason: str
    enqueued_at: float | None
    dead_at: float
    replayable: bool


@attrs.frozen(kw_only=True)
class OutboxStats:
    """The state of an outbox.

    Attributes:
        depth: Events the hub has not yet taken.
        oldest_age_seconds: Age of the oldest of them; 0.0 when there is none.
        dead: Dead letters held.
        dead_bytes: Size of their bodies.
        dead_dropped: Dead letters pushed out by the bounds since the outbox was opened; of an
            outbox that processes share, by all of them since it was first used.
        damaged_lines: Pieces of stored data that could not be read and were kept aside, or of which
            only the id was left, over the same time; always 0 where nothing is stored.
    """

    depth: int
    oldest_age_seconds: float
    dead: int
    dead_bytes: int
    dead_dropped: int
    damaged_lines: int


class Outbox(Protocol):
    """Keeps events until the hub has them.

    Every method may raise `OutboxError` when the store behind it fails; what was asked for may or
    may not have been done, and every method may be repeated.
    """

    async def append(self, events: Sequence[Event], now: float) -> int:
        """Make events durable; return how many were new.

        Raises:
            OutboxError: Also when the outbox is full: the caller keeps its events and tries again.
        """
        ...

    async def peek(self, limit: int) -> list[OutboxEntry]:
        """Return the oldest entries, at most `limit`, and fewer where they are large.

        It takes nothing away but what is damaged; an empty list means that nothing waits.
        """
        ...

    async def ack(self, event_ids: Collection[str], fence: int | None) -> int:
        """Forget events that the hub took; return how many of them were in the queue.

        Raises:
            FencedOutboxError: A newer fence was seen.
        """
        ...

    async def dead(
        self, event_ids: Collection[str], reason: str, now: float, fence: int | None
    ) -> int:
        """Make events dead letters; return how many of them were in the queue.

        Raises:
            FencedOutboxError: A newer fence was seen.
        """
        ...

    async def expire(self, cutoff: float, now: float) -> int:
        """Make dead letters of what was appended before `cutoff`; return how many.

        Also drops dead letters that are older than their retention.
        """
        ...

    async def stats(self, now: float) -> OutboxStats:
        """Return the state."""
        ...

    async def dead_letters(self, *, after: str = "", limit: int = 500) -> list[DeadLetter]:
        """Return dead letters, oldest first, those behind the letter `after`; one page."""
        ...

    async def replay(self, letter_ids: Collection[str] | None, now: float) -> int:
        """Put dead letters back at the end of the queue, as if appended now; None means all.

        Returns how many went back: the oldest first, as far as there is room; those not replayable
        stay.

        Raises:
            OutboxError: Also when there is no room for the first of them.
        """
        ...

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete dead letters for good, None means all; return how many."""
        ...

    async def ping(self) -> None:
        """Return when events can be kept now; cheap enough for a probe."""
        ...


class SenderLease(Protocol):
    """Who may send now. A sender without one is alone by other means (one process, one lock)."""

    async def hold(self) -> int | None:
        """Take or renew the lease; return its fencing token, None when another holds it.

        Cheap enough to be called before each request.

        Raises:
            OutboxError: Nobody can say now who holds it.
        """
        ...

    async def drop(self, newest: int | None) -> None:
        """Give the lease up, after a refusal too; the next token must be above `newest`.

        Raises:
            OutboxError: Others were not told; it is given up here, and ends there by itself.
        """
        ...
