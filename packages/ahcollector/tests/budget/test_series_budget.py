"""New series are counted by the hour, known ones are free, memory is bounded."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ahcollector._buckets import Buckets
from ahcollector.ingest import SeriesBudget
from ahwire.batch import SeriesKey

HOUR = 3600


def admit(budget, names, now, agent="a"):
    over = budget.refused(agent, [SeriesKey.of(name, ()) for name in names], now=now)
    admitted = [name for place, name in enumerate(names) if place not in over]
    return admitted, [names[place] for place in over]


def test_the_first_hour_is_wider_than_the_others():
    budget = SeriesBudget(per_hour=1, first_hour=2)
    assert admit(budget, ["x", "y", "z"], 0) == (["x", "y"], ["z"])
    assert admit(budget, ["z"], 3599.9) == ([], ["z"])
    assert admit(budget, ["z", "w"], 3600) == (["z"], ["w"])
    assert admit(budget, ["x", "y", "z"], 3700) == (["x", "y", "z"], [])
    assert admit(budget, ["w"], 7200) == (["w"], [])


def test_one_agents_series_are_not_anothers():
    budget = SeriesBudget(per_hour=1, first_hour=1)
    assert admit(budget, ["x"], 0, "a") == (["x"], [])
    assert admit(budget, ["x", "y"], 0, "b") == (["x"], ["y"])


def test_a_series_silent_for_a_day_is_new_again():
    """It is known to the end of the hour a day after the one it was last sent in."""
    budget = SeriesBudget(per_hour=1, first_hour=1)
    admit(budget, ["x"], 0.5 * HOUR)
    assert admit(budget, ["y", "x"], 24.9 * HOUR) == (["y", "x"], [])
    assert admit(budget, ["z", "y"], 49.9 * HOUR) == (["z"], ["y"])
    assert len(budget) == 1


def test_memory_is_bounded_by_agent_and_in_all():
    budget = SeriesBudget(per_hour=100, first_hour=100, series_per_agent_max=5, series_max=12)
    for number in range(50):
        admit(budget, [f"m{i}" for i in range(10)], number, f"agent-{number}")
        assert len(budget) <= 12
    budget.agent_gone("agent-49")
    budget.agent_gone("nobody")
    assert len(budget) == sum(len(one.hours) for one in budget._agents.values())


def test_known_series_take_no_more_memory_than_is_said():
    """C1: measured, with a hostile agent that begins series as fast as it may."""
    budget = SeriesBudget(per_hour=10_000, first_hour=10_000, series_max=5_000)
    tracemalloc.start()
    try:
        for number in range(20):
            admit(budget, [f"m{number}_{i}" for i in range(1_000)], 60 * number, f"a{number // 5}")
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(budget) == 5_000
    assert taken_bytes / len(budget) < 200


RUNS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.lists(st.sampled_from("pqrstuvw"), max_size=6),
        st.sampled_from([0, 30, 1800, HOUR, 23 * HOUR, 26 * HOUR]),
    ),
    max_size=12,
)


@given(RUNS)
def test_budget_decides_as_a_naive_one_does(runs):
    budget = SeriesBudget(per_hour=2, first_hour=3)
    naive = {}
    now = 1_790_000_000.0
    for agent, names, pause in runs:
        now += pause
        hour = now // HOUR
        sent, window = naive.setdefault(agent, ({}, [now, 3, 0]))
        for name in [name for name, last in sent.items() if last < hour - 24]:
            del sent[name]
        if now - window[0] >= HOUR:
            window[:] = [now, 2, 0]
        taken, refused = [], []
        for name in names:
            if name not in sent and window[2] >= window[1]:
                refused.append(name)
                continue
            window[2] += name not in sent
            sent[name] = hour
            taken.append(name)
        assert admit(budget, names, now, agent) == (taken, refused)
    assert len(budget) >= sum(len(sent) for sent, _ in naive.values())


def test_a_bucket_tells_how_long_to_wait_and_forgets_the_oldest_key():
    buckets = Buckets(entries_max=2)
    rate = {"per_second": 0.5, "burst": 2}
    assert [buckets.take("a", now=0.0, **rate) for _ in range(3)] == [0.0, 0.0, 2.0]
    assert buckets.take("a", now=1.0, **rate) == 1.0
    assert buckets.take("a", now=2.0, **rate) == 0.0
    assert buckets.take("a", now=-5.0, **rate) > 0, "a clock that goes back fills nothing"
    buckets.take("b", now=2.0, **rate)
    buckets.take("c", now=2.0, **rate)
    assert buckets.take("a", now=2.0, **rate) == 0.0
