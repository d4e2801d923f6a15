"""Batches that the store refused for good, kept within bounds until an operator replays them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

import attrs

from ahcollector.bus.base import SampleBatch
from ahcollector.errors import BusFull

__all__ = [
    "NEWEST_ID",
    "DeadBatch",
    "DeadBatches",
    "canonical_ids",
    "first_id",
    "id_behind",
    "replay_dead_batches",
]

_PAGE: Final = 100
_ID_DIGITS_MAX: Final = 16

NEWEST_ID: Final = 1 << 53
"""No id is larger: up to here a float holds every whole number."""


@attrs.frozen(kw_only=True)
class DeadBatch:
    """What names one refused batch; `DeadBatches.read` returns its samples.

    Attributes:
        letter_id: Names it among the dead batches; a whole number, the newest has the largest.
        company_id: Whose it is.
        server_id: The server it is of.
        agent_id: Who sent it.
        request_id: The id that the agent, the logs and the bus know the request by.
        received_at_ms: Receipt time of the batch, Unix milliseconds.
        samples: How many samples it has.
        reason: What the store said.
        dead_at: Unix seconds.
        size_bytes: What it counts for in the bound of bytes.
    """

    letter_id: str
    company_id: str
    server_id: str
    agent_id: str
    request_id: str
    received_at_ms: int
    samples: int
    reason: str
    dead_at: float
    size_bytes: int


class DeadBatches(Protocol):
    """Where refused batches go. Bounded by count, bytes and age; the oldest go first, counted.

    Every method may raise `DeadBatchesError` when what keeps them cannot be read or written; what
    was asked for may or may not have been done, and every method may be repeated.

    What is found damaged is neither returned nor deleted: it is set aside, counted and logged.
    """

    @property
    def total(self) -> int:
        """How many were put by this process."""
        ...

    @property
    def dropped(self) -> int:
        """How many the bounds pushed out in puts of this process."""
        ...

    @property
    def damaged(self) -> int:
        """How many this process found damaged and set aside."""
        ...

    async def put(self, batch: SampleBatch, reason: str, now: float) -> None:
        """Keep a batch; on return it is as durable as the implementation can make it.

        The same batch again is one letter, with a new id and the new reason, behind all others. So
        a put may be repeated when its outcome is unknown, and one that comes while the same batch
        is replayed is not removed with the letter that was there before.

        A batch that is larger than the bound of bytes is dropped, counted and logged.

        Args:
            batch: What was refused.
            reason: Why.
            now: Unix seconds.
        """
        ...

    async def letters(self, *, after: str = "", limit: int = 100) -> list[DeadBatch]:
        """Return letters, oldest first, those behind the letter `after`; one page.

        A letter that is gone stands where it stood: what is behind it is returned. An `after` that
        is no id is the beginning. A page shorter than `limit` is the last.
        """
        ...

    async def read(self, letter_id: str) -> SampleBatch | None:
        """Return the batch of a letter; None: it is gone, or was damaged."""
        ...

    async def purge(self, letter_ids: Collection[str] | None) -> int:
        """Delete letters for good (None: all that are there now), and return how many."""
        ...

    async def count(self) -> int:
        """Return how many there are."""
        ...


async def replay_dead_batches(
    dead_batches: DeadBatches,
    publish: Callable[[SampleBatch], Awaitable[None]],
    letter_ids: Collection[str] | None = None,
) -> int:
    """Publish refused batches again, oldest first, and return how many.

    One batch is in memory at a time. It leaves the dead batches when `publish` has returned; a
    crash, an error or a cancellation in between publishes it twice, which changes nothing in a
    store. What is put meanwhile stays. It ends early where the bus has no room.

    Args:
        dead_batches: Where they are.
        publish: Puts a batch on the bus: `Bus.publish`.
        letter_ids: Which; None: all that are there now.

    Raises:
        BusFull: There is no room for the first of them.
        BusError: The bus is closed, or gave no answer: what was published before is replayed.
        DeadBatchesError: They cannot be read, or one was published and cannot be removed.
    """
    named = None if letter_ids is None else canonical_ids(letter_ids)
    # What a worker puts meanwhile comes behind: without a number, a batch that is refused each
    # time would be replayed for ever.
    left = await dead_batches.count() if named is None else len(named)
    replayed, after = 0, ""
    while left > 0:
        if named is None:
            page = await dead_batches.letters(after=after, limit=min(left, _PAGE))
            chosen = [letter.letter_id for letter in page]
        else:
            chosen = named
        for after in chosen:
            try:
                replayed += await _replay(dead_batches, publish, after)
            except BusFull:
                if not replayed:
                    raise
                return replayed
        left -= len(chosen) or left
    return replayed


async def _replay(
    dead_batches: DeadBatches, publish: Callable[[SampleBatch], Awaitable[None]], letter_id: str
) -> bool:
    batch = await dead_batches.read(letter_id)
    if batch is None:
        return False
    await publish(batch)
    await dead_batches.purge([letter_id])
    return True


def canonical_ids(letter_ids: Collection[str]) -> list[str]:
    """Return those that may be ids, each once, oldest first."""
    numbers = {int(one) for one in letter_ids if _is_number(one) and len(one) <= _ID_DIGITS_MAX}
    return sorted({str(number) for number in numbers}.intersection(letter_ids), key=int)


def id_behind(after: str) -> int:
    """Return the number behind which a page begins."""
    if not _is_number(after):
        return 0
    return int(after) if len(after) <= _ID_DIGITS_MAX else NEWEST_ID


def first_id(now: float) -> int:
    """Return the least id of a letter that is put at `now`, which no earlier life has used."""
    # A clock that is ages ahead must leave ids for those that come after it is set right.
    return min(round(now * 1000), NEWEST_ID // 2)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
