"""The contract of `ahrules.Limiter`, as tests."""

from ahrules import Limiter, RateLimit

_NOW = 1_750_000_000.0


class LimiterContract:
    """Subclass it as `class TestMine(LimiterContract)` and give it your limiter."""

    def limiter(self, default: RateLimit) -> Limiter:
        """Return an empty limiter with this default."""
        raise NotImplementedError

    def test_allows_the_count_at_once_and_not_one_more(self) -> None:
        """A full bucket holds `count` tokens."""
        limiter = self.limiter(RateLimit(count=3, per_seconds=60))
        assert [limiter.allow("key", _NOW) for _ in range(5)] == [True, True, True, False, False]

    def test_refills_evenly(self) -> None:
        """A token comes back each `per_seconds / count`, not all at once."""
        limiter = self.limiter(RateLimit(count=3, per_seconds=60))
        for _ in range(3):
            limiter.allow("key", _NOW)
        assert not limiter.allow("key", _NOW + 19.9)
        assert limiter.allow("key", _NOW + 20)
        assert not limiter.allow("key", _NOW + 20)

    def test_never_holds_more_than_the_count(self) -> None:
        """A year of silence saves up one bucket."""
        limiter = self.limiter(RateLimit(count=2, per_seconds=60))
        limiter.allow("key", _NOW)
        later = _NOW + 365 * 86_400
        assert [limiter.allow("key", later) for _ in range(3)] == [True, True, False]

    def test_keeps_keys_apart(self) -> None:
        """One noisy key costs the others nothing."""
        limiter = self.limiter(RateLimit(count=1, per_seconds=60))
        assert limiter.allow(("tenant", "a"), _NOW)
        assert not limiter.allow(("tenant", "a"), _NOW)
        assert limiter.allow(("tenant", "b"), _NOW)

    def test_takes_a_rule_s_own_limit(self) -> None:
        """The limit given with a call replaces the default for that key."""
        limiter = self.limiter(RateLimit(count=1, per_seconds=60))
        own = RateLimit(count=2, per_seconds=60)
        assert [limiter.allow("key", _NOW, limit=own) for _ in range(3)] == [True, True, False]

    def test_takes_a_token_back(self) -> None:
        """A token that was not used can be used again; a full bucket stays as it is."""
        limiter = self.limiter(RateLimit(count=1, per_seconds=60))
        limiter.give_back("key")
        assert limiter.allow("key", _NOW)
        limiter.give_back("key")
        limiter.give_back("key")
        assert limiter.allow("key", _NOW)
        assert not limiter.allow("key", _NOW)

    def test_a_clock_that_goes_back_neither_refills_nor_blocks(self) -> None:
        """An hour back costs no hour of silence."""
        limiter = self.limiter(RateLimit(count=1, per_seconds=60))
        assert limiter.allow("key", _NOW)
        assert not limiter.allow("key", _NOW - 3_600)
        assert limiter.allow("key", _NOW - 3_600 + 60)
