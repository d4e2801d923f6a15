"""The agent as a task of an asyncio program, beside the program's own work."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ahwal import Agent, AgentConfig, Sample, enroll
from ahwal.testing import ScriptedCollector

served = 0


def collect() -> Iterator[Sample]:
    """Called in a thread, so it may block; what it reads must be safe to read from there."""
    yield Sample("requests_total", served)


async def serve(enough: asyncio.Event) -> None:
    """Stands for the program's own work."""
    global served
    while not enough.is_set():
        served += 1
        await asyncio.sleep(0.02)


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
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.run())
            group.create_task(serve(enough))
            await asyncio.to_thread(collector.wait_for, 2)
            enough.set()
            agent.stop()  # cancelling the task is right, too: it still sends what is queued
        print(agent.status().line())
        print("the work went on beside it:", served > 10)


if __name__ == "__main__":
    asyncio.run(main())
