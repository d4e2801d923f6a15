"""One company's silences, by position: bit n of a mask is the silence at position n of `all`.

Law: which silences match an event hangs on the event alone, and which of them hold on the time
alone. So the first is asked once an event, the second once a silence, and the two meet as masks.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Self

from attrs import evolve, frozen

from ahrules._matchers import Test
from ahrules._moments import instant, unix_second
from ahrules.silences._matching import EventFields, fixed_values, text_of
from ahrules.silences._window import WallWindow
from ahwire.hub import Silence


@frozen
class Compiled:
    """A silence that can be used."""

    silence: Silence
    tests: tuple[tuple[str, Test], ...]
    window: WallWindow | None

    def is_active(self, now: datetime) -> bool:
        """Whether it holds at an instant."""
        silence = self.silence
        if now < silence.starts_at or (silence.ends_at is not None and now >= silence.ends_at):
            return False
        return self.window is None or self.window.holds(unix_second(now))

    def matches(self, event: EventFields) -> bool:
        """Whether all its matchers hold for an event."""
        return all(test(text_of(event, label)) for label, test in self.tests)

    def next_change(self, now: datetime) -> datetime | None:
        """When it next begins or ends to hold; None: never."""
        silence = self.silence
        if now < silence.starts_at:
            if self.is_active(silence.starts_at):
                return silence.starts_at
            now = silence.starts_at
        elif silence.ends_at is not None and now >= silence.ends_at:
            return None
        edge = self.window.next_edge(unix_second(now)) if self.window is not None else None
        if edge is not None:
            moment = instant(edge)
            if silence.ends_at is None or moment < silence.ends_at:
                return moment
        return silence.ends_at if self.is_active(now) else None


@frozen
class Company:
    """The silences of a company; those that name a text are looked at only where it occurs.

    Attributes:
        all: The silences, in the order of their ids.
        others: Positions of those that name no text.
        named: Positions of those that do, by label and text.
    """

    all: tuple[Compiled, ...] = ()
    others: tuple[int, ...] = ()
    named: Mapping[str, Mapping[str, tuple[int, ...]]] = {}

    @classmethod
    def of(cls, silences: Iterable[Compiled]) -> Self:
        """Return the company that has these silences."""
        every = tuple(sorted(silences, key=lambda each: each.silence.silence_id))
        return cls(every).among(range(len(every)))

    def among(self, positions: Iterable[int]) -> Self:
        """Return the same company, of whose silences these alone are looked at."""
        others: list[int] = []
        named: dict[str, dict[str, tuple[int, ...]]] = {}
        for position in positions:
            label, value = next(fixed_values(self.all[position].silence), (None, ""))
            if label is None:
                others.append(position)
            else:
                values = named.setdefault(label, {})
                values[value] = (*values.get(value, ()), position)
        return evolve(self, others=tuple(others), named=named)

    def candidates(self, event: EventFields) -> list[int]:
        """Return the positions of those that may match an event."""
        found = list(self.others)
        for label, values in self.named.items():
            found += values.get(text_of(event, label), ())
        return found

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
