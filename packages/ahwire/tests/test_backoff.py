import math
import random
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire.backoff import Backoff, parse_retry_after, phase_offset

NOW = datetime(2026, 6, 15, 10, 20, 30, tzinfo=UTC).timestamp()


class High:
    """A generator of chance that always gives the most."""

    def random(self):
        return 1.0

    def uniform(self, a, b):
        return b

    def getrandbits(self, k):
        return (1 << k) - 1


def test_steps_double_to_the_cap_and_reset():
    backoff = Backoff(rng=High())
    assert [backoff.next() for _ in range(9)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    backoff.reset()
    assert backoff.next() == 5


def test_jitter_is_full_at_every_step():
    backoff = Backoff(rng=random.Random(1))
    first = []
    for _ in range(2000):
        backoff.reset()
        first.append(backoff.next())
    assert min(first) < 0.1
    assert max(first) > 4.9
    assert abs(sum(first) / len(first) - 2.5) < 0.15


def test_jitter_is_not_lost_in_the_cap():
    # W20: a crowd at the cap is uniform on [0, 300 s]; peak second at most 3 times the mean.
    waits = []
    for seed in range(1000):
        backoff = Backoff(rng=random.Random(seed))
        for _ in range(10):
            backoff.next()
        waits += [backoff.next() for _ in range(30)]
    seconds = [0] * 300
    for wait in waits:
        seconds[min(int(wait), 299)] += 1
    mean = len(waits) / 300
    assert max(seconds) <= 1.5 * mean
    assert min(seconds) >= 0.5 * mean


def test_retry_after_is_the_least_wait_up_to_an_hour():
    backoff = Backoff(rng=High())
    assert backoff.next(retry_after_seconds=100) == 100
    assert backoff.next(retry_after_seconds=1) == 10
    assert backoff.next(retry_after_seconds=1e9) == 3600
    assert backoff.next(retry_after_seconds=math.inf) == 3600


@pytest.mark.parametrize("value", [0, -5, math.nan, -math.inf])
def test_retry_after_that_asks_nothing_still_backs_off(value):
    assert Backoff(rng=High()).next(retry_after_seconds=value) == 5


@pytest.mark.parametrize(
    ("base", "most"), [(0, 1), (-1, 1), (2, 1), (math.nan, 1), (1, math.inf), (1, math.nan)]
)
def test_steps_must_be_finite_and_in_order(base, most):
    with pytest.raises(ValueError, match="finite"):
        Backoff(base, most, High())


def test_chance_is_an_argument():
    with pytest.raises(TypeError, match="needs rng="):
        Backoff()


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 1000),
)
def test_wait_is_always_between_zero_and_an_hour(asked, seed):
    backoff = Backoff(rng=random.Random(seed))
    for value in asked:
        wait = backoff.next(retry_after_seconds=value)
        assert 0 <= wait <= 3600
        if value is not None and value > 0:
            assert wait >= min(value, 3600)


@pytest.mark.parametrize(
    ("agent_id", "interval_seconds", "offset"),
    [
        # Reckoned by hand from sha256sum.
        ("agent-1", 30, 22.178958508),
        ("", 30, 22.824261652),
        ("agent-1", 0.5, 0.178958508),
    ],
)
def test_phase_is_fixed_by_the_id(agent_id, interval_seconds, offset):
    assert phase_offset(agent_id, interval_seconds) == offset


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8")), st.floats(0.001, 1e6))
def test_phase_is_inside_the_interval(agent_id, interval_seconds):
    assert 0 <= phase_offset(agent_id, interval_seconds) <= interval_seconds


def test_phases_of_a_fleet_are_spread_evenly():
    tenths = [0] * 10
    for number in range(10_000):
        tenths[int(phase_offset(f"agent-{number}", 30) / 3)] += 1
    assert 900 < min(tenths) <= max(tenths) < 1100


@pytest.mark.parametrize("interval_seconds", [0, -1, 1e-10])
def test_phase_needs_an_interval(interval_seconds):
    with pytest.raises(ValueError, match="above 0"):
        phase_offset("a", interval_seconds)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        # W18
        (None, None),
        ("", None),
        ("0", 0),
        ("-5", 0),
        ("1.5", 1.5),
        ("9999999999", 3600),
        ("9" * 120, 3600),
        ("9" * 10_000, None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("0x10", None),
        ("１０", None),
        (" 10 ", 10),
        ("+10", 10),
        ("10, 20", 20),
        ("10,garbage", None),
        (",", None),
        ("Mon, 15 Jun 2026 10:20:40 GMT", 10),
        ("Mon, 15 Jun 2026 10:20:20 GMT", 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
        ("Monday, 15-Jun-26 10:20:40 GMT", 10),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Mon Jun 15 10:20:40 2026", 10),
        ("Sun Nov  6 08:49:37 1994", 0),
        ("Mon, 15 Jun 2026 99:20:40 GMT", None),
        ("Mon, 00 Jun 0000 00:00:00 GMT", None),
        ("garbage", None),
        ("\0", None),
        ("10\r\nX: y", None),
    ],
)
def test_retry_after(value, seconds):
    assert parse_retry_after(value, now=NOW) == seconds


@settings(deadline=None)
@given(
    st.one_of(
        st.text(),
        st.text("0123456789-+.,: GMTonJuSep/aeZ", max_size=40),
        st.from_regex(r"\w{3}, -?\d{1,20} \w{3} -?\d{1,20} \d{1,20}:\d\d:\d\d [\w+-]{1,20}"),
    )
)
def test_retry_after_never_raises(value):
    seconds = parse_retry_after(value, now=NOW)
    assert seconds is None or 0 <= seconds <= 3600
