"""The rate limit of instant notifications."""

from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import Limiter, LocalLimiter, RateLimit, TokenBucketLimiter
from ahrules.testing import LimiterContract

NOW = 1_750_000_000.0


class TestLocalLimiter(LimiterContract):
    def limiter(self, default: RateLimit) -> Limiter:
        return LocalLimiter(TokenBucketLimiter(default=default))


class WaitingLimiter:
    """Asks a server for each answer, as one in Redis does; here the server is a lock."""

    def __init__(self, default):
        self._server = anyio.Lock()
        self._inner = LocalLimiter(TokenBucketLimiter(default=default))

    async def allow(self, key, now, *, limit=None):
        async with self._server:
            await anyio.sleep(0)
            return await self._inner.allow(key, now, limit=limit)

    async def give_back(self, key):
        async with self._server:
            await anyio.sleep(0)
            await self._inner.give_back(key)


class TestWaitingLimiter(LimiterContract):
    """The suite serves a limiter that needs an event loop, opened and closed in it."""

    closed = 0

    @asynccontextmanager
    async def opened(self, default):
        yield WaitingLimiter(default)
        self.closed += 1

    def run(self, test):
        anyio.run(test)
        assert self.closed == 1


class TestWaitingLimiterOnTrio(TestWaitingLimiter):
    def run(self, test):
        anyio.run(test, backend="trio")


def test_a_limiter_that_waits_is_told_how_to_be_run():
    class Forgetful(LimiterContract):
        def limiter(self, default):
            return WaitingLimiter(default)

        def run(self, test):
            async def waits():
                await Waits()

            super().run(waits)

    class Waits:
        def __await__(self):
            yield

    with pytest.raises(RuntimeError, match=r"anyio\.run"):
        Forgetful().test_keeps_keys_apart()


def test_a_limiter_without_buckets_of_its_own_allows_a_hundred_a_minute():
    async def ask():
        limiter = LocalLimiter()
        return sum([await limiter.allow("key", NOW) for _ in range(500)])

    assert anyio.run(ask) == 100


def test_a_hundred_a_minute_is_the_default():
    limiter = TokenBucketLimiter()
    assert sum(limiter.allow("key", NOW) for _ in range(500)) == 100


def test_n22_with_one_a_minute_the_second_event_overflows():
    limiter = TokenBucketLimiter(default=RateLimit(count=1, per_seconds=60))
    key = ("tenant", "rule", "recipient", "email")
    assert limiter.allow(key, NOW)
    assert not limiter.allow(key, NOW + 1)
    assert limiter.allow(key, NOW + 60)


@given(
    st.integers(1, 20),
    st.floats(0.5, 600),
    st.lists(st.floats(0, 30), max_size=200),
)
def test_no_stretch_of_time_lets_more_pass_than_a_bucket_and_its_refill(count, per_seconds, gaps):
    limiter = TokenBucketLimiter(default=RateLimit(count=count, per_seconds=per_seconds))
    now, allowed = NOW, []
    for gap in gaps:
        now += gap
        if limiter.allow("key", now):
            allowed.append(now)
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            passed = last - first + 1
            elapsed = allowed[last] - allowed[first]
            assert passed <= count + elapsed * count / per_seconds + 1e-3


@given(
    st.integers(1, 20),
    st.floats(1, 600),
    st.lists(st.tuples(st.floats(0, 5), st.floats(-0.5, 0.5)), min_size=1, max_size=200),
)
def test_clocks_that_differ_by_less_than_a_refill_let_no_more_pass(count, per_seconds, calls):
    limiter = TokenBucketLimiter(default=RateLimit(count=count, per_seconds=per_seconds))
    now, asked, allowed = NOW, [], 0
    for gap, differs in calls:
        now += gap
        asked.append(now + differs)
        allowed += limiter.allow("key", asked[-1])
    assert allowed <= count + (max(asked) - min(asked)) * count / per_seconds + 1e-3


def test_a_clock_set_back_blocks_for_no_longer_than_a_refill():
    for back in (0.5, 59, 60, 61, 3_600, 86_400):
        limiter = TokenBucketLimiter(default=RateLimit(count=1, per_seconds=60))
        assert limiter.allow("key", NOW)
        assert not limiter.allow("key", NOW - back)
        assert limiter.allow("key", NOW - back + 120)


def test_idle_keys_leave():
    limiter = TokenBucketLimiter(default=RateLimit(count=1, per_seconds=1))
    for number in range(1_000):
        limiter.allow(number, NOW)
    for number in range(1_000):
        limiter.allow("busy", NOW + 10 + number / 1_000)
    assert len(limiter) <= 2


def test_a_slow_key_does_not_keep_idle_ones_from_leaving():
    limiter = TokenBucketLimiter(default=RateLimit(count=1, per_seconds=1))
    limiter.allow("slow", NOW, limit=RateLimit(count=1, per_seconds=1e9))
    for number in range(100):
        limiter.allow(number, NOW)
    for number in range(200):
        limiter.allow("busy", NOW + 10 + number)
    assert len(limiter) <= 3


def test_forgetting_an_idle_key_changes_no_answer():
    with_others = TokenBucketLimiter(default=RateLimit(count=2, per_seconds=10))
    alone = TokenBucketLimiter(default=RateLimit(count=2, per_seconds=10))
    for step in range(300):
        now = NOW + step * 0.7
        with_others.allow(f"other-{step}", now)
        if step % 9 < 4:
            assert with_others.allow("key", now) == alone.allow("key", now)


def test_memory_is_bounded_while_every_key_is_busy():
    limiter = TokenBucketLimiter(default=RateLimit(count=1, per_seconds=1e6), keys_max=50)
    for number in range(500):
        assert limiter.allow(number, NOW)
        assert len(limiter) <= 50


def test_the_key_just_used_is_not_the_one_forgotten():
    limiter = TokenBucketLimiter(default=RateLimit(count=1, per_seconds=1e6), keys_max=1)
    for number in range(10):
        assert limiter.allow(number, NOW)
        assert not limiter.allow(number, NOW)


def test_a_smaller_limit_than_before_takes_effect_at_once():
    limiter = TokenBucketLimiter()
    limiter.allow("key", NOW, limit=RateLimit(count=100))
    small = RateLimit(count=2)
    assert [limiter.allow("key", NOW, limit=small) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("now", [float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(now):
    with pytest.raises(ValueError, match="Unix seconds"):
        TokenBucketLimiter().allow("key", now)


def test_a_limiter_for_no_key_is_refused():
    with pytest.raises(ValueError, match="keys_max"):
        TokenBucketLimiter(keys_max=0)


@pytest.mark.parametrize(("count", "per_seconds"), [(0, 60), (1, 0), (1, -1)])
def test_a_limit_that_lets_nothing_pass_is_refused(count, per_seconds):
    with pytest.raises(ValueError):
        RateLimit(count=count, per_seconds=per_seconds)


def test_a_contract_without_a_limiter_says_so():
    with pytest.raises(NotImplementedError):
        LimiterContract().test_keeps_keys_apart()


@pytest.mark.parametrize("count", [1_000_000_001, 2**54, 10**400], ids=["over", "double", "huge"])
def test_a_limit_that_no_bucket_can_count_exactly_is_refused(count):
    with pytest.raises(ValueError, match="count"):
        RateLimit(count=count)
    assert RateLimit(count=1_000_000_000).count == 1_000_000_000
