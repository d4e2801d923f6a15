"""The last points of a series, by their own time, and what becomes of them.

Law: a window of W seconds whose newest point is at t holds the points of (t - W, t], in the order
of their time whatever the order of their coming, one for each time (the first that came), and of
more than `points_max` the newest.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ahwire.hub import Aggregation


def _average(values: Sequence[float]) -> float:
    # The exact sum is the same in every order; the bounds keep rounding from leaving the values.
    return min(max(_total(values) / len(values), min(values)), max(values))


def _total(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return math.nan


AGGREGATES: Final[Mapping[Aggregation, Callable[[Sequence[float]], float]]] = MappingProxyType(
    {
        Aggregation.AVG: _average,
        Aggregation.MIN: min,
        Aggregation.MAX: max,
        Aggregation.SUM: _total,
    }
)
"""What becomes of a window's values. What cannot be told in a double is NaN, which is no value."""


class Window:
    """The points of one window: 16 bytes each, at most `points_max`.

    Args:
        seconds: How far it reaches back from its newest point.
        points_max: How many points it holds; beyond, the oldest leave early.
    """

    __slots__ = ("_points_max", "_seconds", "_times", "_values", "cut", "size")

    def __init__(self, seconds: float, points_max: int) -> None:
        self._seconds = seconds
        self._points_max = points_max
        self._times = array("d")
        self._values = array("d")
        self.size = 0
        """About how many points it holds."""
        self.cut = 0
        """Points that left early since it was made."""

    @property
    def values(self) -> Sequence[float]:
        """The values, oldest first."""
        return self._values

    def add(self, ts: float, value: float) -> None:
        """Take the newest point and let those leave that are too old beside it."""
        self._times.append(ts)
        self._values.append(value)
        # The newest one stays also where a double cannot tell the two times apart.
        self._drop(bisect_right(self._times, ts - self._seconds, 0, len(self._times) - 1))
        self._bound()

    def add_late(self, ts: float, value: float) -> None:
        """Take a point that is older than the newest, where it is inside and its time is free."""
        times = self._times
        if not times or ts <= times[-1] - self._seconds:
            return
        place = bisect_left(times, ts)
        if times[place] == ts:
            return
        times.insert(place, ts)
        self._values.insert(place, value)
        self._bound()

    def turn_back(self, now: float, value: float) -> None:
        """Take the newest point, which is of later, for one of now; those beside it leave."""
        if self._times and self._times[-1] > now:
            place = bisect_left(self._times, now)
            del self._times[place:]
            del self._values[place:]
            self.add(now, value)

    def points(self) -> list[float]:
        """Times, then values, as many of each: what `fill` takes."""
        return [*self._times, *self._values]

    def fill(self, points: Sequence[float]) -> None:
        """Hold these points and no others."""
        half = len(points) // 2
        self._times = array("d", points[:half])
        self._values = array("d", points[half:])
        self._bound()

    def _bound(self) -> None:
        self.size = len(self._times)
        excess = self.size - self._points_max
        if excess > 0:
            self.cut += excess
            self._drop(excess)

    def _drop(self, count: int) -> None:
        if count:
            del self._times[:count]
            del self._values[:count]
