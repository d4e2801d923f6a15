"""Time zones, read from the `tzdata` package alone.

The system's own copy is left aside on purpose: two processes with the same installed packages
compute the same buckets on any machine, and names that a distribution has split off (`Europe/Kiev`)
are always there.
"""

import difflib
from calendar import isleap
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from attrs import frozen

from ahrules.errors import UnknownZoneError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS: Final = 86_400

# `Factory` is a placeholder of the data base for "nobody has set a zone yet".
_NOT_A_PLACE: Final = frozenset({"Factory"})


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return every name that a rule may use as its time zone."""
    listing = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8")
    return frozenset(listing.split()) - _NOT_A_PLACE


def check_zone(name: object) -> str:
    """Return `name` when it is a time zone.

    Raises:
        UnknownZoneError: It is not; the error names near ones.
    """
    if isinstance(name, str) and name in zone_names():
        return name
    raise UnknownZoneError(name, _near_names(name) if isinstance(name, str) else ())


def _near_names(name: str) -> tuple[str, ...]:
    # Long input comes from no one's typing, and the comparison is quadratic.
    wanted = name.strip().casefold()[:64]
    folded = {known.casefold(): known for known in sorted(zone_names())}
    exact = [folded[wanted]] if wanted in folded else []
    # A city without its area, or an area without a city.
    city, area = "/" + wanted.strip("/"), wanted.strip("/") + "/"
    parts = [
        known
        for key, known in folded.items()
        if len(area) > 1 and (key.endswith(city) or key.startswith(area))
    ]
    near = difflib.get_close_matches(wanted, folded, n=3, cutoff=0.7)
    ranked = [*exact, *parts, *(folded[key] for key in near)]
    return tuple(dict.fromkeys(ranked))[:3]


@lru_cache(maxsize=1024)
def load_zone(name: str) -> ZoneInfo:
    """Return the zone's rules.

    Raises:
        UnknownZoneError: There is no zone of that name.
    """
    area = resources.files("tzdata").joinpath("zoneinfo")
    with area.joinpath(*check_zone(name).split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@frozen
class Piece:
    """A stretch of time in which a zone's offset does not change; instants are Unix seconds."""

    start: int
    end: int
    offset: int


def offset_at(zone: ZoneInfo, instant: int) -> int:
    """Return the offset from UTC in seconds that holds at a Unix second."""
    # On the calendar's first and last day the local time may lie outside of the calendar.
    inside = min(max(instant, _FIRST_SECOND), _LAST_SECOND)
    offset = (EPOCH + timedelta(0, inside)).astimezone(zone).utcoffset()
    assert offset is not None, "a ZoneInfo always knows its offset"
    return offset.days * DAY_SECONDS + offset.seconds


def _start_of_year(year: int) -> int:
    return (date(year, 1, 1).toordinal() - EPOCH.toordinal()) * DAY_SECONDS


_FIRST_SECOND: Final = _start_of_year(1) + DAY_SECONDS
_LAST_SECOND: Final = _start_of_year(9999) + 364 * DAY_SECONDS - 1
_STEP_SECONDS: Final = 2 * DAY_SECONDS


@lru_cache(maxsize=16_384)
def _pieces_of_year(name: str, year: int) -> tuple[Piece, ...]:
    """Cut a UTC year at each change of the zone's offset.

    The offset is read every two days, and a change is narrowed down to its second. Two changes
    within two days that undo each other would be missed; a test shows that no zone has such a pair,
    the nearest two being seven days apart.
    """
    zone = load_zone(name)
    start = _start_of_year(year)
    end = start + (366 if isleap(year) else 365) * DAY_SECONDS
    found = []
    low, offset, piece_start = start, offset_at(zone, start), start
    while low < end - 1:
        high = min(low + _STEP_SECONDS, end - 1)
        # Two days may hold two changes that do not undo each other.
        while offset_at(zone, high) != offset:
            change = _bisect(zone, low, high, offset)
            found.append(Piece(piece_start, change, offset))
            low, offset, piece_start = change, offset_at(zone, change), change
        low = high
    found.append(Piece(piece_start, end, offset))
    return tuple(found)


def _bisect(zone: ZoneInfo, low: int, high: int, low_offset: int) -> int:
    """Return the first second whose offset is not `low_offset`, given that `high` is such a one."""
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == low_offset:
            low = middle
        else:
            high = middle
    return high


def pieces(name: str, start: int, end: int) -> list[Piece]:
    """Cut `[start, end)`, in Unix seconds, at each change of offset; the pieces leave no gap.

    Raises:
        OverflowError: A part of it lies outside of the years 1 to 9999.
    """
    first_year = (EPOCH + timedelta(0, start)).year
    last_year = (EPOCH + timedelta(0, end - 1)).year
    found: list[Piece] = []
    for year in range(first_year, last_year + 1):
        for piece in _pieces_of_year(name, year):
            low, high = max(start, piece.start), min(end, piece.end)
            if low < high:
                if found and found[-1].offset == piece.offset:
                    # New Year changes no offset by itself.
                    low = found.pop().start
                found.append(Piece(low, high, piece.offset))
    return found
