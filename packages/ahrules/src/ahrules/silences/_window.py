"""Windows that come again on the wall clock, as instants.

The law that this module keeps, for one recurrence:

1. An instant is inside when its local wall time is in `[from, to)` of a calendar day that is one of
   the weekdays. Nothing else counts: not the server's zone, not how long the window lasts.
2. When `to` is not after `from`, the window ends on the next day, whatever weekday that is. So
   `from` equal to `to` is a whole day of the wall clock, and no window has length zero.
3. Wall times that are skipped have no instant: a window loses them, and one that is skipped whole
   does not come that day. Wall times that come twice are inside both times: a window may be longer,
   or come in two pieces.

All arithmetic is on whole Unix seconds: no zone changes its offset inside a second.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Self

from attrs import frozen

from ahrules._moments import instant, unix_second
from ahrules._zones import DAY_SECONDS, check_zone, load_zone, offset_at, pieces
from ahrules.errors import InstantError
from ahwire.hub import Recurrence, Weekday

_WEEKDAYS: Final = list(Weekday)
_EPOCH_WEEKDAY: Final = 3  # 1970-01-01 was a Thursday
# A weekly window can fall on a day that a zone skipped, which makes two weeks; the third is spare.
_HORIZONS_DAYS: Final = (2, 22)
_PREVIEW_DAYS_MAX: Final = 3_660


@frozen(kw_only=True)
class SilenceWindow:
    """A stretch of time `[start, end)`, never empty.

    Attributes:
        start: Its first instant, in UTC.
        end: The first instant after it, in UTC.
    """

    start: datetime
    end: datetime


def windows_between(recurrence: Recurrence, start: datetime, end: datetime) -> list[SilenceWindow]:
    """Return the windows that have an instant in `[start, end)`, cut to it, to whole seconds.

    Args:
        recurrence: Weekdays, wall times and zone.
        start: An aware datetime.
        end: An aware datetime, at most 3,660 days later.

    Returns:
        Windows in order, with time between any two of them: those that touch are one.

    Raises:
        UnknownZoneError: There is no such time zone; near names are given.
        InstantError: A time is naive, or leaves the years 1 to 9999.
        ValueError: The stretch is too long.
    """
    low, high = unix_second(start), unix_second(end)
    if high - low > _PREVIEW_DAYS_MAX * DAY_SECONDS:
        raise ValueError(
            f"{(high - low) // DAY_SECONDS} days are too long a stretch: ask for"
            f" {_PREVIEW_DAYS_MAX} at most"
        )
    return [
        SilenceWindow(start=instant(first), end=instant(last))
        for first, last in WallWindow.of(recurrence).spans(low, high)
    ]


@frozen
class WallWindow:
    """A recurrence ready for arithmetic: weekdays from Monday, seconds from midnight."""

    weekdays: frozenset[int]
    start: int
    length: int
    timezone: str

    @classmethod
    def of(cls, recurrence: Recurrence) -> Self:
        """Return the windows of a recurrence.

        Raises:
            UnknownZoneError: There is no such time zone.
        """
        start, end = _seconds(recurrence.from_), _seconds(recurrence.to)
        return cls(
            frozenset(_WEEKDAYS.index(each) for each in recurrence.weekdays),
            start,
            (end - start) % DAY_SECONDS or DAY_SECONDS,
            check_zone(recurrence.timezone),
        )

    def holds(self, second: int) -> bool:
        """Tell whether a Unix second is inside."""
        wall = second + offset_at(load_zone(self.timezone), second)
        today = wall // DAY_SECONDS
        return any(
            first <= wall < first + self.length for first in self._starts(today - 1, today + 1)
        )

    def next_edge(self, second: int) -> int | None:
        """Return the first second after it at which `holds` changes; None: it never does.

        Raises:
            InstantError: It would lie outside of the years 1 to 9999.
        """
        for days in _HORIZONS_DAYS:
            end = second + days * DAY_SECONDS
            for span in self.spans(second, end):
                for edge in span:
                    if second < edge < end:
                        return edge
        return None

    def spans(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return the seconds of `[low, high)` that are inside, as stretches that do not touch.

        Raises:
            InstantError: A part of it lies outside of the years 1 to 9999.
        """
        try:
            cut = pieces(self.timezone, low, high) if low < high else []
        except OverflowError as error:
            raise InstantError(
                "the end of the calendar is too near for a window; check the clock this comes from"
            ) from error
        found: list[tuple[int, int]] = []
        for piece in cut:
            wall_low, wall_high = piece.start + piece.offset, piece.end + piece.offset
            for first in self._starts(wall_low // DAY_SECONDS - 1, wall_high // DAY_SECONDS + 1):
                start = max(first - piece.offset, piece.start)
                end = min(first + self.length - piece.offset, piece.end)
                if start >= end:
                    continue
                if found and found[-1][1] == start:
                    start = found.pop()[0]
                found.append((start, end))
        return found

    def _starts(self, first_day: int, end_day: int) -> Iterator[int]:
        """Give the wall second at which the window of each chosen day begins."""
        for day in range(first_day, end_day):
            if (day + _EPOCH_WEEKDAY) % 7 in self.weekdays:
                yield day * DAY_SECONDS + self.start


def _seconds(wall_time: str) -> int:
    hours, minutes = wall_time.split(":")
    return int(hours) * 3_600 + int(minutes) * 60
