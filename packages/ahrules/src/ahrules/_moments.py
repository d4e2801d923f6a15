"""Instants as Unix seconds and back; what has no time zone names none."""

from datetime import datetime, timedelta

from ahrules._zones import DAY_SECONDS, EPOCH
from ahrules.errors import InstantError


def check_aware(moment: datetime) -> datetime:
    """Return `moment` when it has a time zone.

    Raises:
        InstantError: It has none.
    """
    if moment.utcoffset() is None:
        raise InstantError(
            f"{moment.isoformat()} has no time zone and so names no instant; give an aware datetime"
        )
    return moment


def unix_second(moment: datetime) -> int:
    """Return the Unix second that an aware datetime lies in.

    Raises:
        InstantError: It is naive.
    """
    elapsed = check_aware(moment) - EPOCH
    return elapsed.days * DAY_SECONDS + elapsed.seconds


def instant(second: int) -> datetime:
    """Return a Unix second as a datetime in UTC."""
    return EPOCH + timedelta(seconds=second)
