"""What an embedding program may pass: a function, collectors, or both in one sequence."""

from functools import partial

import pytest

from ahwal import ConfigError, Sample
from ahwal.agent._collect import FunctionCollector, to_collectors


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
