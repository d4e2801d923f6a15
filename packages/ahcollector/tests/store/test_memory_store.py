"""What only the memory store has: its bounds, its image, and its arithmetic."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahcollector.store import Aggregate, MemoryStore
from ahcollector.store._series import MemorySeries
from ahcollector.testing import FakeClock
from ahcollector.testing._contracts.store import samples

anyio_mark = pytest.mark.anyio
HOW = st.sampled_from(list(Aggregate))


def now_ms(clock):
    return round(clock.time() * 1000)


@anyio_mark
async def test_samples_leave_with_their_age():
    clock = FakeClock()
    store = MemoryStore(clock=clock, retention_seconds=3_600)
    t = now_ms(clock)
    await store.write([samples([(t - 3_600_001, 1.0), (t - 3_600_000, 2.0), (t, 3.0)])])
    assert store.dropped == {"too_old": 1}
    assert store.points == 2
    clock.advance(1_800)
    found = await store.range(
        "acme", "web-1", "cpu_percent", start_ms=t - 3_600_000, end_ms=t, step_ms=3_600_000
    )
    assert [series.points for series in found] == [((t, 3.0),)]
    await store.write([samples([(now_ms(clock), 4.0)])])
    assert store.points == 2
    clock.advance(7_200)
    await store.write([samples([(now_ms(clock), 5.0)], name="ah_other")])
    assert store.points == 1
    assert [info.labels[0][1] for info in await store.series("acme")] == ["ah_other"]


@anyio_mark
async def test_too_many_points_push_out_the_oldest_of_all():
    clock = FakeClock()
    store = MemoryStore(clock=clock, points_max=1_000)
    t = now_ms(clock) - 2_000_000
    for n in range(1_500):
        name = f"ah_m{n % 7}"
        await store.write([samples([(t + n * 1_000, float(n))], name=name)])
        assert store.points <= 1_000
    kept = sorted(value for _, series in store.image() for value in series.values)
    assert kept == [float(n) for n in range(1_500 - len(kept), 1_500)]
    assert len(kept) >= 900
    assert store.dropped["points_max"] == 1_500 - len(kept)


@anyio_mark
async def test_too_many_series_are_not_taken_and_counted():
    clock = FakeClock()
    store = MemoryStore(clock=clock, series_max=2)
    t = now_ms(clock)
    for name in ("ah_a", "ah_b", "ah_c", "ah_c", "ah_a"):
        await store.write([samples([(t, 1.0)], name=name)])
    assert len(await store.series("acme")) == 2
    assert store.dropped["series_max"] == 2


@anyio_mark
async def test_non_finite_values_are_counted():
    store = MemoryStore(clock=FakeClock())
    t = now_ms(FakeClock())
    await store.write([samples([(t, math.nan), (t + 1, math.inf), (t + 2, -math.inf)])])
    assert store.dropped["non_finite"] == 3
    assert await store.series("acme") == []
    assert store.points == 0


@anyio_mark
async def test_an_image_gives_the_same_store_back():
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    t = now_ms(clock)
    await store.write(
        [samples([(t, 1.0), (t - 5, 2.0)]), samples([(t, 3.0)], labels=(("core", "0"),))]
    )
    again = MemoryStore(clock=clock)
    for labels, series in store.image():
        again.restore(labels, list(zip(series.timestamps, series.values, strict=True)))
    assert await again.series("acme") == await store.series("acme")
    assert await again.latest("acme", "web-1") == await store.latest("acme", "web-1")
    assert again.points == 3


points = st.dictionaries(
    st.integers(-50, 200), st.floats(allow_nan=False, allow_infinity=False), max_size=30
)


@given(points, st.integers(-60, 100), st.integers(0, 150), st.integers(1, 60), HOW)
def test_a_range_agrees_with_its_definition(held, start, length, step, how):
    series = MemorySeries()
    for timestamp_ms, value in held.items():
        series.put(timestamp_ms, value)
    end = start + length
    found = series.range(start, end, step, aggregate=how, oldest_ms=-10_000)
    expected = {}
    for t in range(start, end + 1, step):
        inside = [held[at] for at in sorted(held) if t - step < at <= t]
        if inside:
            expected[t] = naive(inside, how)
    assert [t for t, _ in found] == list(expected)
    for t, value in found:
        assert value == pytest.approx(expected[t], rel=1e-9, abs=1e-300), t


def naive(values, how):
    if how is Aggregate.COUNT:
        return len(values)
    if how is Aggregate.LAST:
        return values[-1]
    if how is Aggregate.MIN:
        return min(values)
    if how is Aggregate.MAX:
        return max(values)
    if how is Aggregate.AVG:
        return math.fsum(value / len(values) for value in values)
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf if sum(values) > 0 else -math.inf


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(-10, 10)), max_size=60), st.integers(0, 50))
def test_points_stay_sorted_and_single(written, oldest):
    series = MemorySeries()
    expected = {}
    for timestamp_ms, value in written:
        assert series.put(timestamp_ms, value) is (timestamp_ms not in expected)
        expected[timestamp_ms] = value
    assert list(zip(series.timestamps, series.values, strict=True)) == sorted(expected.items())
    assert series.count_from(oldest) == sum(at >= oldest for at in expected)
    assert series.cut(oldest) == sum(at < oldest for at in expected)
    assert all(at >= oldest for at in series.timestamps)


def test_aggregates_of_huge_values():
    """A sum may overflow; a mean never does."""
    series = MemorySeries()
    series.put(1, 1.7e308)
    series.put(2, 1.7e308)
    expected = {Aggregate.SUM: math.inf, Aggregate.AVG: 1.7e308, Aggregate.MAX: 1.7e308}
    for how, value in expected.items():
        found = series.range(10, 10, 10, aggregate=how, oldest_ms=0)
        assert found == ((10, value),)
