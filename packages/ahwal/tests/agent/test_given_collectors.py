"""What an embedding program may pass: a function, collectors, or both in one sequence."""

import asyncio
import itertools
import logging
import traceback
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


async def later():
    return []


async def one_by_one():
    yield Sample("x", 1)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([FunctionCollector("a", orders), FunctionCollector("a", orders)], "'a' is there twice"),
        ([FunctionCollector("A!", orders)], "'A!' is not made of lower-case letters"),
        ([FunctionCollector(5, orders)], "name 5 is not made of lower-case letters"),
        ([orders, 5], "5 is no collector"),
        (5, "5 is no collector"),
        (None, "None is no collector"),
        ([later], "later is async"),
        (one_by_one, "one_by_one is async"),
        ([FunctionCollector("a", orders), Sample("x", 1)], "is no collector"),
    ],
)
def test_a_set_of_collectors_that_cannot_work_is_refused_with_what_is_wrong(given, named):
    with pytest.raises(ConfigError, match=named) as caught:
        to_collectors(given)
    assert not ("twice" in str(caught.value) and "lower-case" in str(caught.value))


def half_way():
    yield Sample("half", 1)
    raise LookupError("half way")


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises(error):
    def broken():
        raise error

    return broken


BROKEN = [
    half_way,
    lambda: None,
    lambda: 5,
    lambda: later(),
    raises(SystemExit(1)),
    raises(KeyboardInterrupt()),
    raises(GeneratorExit()),
    raises(asyncio.CancelledError()),
    raises(StopIteration()),
    raises(TimeoutError("of its own")),
    raises(SilentError()),
    raises(ExceptionGroup("several", [ValueError("a")])),
]


@pytest.mark.anyio
@pytest.mark.parametrize("broken", BROKEN)
async def test_whatever_a_collector_raises_costs_its_own_samples_and_shows_where(broken, caplog):
    """Those of before too: half of a collector's samples would look like all of them."""
    collectors = CollectorSet(
        collectors=to_collectors([orders, broken, orders]), logger=logging.getLogger("ahwal.agent")
    )
    for _ in range(2):
        samples = await collectors.collect(timeout_seconds=5.0)
        assert [sample.name for sample in samples] == ["orders", "orders"]
    first, *more = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not more
    assert "failed" in first.getMessage()
    assert "no result within" not in first.getMessage()
    assert first.exc_info
    text = "".join(traceback.format_exception(first.exc_info[1]))
    assert __file__ in text or broken in BROKEN[1:4]


@pytest.mark.anyio
async def test_what_a_collector_gives_beside_samples_goes_on_to_be_counted():
    collectors = CollectorSet(
        collectors=to_collectors(lambda: [Sample("a", 1), ("t", 1), None]),
        logger=logging.getLogger("ahwal.agent"),
    )
    samples = await collectors.collect(timeout_seconds=5.0)
    assert samples == [Sample("a", 1), ("t", 1), None]


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
