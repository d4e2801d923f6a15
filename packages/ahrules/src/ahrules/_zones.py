"""Time zones, read from the `tzdata` package alone.

The system's own copy is left aside on purpose: two processes with the same installed packages
compute the same buckets on any machine, and names that a distribution has split off (`Europe/Kiev`)
are always there.
"""

import difflib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import pairwise
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
    cities = [
        known for known in folded.values() if wanted and known.casefold().endswith("/" + wanted)
    ]
    near = difflib.get_close_matches(wanted, folded, n=3, cutoff=0.7)
    ranked = [*exact, *cities, *(folded[key] for key in near)]
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
    offset = (EPOCH + timedelta(seconds=instant)).astimezone(zone).utcoffset()
    assert offset is not None, "a ZoneInfo always knows its offset"
    return offset.days * DAY_SECONDS + offset.seconds


@lru_cache(maxsize=16_384)
def _transitions_of_year(name: str, year: int) -> tuple[int, ...]:
    """Return the instants of a UTC year at which the offset changes.

    The offset is read at each UTC midnight and each noon, and a change is narrowed down to its
    second. Two changes within twelve hours that undo each other would be missed; a test shows that
    no zone has such a pair.
    """
    zone = load_zone(name)
    start = (datetime(year, 1, 1, tzinfo=UTC) - EPOCH).days * DAY_SECONDS
    days = 366 if _is_leap(year) else 365
    found = []
    # The step before the year's first second is included: a change exactly at New Year belongs to
    # this year.
    low, low_offset = start - 1, offset_at(zone, start - 1)
    for half_day in range(2 * days):
        high = start + (half_day + 1) * (DAY_SECONDS // 2) - 1
        high_offset = offset_at(zone, high)
        if high_offset != low_offset:
            found.append(_bisect(zone, low, high, low_offset))
        low, low_offset = high, high_offset
    return tuple(found)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


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
    """Cut `[start, end)`, in Unix seconds, at each change of offset; the pieces leave no gap."""
    zone = load_zone(name)
    first_year = (EPOCH + timedelta(seconds=start)).year
    last_year = (EPOCH + timedelta(seconds=end)).year
    cuts = [
        cut
        for year in range(first_year, last_year + 1)
        for cut in _transitions_of_year(name, year)
        if start < cut < end
    ]
    edges = [start, *cuts, end]
    return [Piece(low, high, offset_at(zone, low)) for low, high in pairwise(edges)]
