"""Token buckets: how many of something may happen, as arithmetic over given instants."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Buckets"]

K = TypeVar("K", bound=Hashable)


class Buckets(Generic[K]):
    """One token bucket a key, bounded: the keys not used for longest are forgotten, that is, full.

    A bucket holds up to `burst` tokens and fills steadily; it may owe some. Instants are of a
    steady clock; one that goes back fills nothing.

    Args:
        entries_max: How many keys are remembered.
    """

    def __init__(self, *, entries_max: int = 200_000) -> None:
        self._entries_max = entries_max
        self._levels: OrderedDict[K, tuple[float, float]] = OrderedDict()

    def take(
        self, key: K, *, now: float, per_second: float, burst: float, amount: float = 1.0
    ) -> float:
        """Take tokens and return 0, or none and return the seconds until there are enough.

        Args:
            key: Whose bucket.
            now: Monotonic seconds.
            per_second: Tokens that come in a second, above 0.
            burst: How many the bucket holds, at least 1.
            amount: How many are taken, all or none, at most `burst`: what the bucket cannot hold
                never comes together in it.
        """
        level, since = self._levels.get(key, (burst, now))
        level = min(burst, level + max(0.0, now - since) * per_second)
        wait = 0.0 if level >= amount else (amount - level) / per_second
        if not wait:
            level -= amount
        self._keep(key, level, max(now, since))
        return wait

    def spend(self, key: K, *, now: float, per_second: float, burst: float, amount: float) -> None:
        """Take tokens for what was done already; what is missing is owed. Arguments of `take`."""
        self.take(key, now=now, per_second=per_second, burst=burst, amount=0.0)
        level, since = self._levels[key]
        self._keep(key, level - amount, since)

    def give_back(self, key: K, amount: float) -> None:
        """Put tokens back that were taken for what then could not be done.

        A key that was forgotten meanwhile is full already.
        """
        known = self._levels.get(key)
        if known is not None:
            # What is over the burst goes with the next `take`, which knows the burst.
            self._keep(key, known[0] + amount, known[1])

    def _keep(self, key: K, level: float, since: float) -> None:
        self._levels[key] = (level, since)
        self._levels.move_to_end(key)
        if len(self._levels) > self._entries_max:
            self._levels.popitem(last=False)
