"""Tests of a program that embeds the agent: real HTTP, a clock that stands still, no network.

Copy the file out of the clone, whose conftest.py needs its development environment.
"""

from collections.abc import Iterator
from pathlib import Path

import anyio

from ahwal import Agent, AgentConfig, Client, MemoryQueue, Sample, Sender, enroll
from ahwal.testing import FakeClock, ScriptedCollector, refuse


class Shop:
    """Stands for the program under test."""

    def collect(self) -> Iterator[Sample]:
        yield Sample("orders_open", 17, {"shop": "north"})


def test_the_shop_says_how_many_orders_are_open() -> None:
    """A collector is a plain function: most tests need no agent."""
    assert list(Shop().collect()) == [Sample("orders_open", 17, {"shop": "north"})]


def test_what_the_shop_measures_arrives(tmp_path: Path) -> None:
    """The whole way, over real HTTP to a port of this machine."""
    with ScriptedCollector() as collector:
        config = AgentConfig(
            collector_url=collector.url,
            state_dir=tmp_path,
            interval_seconds=1,
            allow_short_interval=True,
        )
        anyio.run(enroll, config, "any license will do")
        with Agent(config, Shop().collect):
            collector.wait_for(1)
        values = {s.name: s.points[0].value for s in collector.batches()[0].series}
    assert values["orders_open"] == 17


def test_an_hour_without_the_collector_loses_nothing() -> None:
    """An hour in no time: all parts ask a clock that only the test moves."""

    async def main(clock: FakeClock, collector: ScriptedCollector) -> None:
        collector.always(refuse(503, "unavailable", retry_after="60"))
        async with Client(collector_url=collector.url) as client:
            sender = Sender(queue=MemoryQueue(1_000_000), transport=client, clock=clock)
            for _ in range(60):
                await sender.enqueue(Shop().collect())
                await sender.tick()
                clock.step(60.0)
            assert sender.status().queued == 60
            collector.always(None)
            clock.step(300.0)  # past the longest backoff
            await sender.tick()
        status = sender.status()
        assert (status.delivered, status.queued, sum(status.dropped.values())) == (60, 0, 0)

    clock = FakeClock()
    with ScriptedCollector(wall_clock=clock.time) as collector:
        anyio.run(main, clock, collector)
