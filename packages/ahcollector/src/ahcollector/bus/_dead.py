"""The dead letters of the in-process bus: bounded by their number, gone with the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from itertools import islice

from ahcollector.bus.base import BusDeadLetter, SampleBatch
from ahcollector.errors import BusFull

__all__ = ["MemoryBusDeadLetters"]


class MemoryBusDeadLetters:
    """`BusDeadLetters` in memory.

    Args:
        publish: Puts a batch on the bus again.
        letters_max: How many are kept; the oldest go.

    Attributes:
        total: How many were put since the process began.
    """

    def __init__(
        self, *, publish: Callable[[SampleBatch], Awaitable[None]], letters_max: int
    ) -> None:
        self._publish = publish
        self._letters_max = letters_max
        self._letters: OrderedDict[int, BusDeadLetter] = OrderedDict()
        self.total = 0

    def put(self, batch: SampleBatch, shard: int, reason: str, now: float) -> None:
        """Keep an entry that no handler could take."""
        self.total += 1
        self._letters[self.total] = BusDeadLetter(
            letter_id=str(self.total), batch=batch, shard=shard, reason=reason, dead_at=now
        )
        if len(self._letters) > self._letters_max:
            self._letters.popitem(last=False)

    async def letters(self, *, after: str = "", limit: int = 100) -> list[BusDeadLetter]:
        """Return a page. An `after` that names no letter of this bus is the beginning."""
        behind = _number(after) or 0
        found = (letter for number, letter in self._letters.items() if number > behind)
        return list(islice(found, limit))

    async def replay(self, letter_ids: Collection[str] | None) -> int:
        """Publish letters again as far as there is room.

        Raises:
            BusError: There is no room for the first of them, or the bus is closed.
        """
        replayed = 0
        for number, letter in self._chosen(letter_ids):
            assert letter.batch is not None, "what is handed over in a process was never bytes"
            try:
                await self._publish(letter.batch)
            except BusFull:
                if not replayed:
                    raise
                break
            self._letters.pop(number, None)
            replayed += 1
        return replayed

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters."""
        chosen = self._chosen(letter_ids)
        for number, _ in chosen:
            del self._letters[number]
        return len(chosen)

    async def count(self) -> int:
        """Return how many there are."""
        return len(self._letters)

    def _chosen(self, letter_ids: Collection[str] | None) -> list[tuple[int, BusDeadLetter]]:
        if letter_ids is None:
            return list(self._letters.items())
        numbers = sorted({number for one in letter_ids if (number := _number(one)) is not None})
        return [(number, self._letters[number]) for number in numbers if number in self._letters]


def _number(letter_id: str) -> int | None:
    plain = letter_id.isascii() and letter_id.isdigit() and len(letter_id) < 20
    return int(letter_id) if plain and str(int(letter_id)) == letter_id else None
