"""The bucket an instant falls in.

The law that this module keeps, for one schedule:

1. `start <= instant < end`, buckets do not overlap, leave no gap and are never empty; every instant
   of a bucket gives the same bucket.
2. A local day begins at the first instant whose local date is that day or a later one. That is
   midnight, or the first existing instant where midnight was skipped. A day that was skipped whole
   has no instant and no bucket. Where clocks go back over midnight, the day has begun at the first
   of its two midnights.
3. Days are grouped from 1970-01-01, weeks from Monday 1970-01-05, months from January 1970.
4. Minutes and hours are read off the wall clock, counted from the day's midnight, and end with the
   day. Where clocks go back by at least a bucket's length, counting starts again: one bucket for
   each pass. Where they go back by less, counting never goes back: the bucket that holds the change
   is longer. Where they go forward, buckets without an instant do not exist.

All arithmetic is on whole Unix seconds: no zone changes its offset inside a second.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

from attrs import define, frozen

from ahrules._arguments import expect
from ahrules._moments import instant, unix_second
from ahrules._schedule import Schedule, Unit
from ahrules._zones import DAY_SECONDS, EPOCH, Piece, pieces
from ahrules.errors import InstantError

_UNIT_SECONDS: Final = {Unit.MINUTES: 60, Unit.HOURS: 3_600}
_UNIT_DAYS: Final = {Unit.DAYS: 1, Unit.WEEKS: 7}
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_FIRST_MONDAY: Final = 4  # 1970-01-05, counted from 1970-01-01
_PREVIEW_MAX: Final = 10_000
# Short, so that few stretches have a change, and long, so that there are few stretches.
_CALM_SECONDS: Final = 8 * DAY_SECONDS


@frozen
class Bucket:
    """A stretch of time `[start, end)`.

    Attributes:
        start: Its first instant, in UTC.
        end: The first instant after it, in UTC.
    """

    start: datetime
    end: datetime


def bucket(occurred_at: datetime, schedule: Schedule) -> Bucket:
    """Return the bucket of `schedule` that holds an instant.

    The result depends on the arguments and on the installed time-zone data only. Days and longer
    begin at local midnight, minutes and hours are counted from it; the module's text has the whole
    law.

    Args:
        occurred_at: An aware datetime, in any zone.
        schedule: The schedule.

    Returns:
        The bucket, in UTC, with `start <= occurred_at < end`.

    Raises:
        InstantError: `occurred_at` is naive, or the bucket leaves the years 1 to 9999.
    """
    second = unix_second(occurred_at)
    try:
        plan = _plan(schedule)
    except (AttributeError, TypeError):
        expect("schedule", schedule, Schedule, "give a Schedule, such as rule.digest_schedule()")
        raise
    low, high, found = plan.latest
    if low <= second < high:
        return found
    try:
        low, high = _edges(plan, second)
        found = Bucket(instant(low), instant(high))
    except (OverflowError, ValueError) as error:
        raise InstantError(
            f"{occurred_at.isoformat()} is too near to the end of the calendar for a bucket of"
            f" {schedule.interval} {schedule.unit}; check the clock it comes from"
        ) from error
    # One assignment, so that another thread sees this answer or the one before, whole.
    plan.latest = (low, high, found)
    return found


def next_buckets(schedule: Schedule, start: datetime, n: int) -> list[Bucket]:
    """Preview a schedule: the bucket that holds `start` and those after it.

    Args:
        schedule: The schedule.
        start: An aware datetime.
        n: How many buckets, from 0 to 10,000.

    Returns:
        `n` buckets; each begins where the one before ends.

    Raises:
        InstantError: As for `bucket`.
        ValueError: `n` is out of its range.
    """
    if not 0 <= n <= _PREVIEW_MAX:
        raise ValueError(f"{n} buckets cannot be previewed: ask for 0 to {_PREVIEW_MAX}")
    found: list[Bucket] = []
    while len(found) < n:
        found.append(bucket(found[-1].end if found else start, schedule))
    return found


def batch_key(rule_id: str, recipient_id: str, channel: str, start: datetime) -> str:
    """Return the label of a digest: `rule:recipient:channel:start`.

    It is for people and logs. Ids may contain colons and the tenant is not in it, so it is not a
    key of a table.

    Args:
        rule_id: The rule.
        recipient_id: Who is told.
        channel: The channel's name.
        start: The bucket's start; written in UTC as `2026-06-15T00:00:00Z`.

    Raises:
        InstantError: `start` is naive.
    """
    unix_second(start)
    moment = start.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{rule_id}:{recipient_id}:{channel}:{moment}Z"


@define(eq=False, kw_only=True)
class _Plan:
    """What is known of a schedule: how long its buckets are, and the answer given last.

    Nearly all events are of now, so their bucket is the one of the event before. That answer is
    what would be computed again: remembering it changes no result.
    """

    zone: str
    within_day_seconds: int
    days: int
    first_day: int
    months: int
    latest: tuple[int, int, Bucket] = (0, 0, Bucket(EPOCH, EPOCH))


@lru_cache(maxsize=8_192)
def _plan(schedule: Schedule) -> _Plan:
    unit, interval = schedule.unit, schedule.interval
    return _Plan(
        zone=schedule.timezone,
        within_day_seconds=interval * _UNIT_SECONDS.get(unit, 0),
        days=interval * _UNIT_DAYS.get(unit, 0),
        first_day=_FIRST_MONDAY if unit is Unit.WEEKS else 0,
        months=interval,
    )


def _edges(plan: _Plan, second: int) -> tuple[int, int]:
    """Return the first second of the bucket that holds `second`, and the first one after it."""
    length = plan.within_day_seconds
    offset = _calm_offset(plan.zone, second // _CALM_SECONDS)
    if offset is None:
        day = _local_day(plan.zone, second)
        return _within_day(day, length, second) if length else _of_days(plan, day.number)
    number, since_midnight = divmod(second + offset, DAY_SECONDS)
    if not length:
        return _of_days(plan, number)
    low = second - since_midnight % length
    return low, min(low + length, second - since_midnight + DAY_SECONDS)


@lru_cache(maxsize=16_384)
def _calm_offset(zone: str, stretch: int) -> int | None:
    """Return the offset that holds in a stretch, if none of its days can feel another one.

    A change is felt for at most a day: by the day it happens on, and by the next one where clocks
    went back over midnight. And a local midnight lies less than a day beside the one in UTC.
    """
    low = stretch * _CALM_SECONDS - 2 * DAY_SECONDS
    try:
        found = pieces(zone, low, low + _CALM_SECONDS + 4 * DAY_SECONDS)
    except OverflowError:
        return None  # at an end of the calendar each day is looked at
    return found[0].offset if len(found) == 1 else None


@frozen
class _Day:
    """A local day: its number from 1970-01-01, its instants `[start, end)` and its offsets."""

    number: int
    start: int
    end: int
    pieces: tuple[Piece, ...]


def _day_start(zone: str, number: int) -> int:
    """Return the first instant whose local date is the day of that number, or a later one."""
    midnight = number * DAY_SECONDS
    offset = _calm_offset(zone, midnight // _CALM_SECONDS)
    return _first_instant(zone, midnight) if offset is None else midnight - offset


@lru_cache(maxsize=16_384)
def _first_instant(zone: str, midnight: int) -> int:
    # Offsets are shorter than a day, so the answer lies less than a day beside midnight in UTC.
    return next(
        first
        for piece in pieces(zone, midnight - DAY_SECONDS, midnight + DAY_SECONDS)
        if (first := max(piece.start, midnight - piece.offset)) < piece.end
    )


@lru_cache(maxsize=4_096)
def _days_of(zone: str, utc_day: int) -> tuple[_Day, ...]:
    """Return the local days that have an instant in a UTC day, in order."""
    low, high = utc_day * DAY_SECONDS, (utc_day + 1) * DAY_SECONDS
    found = []
    # No offset reaches a whole day, so no other local dates are possible.
    for number in range(utc_day - 1, utc_day + 2):
        start, end = _day_start(zone, number), _day_start(zone, number + 1)
        if start < end and start < high and end > low:
            found.append(_Day(number, start, end, tuple(pieces(zone, start, end))))
    return tuple(found)


def _local_day(zone: str, second: int) -> _Day:
    days = _days_of(zone, second // DAY_SECONDS)
    place = 0
    while second >= days[place].end:
        place += 1
    return days[place]


def _of_days(plan: _Plan, number: int) -> tuple[int, int]:
    if plan.days:
        low = (number - plan.first_day) // plan.days * plan.days + plan.first_day
        high = low + plan.days
    else:
        today = date.fromordinal(_EPOCH_DAY + number)
        first = (today.year * 12 + today.month - 1 - 1970 * 12) // plan.months * plan.months
        low, high = _month_start(first), _month_start(first + plan.months)
    return _day_start(plan.zone, low), _day_start(plan.zone, high)


@lru_cache(maxsize=4_096)
def _month_start(month: int) -> int:
    """Return the number of the first day of a month counted from January 1970."""
    year, index = divmod(1970 * 12 + month, 12)
    return date(year, index + 1, 1).toordinal() - _EPOCH_DAY


def _within_day(day: _Day, length: int, second: int) -> tuple[int, int]:
    """Return the edges of a bucket of minutes or hours, on a day on or beside a change."""
    low = day.start
    for starts in _starts_within(day, length):
        if starts[0] > second:
            return low, starts[0]
        place = (second - starts.start) // length
        if place + 1 < len(starts):
            return starts[place], starts[place + 1]
        low = starts[-1]
    return low, day.end


def _starts_within(day: _Day, length: int) -> Iterator[range]:
    """Yield where the buckets of a day begin: in order, in runs of instants `length` apart."""
    offset, index = 0, None
    for piece in day.pieces:
        wall_zero = day.number * DAY_SECONDS - piece.offset
        here = (piece.start - wall_zero) // length
        # The first piece, a new pass, or a step forward into a later bucket: one begins here.
        if index is None or offset - piece.offset >= length or here > index:
            yield range(piece.start, piece.start + length, length)
            index = here
        following = range(wall_zero + (index + 1) * length, piece.end, length)
        if following:
            yield following
        index += len(following)
        offset = piece.offset
