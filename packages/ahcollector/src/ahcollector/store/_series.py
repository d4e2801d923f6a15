"""The points of one series, sorted by time, in two arrays."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right

from ahcollector.store.base import Aggregate

__all__ = ["MemorySeries", "aggregate_values"]


class MemorySeries:
    """Timestamps (ms, strictly rising) and values of one series; 16 bytes a point."""

    __slots__ = ("timestamps", "values")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.values = array("d")

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def first_ms(self) -> int:
        """Time of the oldest point."""
        return self.timestamps[0]

    @property
    def last_ms(self) -> int:
        """Time of the newest point."""
        return self.timestamps[-1]

    @property
    def last_value(self) -> float:
        """Value of the newest point."""
        return self.values[-1]

    def put(self, timestamp_ms: int, value: float) -> bool:
        """Set the value of an instant; return whether it had none."""
        if not self.timestamps or timestamp_ms > self.timestamps[-1]:
            self.timestamps.append(timestamp_ms)
            self.values.append(value)
            return True
        at = bisect_left(self.timestamps, timestamp_ms)
        if self.timestamps[at] == timestamp_ms:
            self.values[at] = value
            return False
        self.timestamps.insert(at, timestamp_ms)
        self.values.insert(at, value)
        return True

    def count_from(self, timestamp_ms: int) -> int:
        """Count points at or after an instant."""
        return len(self.timestamps) - bisect_left(self.timestamps, timestamp_ms)

    def cut(self, oldest_ms: int) -> int:
        """Drop points before an instant; return how many."""
        count = bisect_left(self.timestamps, oldest_ms)
        if count:
            del self.timestamps[:count]
            del self.values[:count]
        return count

    def range(
        self, start_ms: int, end_ms: int, step_ms: int, *, aggregate: Aggregate, oldest_ms: int
    ) -> tuple[tuple[int, float], ...]:
        """Return the aggregates of (t - step, t] for t = start, start + step … up to end.

        Points before `oldest_ms` are as good as dropped.
        """
        last = start_ms + (end_ms - start_ms) // step_ms * step_ms
        begin = bisect_left(self.timestamps, max(oldest_ms, start_ms - step_ms + 1))
        stop = bisect_right(self.timestamps, last)
        result: list[tuple[int, float]] = []
        while begin < stop:
            # The step that holds the next point; steps without one are passed over.
            behind = self.timestamps[begin] - start_ms
            at = start_ms + -(-behind // step_ms) * step_ms
            end = bisect_right(self.timestamps, at, begin, stop)
            result.append((at, aggregate_values(self.values[begin:end], aggregate)))
            begin = end
        return tuple(result)


def aggregate_values(values: array[float], aggregate: Aggregate) -> float:
    """Return the aggregate of at least one finite value; only a sum may be infinite."""
    if aggregate is Aggregate.MIN:
        return min(values)
    if aggregate is Aggregate.MAX:
        return max(values)
    if aggregate is Aggregate.COUNT:
        return float(len(values))
    if aggregate is Aggregate.LAST:
        return values[-1]
    try:
        total = math.fsum(values)
    except OverflowError:
        total = math.inf if sum(values) > 0 else -math.inf
    if aggregate is Aggregate.SUM:
        return total
    if math.isinf(total):
        # The mean of huge values is finite although their sum is not.
        return math.fsum(value / len(values) for value in values)
    return total / len(values)
