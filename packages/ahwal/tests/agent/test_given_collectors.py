"""What an embedding program may pass: a function, collectors, or both in one sequence."""

import itertools
import logging
from functools import partial

import pytest

from ahwal import ConfigError, Sample
from ahwal.agent._collect import CollectorSet, FunctionCollector, to_collectors


def orders():
    return [Sample("orders", 1)]


def names(given):
    return [collector.name for collector in to_collectors(given)]


def test_functions_and_collectors_may_stand_in_one_sequence_in_their_order():
    import ahwal.host

    host = ahwal.host.collectors()
    given = to_collectors([*host, orders])
    assert [collector.name for collector in given] == [*(c.name for c in host), "orders"]
    assert [sample.name for sample in given[-1].collect()] == ["orders"]


def test_a_function_gets_a_name_that_is_free_and_valid():
    def umlaut():
        return []

    umlaut.__name__ = "Überblick_2"

    class Nameless:
        def __call__(self):
            return []

    assert names(orders) == ["orders"]
    assert names([orders, orders, orders]) == ["orders", "orders_2", "orders_3"]
    assert names([lambda: orders(), partial(orders), Nameless()]) == [
        "collect",
        "collect_2",
        "collect_3",
    ]
    assert names([umlaut]) == ["berblick_2"]
    long = partial(orders)
    long.__name__ = "x" * 100
    assert names([long, long]) == ["x" * 64, "x" * 56 + "_2"]


def test_a_functions_name_makes_way_for_a_collectors():
    assert names([orders, FunctionCollector("orders", orders)]) == ["orders_2", "orders"]


def test_two_collectors_of_one_name_and_what_is_neither_are_refused():
    for given in (
        [FunctionCollector("a", orders), FunctionCollector("a", orders)],
        [FunctionCollector("A!", orders)],
        [orders, 5],
    ):
        with pytest.raises(ConfigError):
            to_collectors(given)


@pytest.mark.anyio
async def test_what_is_over_the_limit_of_a_cycle_is_left_out_and_said_once(caplog):
    """Also of a collector that would never end."""

    def endless():
        return (Sample("n", n) for n in itertools.count())

    collectors = CollectorSet(
        collectors=to_collectors([orders, endless]),
        logger=logging.getLogger("ahwal.agent"),
        samples_max=5,
    )
    for _ in range(3):
        samples = await collectors.collect(timeout_seconds=5.0)
        assert [sample.name for sample in samples] == ["orders", "n", "n", "n", "n"]
    assert [record.message for record in caplog.records] == [
        "the collectors gave more than 5 samples in one cycle; the rest is left out"
    ]
    assert len(await collectors.collect(disabled=["endless"], timeout_seconds=5.0)) == 1
    assert len(caplog.records) == 1
