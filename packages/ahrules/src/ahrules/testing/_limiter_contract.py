"""The contract of `ahrules.Limiter`, as tests."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from ahrules import Limiter, RateLimit

_NOW = 1_750_000_000.0


class LimiterContract:
    """Subclass it as `class TestMine(LimiterContract)` and give it your limiter.

    A limiter that waits for a server also says how its coroutines are run, as
    `def run(self, test): anyio.run(test)`; and it releases what it holds after the `yield` of
    `opened`.
    """

    def limiter(self, default: RateLimit) -> Limiter:
        """Return an empty limiter with this default."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, default: RateLimit) -> AsyncIterator[Limiter]:
        """Hold an empty limiter open for one test; by default what `limiter` returns."""
        yield self.limiter(default)

    def run(self, test: Callable[[], Coroutine[object, None, None]]) -> None:
        """Run a test to its end; as it is, for a limiter that never waits."""
        coroutine = test()
        try:
            coroutine.send(None)
        except StopIteration:
            return
        coroutine.close()
        raise RuntimeError("this limiter waits for something: let `run` do anyio.run(test)")

    def _ask(
        self, default: RateLimit, test: Callable[[Limiter], Coroutine[object, None, None]]
    ) -> None:
        async def opened() -> None:
            async with self.opened(default) as limiter:
                await test(limiter)

        self.run(opened)

    def test_allows_the_count_at_once_and_not_one_more(self) -> None:
        """A full bucket holds `count` tokens."""

        async def check(limiter: Limiter) -> None:
            found = [await limiter.allow("key", _NOW) for _ in range(5)]
            assert found == [True, True, True, False, False]

        self._ask(RateLimit(count=3, per_seconds=60), check)

    def test_refills_evenly(self) -> None:
        """A token comes back each `per_seconds / count`, not all at once."""

        async def check(limiter: Limiter) -> None:
            for _ in range(3):
                await limiter.allow("key", _NOW)
            assert not await limiter.allow("key", _NOW + 19.9)
            assert await limiter.allow("key", _NOW + 20)
            assert not await limiter.allow("key", _NOW + 20)

        self._ask(RateLimit(count=3, per_seconds=60), check)

    def test_refused_calls_cost_nothing(self) -> None:
        """Who asks each second gets its token as soon as who waits."""

        async def check(limiter: Limiter) -> None:
            assert await limiter.allow("key", _NOW)
            found = [await limiter.allow("key", _NOW + second) for second in range(1, 61)]
            assert found == [False] * 59 + [True]

        self._ask(RateLimit(count=1, per_seconds=60), check)

    def test_never_holds_more_than_the_count(self) -> None:
        """A year of silence saves up one bucket."""

        async def check(limiter: Limiter) -> None:
            await limiter.allow("key", _NOW)
            later = _NOW + 365 * 86_400
            assert [await limiter.allow("key", later) for _ in range(3)] == [True, True, False]

        self._ask(RateLimit(count=2, per_seconds=60), check)

    def test_keeps_keys_apart(self) -> None:
        """One noisy key costs the others nothing, and a colon in an id joins none."""

        async def check(limiter: Limiter) -> None:
            keys = [("tenant", "a"), ("tenant", "b"), ("tenant:a", "b"), ("tenant", "a:b")]
            for key in keys:
                assert await limiter.allow(key, _NOW)
            for key in keys:
                assert not await limiter.allow(key, _NOW)

        self._ask(RateLimit(count=1, per_seconds=60), check)

    def test_takes_a_rule_s_own_limit(self) -> None:
        """The limit given with a call replaces the default for that key."""

        async def check(limiter: Limiter) -> None:
            own = RateLimit(count=2, per_seconds=60)
            found = [await limiter.allow("key", _NOW, limit=own) for _ in range(3)]
            assert found == [True, True, False]

        self._ask(RateLimit(count=1, per_seconds=60), check)

    def test_takes_a_token_back(self) -> None:
        """A token that was not used can be used again; a full bucket stays as it is."""

        async def check(limiter: Limiter) -> None:
            await limiter.give_back("key")
            assert await limiter.allow("key", _NOW)
            await limiter.give_back("key")
            await limiter.give_back("key")
            assert await limiter.allow("key", _NOW)
            assert not await limiter.allow("key", _NOW)

        self._ask(RateLimit(count=1, per_seconds=60), check)

    def test_a_clock_that_goes_back_neither_refills_nor_blocks(self) -> None:
        """An hour back costs no hour of silence."""

        async def check(limiter: Limiter) -> None:
            assert await limiter.allow("key", _NOW)
            assert not await limiter.allow("key", _NOW - 3_600)
            assert await limiter.allow("key", _NOW - 3_600 + 60)

        self._ask(RateLimit(count=1, per_seconds=60), check)

    def test_clocks_that_differ_by_a_second_gain_nothing(self) -> None:
        """Two processes whose clocks differ share one limit: no second is refilled twice."""

        async def check(limiter: Limiter) -> None:
            found = [await limiter.allow("key", _NOW + number % 2) for number in range(100)]
            assert sum(found) == 6

        # One token a second: five at once, and one for the second between the two.
        self._ask(RateLimit(count=5, per_seconds=5), check)
