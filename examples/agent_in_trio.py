"""The agent as a task of a trio program, beside the program's own work."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import trio

from ahwal import Agent, AgentConfig, Sample, enroll
from ahwal.testing import ScriptedCollector

served = 0


def collect() -> Iterator[Sample]:
    """Called in a thread, so it may block; what it reads must be safe to read from there."""
    yield Sample("requests_total", served)


async def serve() -> None:
    """Stands for the program's own work."""
    global served
    while True:
        served += 1
        await trio.sleep(0.02)


async def main() -> None:
    """Runs both until two batches were delivered."""
    with ScriptedCollector() as collector, tempfile.TemporaryDirectory() as folder:
        config = AgentConfig(
            collector_url=collector.url,
            state_dir=Path(folder),
            interval_seconds=1,
            allow_short_interval=True,  # below 10 s is for tests and examples
        )
        await enroll(config, "a one-time license")
        agent = Agent(config, collect)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent.run)
            nursery.start_soon(serve)
            await trio.to_thread.run_sync(collector.wait_for, 2)
            # Ends both. Cancelled, the agent still sends what is queued, for shutdown_flush_seconds
            # at most, and closes its queue.
            nursery.cancel_scope.cancel()
        print(agent.status().line())
        print("the work went on beside it:", served > 10)


if __name__ == "__main__":
    trio.run(main)
