"""The outbox of one process: gone with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ahcollector.outbox._queue import (
    DeadLetters,
    FenceGuard,
    OutboxBounds,
    Queue,
    entry_of,
    full_of,
    letter_of,
    stats_of,
)
from ahcollector.outbox.base import (
    REASON_EXPIRED,
    DeadLetter,
    OutboxEntry,
    OutboxStats,
)
from ahwire import Event

__all__ = ["MemoryOutbox"]


class MemoryOutbox:
    """`Outbox` in memory, for tests and where losing events with the process is accepted."""

    def __init__(self, *, bounds: OutboxBounds | None = None) -> None:
        self._bounds = bounds if bounds is not None else OutboxBounds()
        self._queue = Queue()
        self._letters = DeadLetters(self._bounds)
        self._fences = FenceGuard()

    async def append(self, events: Sequence[Event], now: float) -> int:
        """Add events."""
        entries = self._queue.new(self._letters.without(events), now)
        if self._queue.fitting(entries, self._bounds) < len(entries):
            raise full_of(self._queue, self._bounds)
        self._queue.add(entries)
        return len(entries)

    async def peek(self, limit: int) -> list[OutboxEntry]:
        """Return the oldest entries."""
        return self._queue.first(limit)

    async def ack(self, event_ids: Collection[str], fence: int | None) -> int:
        """Forget delivered events."""
        self._fences.check(fence)
        held = self._queue.held(event_ids)
        self._queue.delivered(entry.event.event_id for entry in held)
        return len(held)

    async def dead(
        self, event_ids: Collection[str], reason: str, now: float, fence: int | None
    ) -> int:
        """Set events aside."""
        self._fences.check(fence)
        return self._bury(self._queue.held(event_ids), reason, now)

    async def expire(self, cutoff: float, now: float) -> int:
        """Set old events aside."""
        return self._bury(self._queue.before(cutoff), REASON_EXPIRED, now)

    def _bury(self, entries: list[OutboxEntry], reason: str, now: float) -> int:
        self._queue.take(entry.event.event_id for entry in entries)
        for entry in entries:
            self._letters.put(letter_of(entry, reason, now))
        overflow = self._letters.overflow(now)
        self._letters.take(overflow)
        self._letters.dropped += len(overflow)
        return len(entries)

    async def stats(self, now: float) -> OutboxStats:
        """Return the state."""
        return stats_of(self._queue, self._letters, now, damaged_lines=0)

    async def dead_letters(self, *, after: str = "", limit: int = 500) -> list[DeadLetter]:
        """Return a page of dead letters."""
        return self._letters.page(after, limit)

    async def replay(self, letter_ids: Collection[str] | None, now: float) -> int:
        """Put dead letters back."""
        letters = [letter for letter in self._letters.chosen(letter_ids) if letter.replayable]
        entries = [entry_of(letter, now) for letter in letters]
        room = self._queue.fitting(entries, self._bounds)
        if letters and not room:
            raise full_of(self._queue, self._bounds)
        self._queue.add(entries[:room])
        self._letters.take(letter.letter_id for letter in letters[:room])
        return room

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete dead letters."""
        letters = self._letters.chosen(letter_ids)
        self._letters.take(letter.letter_id for letter in letters)
        return len(letters)

    async def ping(self) -> None:
        """Memory is there."""
