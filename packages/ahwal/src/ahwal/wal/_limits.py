"""How much a WAL may hold, and how it tells the age of what it holds."""

from collections.abc import Callable
from typing import Any

import attrs

from ahwal.wal._segment import Segment
from ahwire import Clock, now_ms

# What `format`, `lock` and the checkpoint with its temporary file take.
_FIXED_BYTES = 256
_QUARANTINE_SHARE = 10
_AHEAD_MS_MAX = 100 * 365 * 86_400_000


def _positive(_instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    unlimited = value is None and attribute.name == "max_age_seconds"
    if not number and not unlimited:
        raise ValueError(f"{attribute.name} is {value!r}; it must be a number above 0")


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of one WAL.

    Attributes:
        max_bytes: What it may hold on disk, quarantine and journal included.
        max_age_seconds: How old an entry may become; None for no limit.
        segment_bytes: When a new segment is started.
    """

    max_bytes: int = attrs.field(validator=_positive)
    max_age_seconds: float | None = attrs.field(validator=_positive)
    segment_bytes: int = attrs.field(validator=_positive)

    @property
    def effective_segment_bytes(self) -> int:
        """Two segments must fit, because the last one is never given up."""
        return max(1, min(self.segment_bytes, self.max_bytes // 2))

    @property
    def quarantine_bytes_max(self) -> int:
        """The part of `max_bytes` that may be set aside."""
        return self.max_bytes // _QUARANTINE_SHARE

    def excess_bytes(self, used_bytes: int) -> int:
        """How much is held too much; negative while there is room."""
        return used_bytes + _FIXED_BYTES - self.max_bytes


class AgeClock:
    """A clock that steps of the wall clock do not move.

    It starts at the wall clock or at the newest record's time, whichever is later, and goes on with
    the steady clock. So entries are not older after a step of the wall clock forward, and not from
    the future after a step back; what the wall clock says counts at the next opening.

    A time over a hundred years ahead of the wall clock is no clock's that was merely wrong (1970
    for today is), but nanoseconds for milliseconds, or worse. It does not count, because it would
    make all other records look too old.

    Args:
        clock: The wall clock and the steady clock.
        newest_up_to: Gives the largest time of a record that is not above a limit, both in Unix
            milliseconds; None when there is none.
    """

    def __init__(self, clock: Clock, newest_up_to: Callable[[int], int | None]) -> None:
        self._clock = clock
        wall_ms = now_ms(clock)
        self._start_ms = max(wall_ms, newest_up_to(wall_ms + _AHEAD_MS_MAX) or 0)
        self._start_monotonic = clock.monotonic()

    def unix_ms(self) -> int:
        """Unix milliseconds by this clock."""
        return self._start_ms + round((self._clock.monotonic() - self._start_monotonic) * 1000)


def oldest_over_size(segments: tuple[Segment, ...], excess_bytes: int) -> list[Segment]:
    """The oldest segments that must go to free so many bytes. Never the last one."""
    going = []
    for segment in segments[:-1]:
        if excess_bytes <= 0:
            break
        going.append(segment)
        excess_bytes -= segment.size_bytes
    return going
