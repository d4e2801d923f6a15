"""The queue and its dead letters in memory: what every one-process outbox is made of.

Nothing here waits or touches a disk; times come in as arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

import attrs

from ahcollector._fences import is_fence
from ahcollector.errors import FencedOutboxError, OutboxError
from ahcollector.outbox.base import DeadLetter, OutboxEntry, OutboxStats
from ahwire import Event
from ahwire.limits import MAX_HUB_BYTES

__all__ = [
    "DeadLetters",
    "FenceGuard",
    "OutboxBounds",
    "Queue",
    "entry_of",
    "full_of",
    "full_text",
    "letter_of",
    "stats_of",
]

_RECENT_IDS_MAX: Final = 1_000
_PAGE_BYTES_MAX: Final = MAX_HUB_BYTES // 2


@attrs.frozen(kw_only=True)
class OutboxBounds:
    """How large an outbox may grow.

    Attributes:
        events_max: Events in the queue; more are refused, so that their source keeps them.
        events_bytes_max: Bytes of these; more are refused too.
        dead_max: Dead letters; the oldest go.
        dead_bytes_max: Bytes of their bodies; the oldest go.
        dead_retention_seconds: Age of dead letters.
    """

    events_max: int = 1_000_000
    events_bytes_max: int = 512 * 1024 * 1024
    dead_max: int = 100_000
    dead_bytes_max: int = 64 * 1024 * 1024
    dead_retention_seconds: float = 30 * 86_400.0


class FenceGuard:
    """Refuses fences older than the newest seen, and what is no fence."""

    def __init__(self) -> None:
        self._newest = 0

    def check(self, fence: int | None) -> None:
        """Take note of a fence. Raises FencedOutboxError when it is an old one."""
        if fence is None:
            return
        if not is_fence(fence) or fence < self._newest:
            raise FencedOutboxError(fence=fence, newest=self._newest)
        self._newest = fence


class Queue:
    """Events in order of their append, and the ids that left a short while ago."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, OutboxEntry] = OrderedDict()
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._sizes: dict[str, int] = {}
        # What `fitting` found of entries that may be added next: to write them out takes a while.
        self._found: dict[str, int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[OutboxEntry]:
        return iter(self._entries.values())

    def new(self, events: Iterable[Event], now: float) -> list[OutboxEntry]:
        """Return entries for those events that the queue neither holds nor knows as delivered."""
        entries = {
            event.event_id: OutboxEntry(event=event, enqueued_at=now)
            for event in events
            if event.event_id not in self._entries and event.event_id not in self._recent
        }
        return list(entries.values())

    def add(self, entries: Iterable[OutboxEntry]) -> None:
        """Put entries at the end."""
        for entry in entries:
            event_id = entry.event.event_id
            if event_id not in self._entries:
                found = self._found.get(event_id)
                self._entries[event_id] = entry
                self._sizes[event_id] = _size_of(entry) if found is None else found
                self.bytes += self._sizes[event_id]
        self._found = {}

    def fitting(self, entries: Sequence[OutboxEntry], bounds: OutboxBounds) -> int:
        """Return how many of these entries, from the first on, there is room for."""
        size, self._found = self.bytes, {}
        for number, entry in enumerate(entries):
            found = self._found[entry.event.event_id] = _size_of(entry)
            size += found
            if len(self._entries) + number >= bounds.events_max or size > bounds.events_bytes_max:
                return number
        return len(entries)

    def first(self, limit: int) -> list[OutboxEntry]:
        """Return the oldest entries, no more than a request to the hub has room for."""
        result: list[OutboxEntry] = []
        size = 0
        for event_id, entry in self._entries.items():
            size += self._sizes[event_id]
            if len(result) >= limit or (result and size > _PAGE_BYTES_MAX):
                break
            result.append(entry)
        return result

    def held(self, event_ids: Iterable[str]) -> list[OutboxEntry]:
        """Return the entries of those ids that are in the queue, each once."""
        ids = dict.fromkeys(event_ids)
        return [self._entries[event_id] for event_id in ids if event_id in self._entries]

    def before(self, cutoff: float) -> list[OutboxEntry]:
        """Return the entries at the head of the queue that were appended before `cutoff`."""
        return list(takewhile(lambda entry: entry.enqueued_at < cutoff, self._entries.values()))

    def take(self, event_ids: Iterable[str]) -> None:
        """Remove entries; the ids are no more remembered."""
        for event_id in event_ids:
            self._remove(event_id)

    def delivered(self, event_ids: Iterable[str]) -> None:
        """Remove entries and remember their ids, so that a late repeat is not sent again."""
        for event_id in event_ids:
            self._remove(event_id)
            self._recent[event_id] = None
        while len(self._recent) > _RECENT_IDS_MAX:
            self._recent.popitem(last=False)

    def _remove(self, event_id: str) -> None:
        self._entries.pop(event_id, None)
        self.bytes -= self._sizes.pop(event_id, 0)

    @property
    def recent_ids(self) -> list[str]:
        """The ids that left a short while ago."""
        return list(self._recent)

    @property
    def oldest_at(self) -> float | None:
        """When the oldest entry was appended."""
        return next((entry.enqueued_at for entry in self._entries.values()), None)


class DeadLetters:
    """Dead letters in order of their death, within bounds."""

    def __init__(self, bounds: OutboxBounds) -> None:
        self._bounds = bounds
        self._letters: OrderedDict[str, DeadLetter] = OrderedDict()
        self.bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(self._letters.values())

    def without(self, events: Iterable[Event]) -> list[Event]:
        """Return those events that are no dead letters."""
        return [event for event in events if event.event_id not in self._letters]

    def put(self, letter: DeadLetter) -> None:
        """Add a letter behind the others; one of the same id is replaced."""
        self.take([letter.letter_id])
        self._letters[letter.letter_id] = letter
        self.bytes += len(letter.body)

    def take(self, letter_ids: Iterable[str]) -> None:
        """Remove letters."""
        for letter_id in letter_ids:
            letter = self._letters.pop(letter_id, None)
            if letter is not None:
                self.bytes -= len(letter.body)

    def chosen(self, letter_ids: Collection[str] | None) -> list[DeadLetter]:
        """Return the letters of these ids, all for None, oldest first."""
        if letter_ids is None:
            return list(self._letters.values())
        wanted = set(letter_ids)
        return [letter for letter in self._letters.values() if letter.letter_id in wanted]

    def page(self, after: str, limit: int) -> list[DeadLetter]:
        """Return the letters behind the one with the id `after`; from the oldest if it is gone."""
        letters = list(self._letters.values())
        begin = 0
        if after in self._letters:
            begin = 1 + next(i for i, letter in enumerate(letters) if letter.letter_id == after)
        return letters[begin : begin + limit]

    def overflow(self, now: float) -> list[str]:
        """Return the ids that the bounds push out now, oldest first."""
        count, size = len(self._letters), self.bytes
        result: list[str] = []
        for letter in self._letters.values():
            if (
                count <= self._bounds.dead_max
                and size <= self._bounds.dead_bytes_max
                and letter.dead_at >= now - self._bounds.dead_retention_seconds
            ):
                break
            result.append(letter.letter_id)
            count -= 1
            size -= len(letter.body)
        return result


def full_text(depth: int, size: int, bounds: OutboxBounds) -> str:
    """Return what the error of a full outbox says."""
    return (
        f"the outbox holds {depth} events of {size} bytes, and its bounds are {bounds.events_max} "
        f"events and {bounds.events_bytes_max} bytes: the hub has not taken any for long; events "
        "wait at their source until it does"
    )


def full_of(queue: Queue, bounds: OutboxBounds) -> OutboxError:
    """Return the error of a full outbox."""
    return OutboxError(full_text(len(queue), queue.bytes, bounds))


def _size_of(entry: OutboxEntry) -> int:
    return len(entry.event.to_json())


def letter_of(entry: OutboxEntry, reason: str, now: float) -> DeadLetter:
    """Return the dead letter of an entry."""
    return DeadLetter(
        letter_id=entry.event.event_id,
        body=entry.event.to_json(),
        reason=reason,
        enqueued_at=entry.enqueued_at,
        dead_at=now,
        replayable=True,
    )


def entry_of(letter: DeadLetter, now: float) -> OutboxEntry:
    """Return the entry that a replayable letter goes back as."""
    return OutboxEntry(event=Event.from_json(letter.body), enqueued_at=now)


def stats_of(queue: Queue, letters: DeadLetters, now: float, *, damaged_lines: int) -> OutboxStats:
    """Return the state of an outbox that is made of these."""
    oldest_at = queue.oldest_at
    return OutboxStats(
        depth=len(queue),
        oldest_age_seconds=0.0 if oldest_at is None else max(0.0, now - oldest_at),
        dead=len(letters),
        dead_bytes=letters.bytes,
        dead_dropped=letters.dropped,
        damaged_lines=damaged_lines,
    )
