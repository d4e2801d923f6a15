"""A plain threaded daemon that measures itself with the agent in a thread of its own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio

from ahwal import Agent, AgentConfig, Sample, enroll
from ahwal.testing import ScriptedCollector


class Shop:
    """Stands for the daemon's own work."""

    open_orders = 17

    def collect(self) -> Iterator[Sample]:
        """What the agent asks for once an interval, in its own thread."""
        yield Sample("orders_open", float(self.open_orders), {"shop": "north"})


def main() -> None:
    """Runs the daemon until two batches were delivered."""
    with ScriptedCollector() as collector, tempfile.TemporaryDirectory() as folder:
        config = AgentConfig(
            collector_url=collector.url,
            state_dir=Path(folder),
            interval_seconds=1,
            allow_short_interval=True,
        )
        anyio.run(enroll, config, "a one-time license")
        with Agent(config, Shop().collect) as agent:
            collector.wait_for(2)
        print(agent.status().line())
        values = {series.name for batch in collector.batches() for series in batch.series}
        print("delivered:", ", ".join(sorted(name for name in values if "orders" in name)))


if __name__ == "__main__":
    main()
