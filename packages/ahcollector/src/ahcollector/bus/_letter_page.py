"""Dead letters as they are read, and a page of them, bounded by what it holds, too."""

from __future__ import annotations

import math
import re
from typing import Final

from ahcollector.bus._entries import decode
from ahcollector.bus.base import SHARDS, BusDeadLetter, SampleBatch
from ahcollector.errors import BusError

__all__ = ["PAGE_BYTES", "LetterPage", "letter_of"]

PAGE_BYTES: Final = 4 << 20
"""A page ends with the letter at which its entries have so many bytes, as they are kept."""

_PAGE_SAMPLES: Final = 100_000
_SHARD: Final = re.compile(r"[0-9]{1,2}", re.ASCII)


class LetterPage:
    """Takes letters until there are enough.

    Entries are compressed, so a page also ends with the letter at which it has 100,000 samples.

    Args:
        limit: How many letters are enough.
    """

    def __init__(self, *, limit: int) -> None:
        self.letters: list[BusDeadLetter] = []
        self._limit = limit
        self._bytes = 0
        self._samples = 0

    def is_full(self) -> bool:
        """Whether there are enough."""
        return (
            len(self.letters) >= self._limit
            or self._bytes >= PAGE_BYTES
            or self._samples >= _PAGE_SAMPLES
        )

    def add(self, letter: BusDeadLetter, *, entry_bytes: int) -> None:
        """Take a letter whose entry has so many bytes."""
        self.letters.append(letter)
        self._bytes += entry_bytes
        if letter.batch is not None:
            self._samples += letter.batch.samples


def letter_of(letter_id: str, entry: bytes, *, shard: str, reason: str, at: str) -> BusDeadLetter:
    """Return a letter of what a backend keeps; what is unreadable of it is None, or 0."""
    batch: SampleBatch | None
    try:
        batch = decode(entry)
    except BusError:
        batch = None
    return BusDeadLetter(
        letter_id=letter_id,
        batch=batch,
        shard=int(shard) if _SHARD.fullmatch(shard) and int(shard) < SHARDS else None,
        reason=reason,
        dead_at=_seconds(at),
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
