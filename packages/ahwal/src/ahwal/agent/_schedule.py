"""When the next cycle is due. Pure.

Law of this file: cycles stand at `first + k * interval`, whatever time a cycle took; one that was
missed is left out, never made up for.
"""

import math
from typing import Self

from attrs import evolve, frozen


@frozen(kw_only=True)
class Schedule:
    """The next cycle and the time between cycles, in monotonic seconds."""

    due: float
    interval_seconds: float

    def following(self, now: float) -> Self:
        """Return the schedule after the cycle that was due; its next one lies after `now`."""
        missed = math.floor((now - self.due) / self.interval_seconds)
        step = max(1, missed + 1)
        return evolve(self, due=self.due + step * self.interval_seconds)

    def cycles_after(self, earlier: Self) -> int:
        """Return how many intervals this schedule's cycle lies after that of `earlier`."""
        return round((self.due - earlier.due) / self.interval_seconds)

    def with_interval(self, interval_seconds: float, now: float) -> Self:
        """Return the schedule with another interval; the next cycle is never later than that."""
        if interval_seconds == self.interval_seconds:
            return self
        due = min(self.due, now + interval_seconds)
        return evolve(self, due=due, interval_seconds=interval_seconds)
