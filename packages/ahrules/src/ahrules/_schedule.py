"""How often a digest is sent."""

from enum import StrEnum
from typing import Final

from attrs import field, frozen

from ahrules._limits import INTERVAL_MAX
from ahrules._zones import check_zone
from ahrules.errors import ScheduleError


class Unit(StrEnum):
    """What a schedule's interval counts."""

    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"
    WEEKS = "weeks"
    MONTHS = "months"


def check_interval(interval: object) -> int:
    """Return `interval` when it is a whole number from 1 to `INTERVAL_MAX`.

    Raises:
        ScheduleError: It is not.
    """
    if type(interval) is int and 1 <= interval <= INTERVAL_MAX:
        return interval
    raise ScheduleError(
        f"{interval!r} is no interval: write a whole number from 1 to {INTERVAL_MAX}"
    )


def check_unit(unit: object) -> Unit:
    """Return the unit that `unit` names.

    Raises:
        ScheduleError: It names none.
    """
    if isinstance(unit, str) and unit in list(Unit):
        return Unit(unit)
    raise ScheduleError(f"{unit!r} is no unit: write one of {', '.join(Unit)}")


@frozen(cache_hash=True)
class Schedule:
    """Every `interval` units of a place's wall clock.

    Attributes:
        interval: How many units a bucket has, from 1 to 10,000. Minutes and hours are counted from
            each local midnight anew, so a bucket of them never reaches into the next day.
        unit: `minutes`, `hours`, `days`, `weeks` or `months`.
        timezone: A name of the IANA data base, as `Europe/Berlin`.

    Raises:
        ScheduleError: The interval or the unit is not allowed.
        UnknownZoneError: There is no such time zone; near names are given.
    """

    interval: int = field(converter=check_interval)
    unit: Unit = field(converter=check_unit)
    timezone: str = field(default="UTC", converter=check_zone)


OVERFLOW_SCHEDULE: Final = Schedule(5, Unit.MINUTES, "UTC")
"""The short buckets in which instant notifications over their rate limit are gathered."""
