"""A page of dead letters, bounded by what it holds and not only by their number."""

from __future__ import annotations

from typing import Final

from ahcollector.bus.base import BusDeadLetter

__all__ = ["PAGE_BYTES", "LetterPage"]

PAGE_BYTES: Final = 4 << 20
"""A page ends with the letter at which its entries have so many bytes, as they are kept."""

_PAGE_SAMPLES: Final = 100_000


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
