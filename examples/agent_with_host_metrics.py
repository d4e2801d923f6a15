"""A daemon that sends this machine's metrics and two of its own with one agent."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio

import ahwal.host
from ahwal import Agent, AgentConfig, Sample, enroll
from ahwal.testing import ScriptedCollector

QUEUE = ["letter", "parcel"]


def jobs() -> Iterator[Sample]:
    """The daemon's own figures; the function's name is the collector's name."""
    yield Sample("jobs_waiting", len(QUEUE), {"queue": "mail"})
    yield Sample("jobs.bytes", sum(map(len, QUEUE)), {"queue": "mail"})


def main() -> None:
    """Runs the daemon until two batches were delivered."""
    with ScriptedCollector() as collector, tempfile.TemporaryDirectory() as folder:
        config = AgentConfig(
            collector_url=collector.url,
            state_dir=Path(folder),
            interval_seconds=1,
            allow_short_interval=True,  # below 10 s is for tests and examples
            disabled_collectors=["network"],
        )
        anyio.run(enroll, config, "a one-time license")
        with Agent(config, [*ahwal.host.collectors(), jobs]) as agent:
            collector.wait_for(2)
        print(agent.status().line())
        names = {series.name for batch in collector.batches() for series in batch.series}
        for name in ("cpu_usage_percent", "memory_used_percent", "jobs_waiting", "jobs.bytes"):
            print("delivered:", name, name in names)
        print("network was left out:", "network_sent_bytes_total" not in names)


if __name__ == "__main__":
    main()
