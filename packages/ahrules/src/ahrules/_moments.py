"""Instants as Unix seconds and back; what has no time zone names none."""

from datetime import datetime, timedelta

from ahrules._arguments import expect
from ahrules._zones import DAY_SECONDS, EPOCH
from ahrules.errors import InstantError


def check_aware(moment: datetime) -> datetime:
    """Return `moment` when it has a time zone.

    Raises:
        InstantError: It has none.
        TypeError: It is no datetime.
    """
    expect("the instant", moment, datetime, "give an aware datetime")
    if moment.utcoffset() is None:
        raise InstantError(
            f"{moment.isoformat()} has no time zone and so names no instant; give an aware datetime"
        )
    return moment


def unix_second(moment: datetime) -> int:
    """Return the Unix second that an aware datetime lies in.

    Raises:
        InstantError: It is naive.
        TypeError: It is no datetime.
    """
    try:
        # Refuses what is naive, and is three times as fast as asking for the offset first.
        elapsed = moment - EPOCH
    except TypeError:
        check_aware(moment)
        raise
    return elapsed.days * DAY_SECONDS + elapsed.seconds


def instant(second: int) -> datetime:
    """Return a Unix second as a datetime in UTC."""
    # Not `fromtimestamp`: where the system's clock has no years before 1970, that fails.
    return EPOCH + timedelta(0, second)
