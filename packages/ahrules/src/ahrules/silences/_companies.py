"""One company's silences, by position: bit n of a mask is the silence at position n of `all`.

Law: which silences match an event hangs on the event alone, and which of them hold on the time
alone. So the first is asked once an event, the second once a silence, and the two meet as masks.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Self

from attrs import evolve, field, frozen

from ahrules.silences._compiled import Compiled
from ahrules.silences._index import SilenceIndex
from ahrules.silences._matching import EventFields


@frozen
class Company:
    """The silences of a company; those are looked at of which an event has what they ask for.

    Attributes:
        all: The silences, in the order of their ids.
    """

    all: tuple[Compiled, ...] = ()
    _index: SilenceIndex = field(factory=SilenceIndex, alias="index")

    @classmethod
    def of(cls, silences: Iterable[Compiled]) -> Self:
        """Return the company that has these silences."""
        every = tuple(sorted(silences, key=lambda each: each.silence.silence_id))
        return cls(every, SilenceIndex(every, range(len(every))))

    def among(self, positions: Collection[int]) -> Self:
        """Return the same company, of whose silences these alone are looked at."""
        if len(positions) == len(self.all):
            return self
        return evolve(self, index=SilenceIndex(self.all, positions))

    def candidates(self, event: EventFields) -> list[int]:
        """Return the positions of those that may match an event, in their order."""
        return self._index.candidates(event)

    def matching(self, event: EventFields) -> int:
        """Return those that match an event, as a mask; whether they hold is not asked."""
        mask = 0
        for position in self.candidates(event):
            if self.all[position].matches(event):
                mask |= 1 << position
        return mask

    def active(self, now: datetime) -> int:
        """Return those that hold at an instant, as a mask."""
        bits = bytearray(len(self.all) // 8 + 1)
        for position, each in enumerate(self.all):
            if each.is_active(now):
                bits[position >> 3] |= 1 << (position & 7)
        return int.from_bytes(bits, "little")

    def next_change(self, now: datetime, mask: int) -> datetime | None:
        """Return when the first of those in a mask begins or ends to hold; None: never."""
        changes = (self.all[position].next_change(now) for position in bits_of(mask))
        return min((change for change in changes if change is not None), default=None)


def bits_of(mask: int) -> Iterator[int]:
    """Yield the positions in a mask, in time linear in its length."""
    for index, byte in enumerate(mask.to_bytes(mask.bit_length() // 8 + 1, "little")):
        for bit in range(8) if byte else ():
            if byte >> bit & 1:
                yield index * 8 + bit
