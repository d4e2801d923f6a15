"""How many instant notifications one person may get."""

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Protocol

from attrs import define, field, frozen, validators

# Far below 2**53: from there on, one token less is the same double.
_COUNT_MAX: Final = 1_000_000_000


@frozen(kw_only=True)
class RateLimit:
    """A token bucket's size and speed.

    Attributes:
        count: How many may pass at once, and in each `per_seconds` from then on; 1 to
            1,000,000,000.
        per_seconds: In which time a bucket that is empty is full again; above 0.
    """

    count: int = field(
        default=100,
        validator=[validators.instance_of(int), validators.ge(1), validators.le(_COUNT_MAX)],
    )
    per_seconds: float = field(default=60.0, converter=float, validator=validators.gt(0))


class Limiter(Protocol):
    """Says whether one more instant notification may pass for a key.

    The key is at present (tenant, rule, recipient, channel). Both methods are awaited, so that an
    implementation can ask a server whose answer several processes share; `LocalLimiter` answers
    from this process's memory.

    Order: calls for one key take effect one after the other. Durability: none is promised; a
    limiter that forgets lets at most one more full bucket pass. Cancelled: a token may be gone that
    nobody used; it comes back as time passes. Several processes share a limit only if the
    implementation says so. Errors: ValueError for a time that is none; an implementation that asks
    elsewhere says what it raises when there is no answer, and then no token is promised to be taken
    or kept.
    """

    async def allow(self, key: Hashable, now: float, *, limit: RateLimit | None = None) -> bool:
        """Take a token and return True, or return False and take none.

        Args:
            key: Whose bucket.
            now: Unix seconds. Going back refills nothing. Back by up to `per_seconds` is taken for
                a clock that differs, and the bucket waits for it; by more, for a clock that was
                set, and the bucket goes on from there.
            limit: The rule's own limit, where it has one.
        """
        ...

    async def give_back(self, key: Hashable) -> None:
        """Return a token that was not used; never fills a bucket over its size."""
        ...


@define
class _Level:
    tokens: float
    at: float
    limit: RateLimit

    def refill(self, now: float, limit: RateLimit) -> None:
        gained = max(0.0, now - self.at) * limit.count / limit.per_seconds
        # Another limit than before: the bucket keeps what it holds, as far as it fits.
        self.tokens = min(float(limit.count), self.tokens + gained)
        # A little back is another process's clock, whose seconds must not be refilled twice. More
        # is a clock that was set: waiting until it has caught up would be an hour of silence.
        if not self.at - limit.per_seconds <= now <= self.at:
            self.at = now
        self.limit = limit

    def is_full_at(self, now: float) -> bool:
        gained = max(0.0, now - self.at) * self.limit.count / self.limit.per_seconds
        return self.tokens + gained >= self.limit.count


class TokenBucketLimiter:
    """Token buckets by key, as plain arithmetic: what `LocalLimiter` asks; not for several threads.

    In any stretch of `t` seconds at most `count + t * count / per_seconds` calls for one key are
    allowed. A bucket that is full again is forgotten, which changes no answer. Over `keys_max` the
    bucket that was looked at longest ago is forgotten although it is not full: that key starts with
    a full one.

    Args:
        default: The limit of keys for which none is given.
        keys_max: How many buckets are kept.
    """

    # Rounding must not cost a token: a bucket that lacks less than this has it.
    _TOLERANCE: Final = 1e-9
    _SWEPT_PER_CALL: Final = 2

    def __init__(self, *, default: RateLimit = RateLimit(), keys_max: int = 100_000) -> None:
        if keys_max < 1:
            raise ValueError(f"keys_max is {keys_max}; at least one key must fit")
        self._default = default
        self._keys_max = keys_max
        self._levels: OrderedDict[Hashable, _Level] = OrderedDict()

    def __len__(self) -> int:
        """Return how many buckets are kept now."""
        return len(self._levels)

    def allow(self, key: Hashable, now: float, *, limit: RateLimit | None = None) -> bool:
        """Take a token and return True, or return False and take none."""
        if not math.isfinite(now):
            raise ValueError(f"now is {now}; give Unix seconds")
        chosen = limit or self._default
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = _Level(float(chosen.count), now, chosen)
        else:
            level.refill(now, chosen)
            self._levels.move_to_end(key)
        allowed = level.tokens >= 1.0 - self._TOLERANCE
        if allowed:
            level.tokens = max(0.0, level.tokens - 1.0)
        self._forget(now)
        return allowed

    def give_back(self, key: Hashable) -> None:
        """Return a token that was not used; a forgotten key has a full bucket already."""
        level = self._levels.get(key)
        if level is not None:
            level.tokens = min(float(level.limit.count), level.tokens + 1.0)

    def _forget(self, now: float) -> None:
        for _ in range(self._SWEPT_PER_CALL):
            key, level = next(iter(self._levels.items()))
            if level.is_full_at(now):
                del self._levels[key]
            else:
                # Look at another one next time; a slow bucket must not hide idle ones behind it.
                self._levels.move_to_end(key)
        while len(self._levels) > self._keys_max:
            self._levels.popitem(last=False)


class LocalLimiter:
    """A `Limiter` that answers at once, from buckets in this process's memory.

    Each process that has one lets its own `count` pass.

    Args:
        buckets: The buckets; by default new ones with the default limit, 100 a minute.
    """

    def __init__(self, buckets: TokenBucketLimiter | None = None) -> None:
        # Not `or`: one that has no keys yet is empty, and so it is false.
        self._buckets = TokenBucketLimiter() if buckets is None else buckets

    async def allow(self, key: Hashable, now: float, *, limit: RateLimit | None = None) -> bool:
        """Take a token and return True, or return False and take none."""
        return self._buckets.allow(key, now, limit=limit)

    async def give_back(self, key: Hashable) -> None:
        """Return a token that was not used."""
        self._buckets.give_back(key)
