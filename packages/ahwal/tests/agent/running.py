"""An agent that runs in a task group, under a clock that the test moves."""

import time

import anyio

from ahwal import Agent, AgentState, Sample
from ahwal.testing import FakeClock
from ahwire import phase_offset

PHASE = phase_offset("agent-1", 10)


def collect():
    return [Sample("work", 1.0)]


def make_agent(config, clock=None, **options):
    options.setdefault("read_machine_id", lambda: "machine-1")
    return Agent(config, options.pop("collect", collect), clock=clock, **options)


async def reaches(condition, *, seconds=5.0):
    """Wait for real threads and sockets, which no fake clock moves."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.005)


class Running:
    """An agent in a task group, under a fake clock."""

    def __init__(self, config, **options):
        self.clock = options.pop("clock", None) or FakeClock(now=time.time())
        self.agent = make_agent(config, self.clock, **options)

    async def __aenter__(self):
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self.agent.run)
        await reaches(lambda: self.agent.status().state is not AgentState.NEW)
        await reaches(lambda: self.clock.sleepers > 0 or self.agent.status().sender is None)
        return self

    async def __aexit__(self, *exc):
        self.agent.stop()
        return await self._group.__aexit__(*exc)

    async def cycles(self, count, seconds=10.0):
        for _ in range(count):
            before = self.agent.status().cycles
            await self.clock.advance(seconds)
            await reaches(lambda before=before: self.agent.status().cycles > before)
            await reaches(lambda: self.clock.sleepers > 0)
