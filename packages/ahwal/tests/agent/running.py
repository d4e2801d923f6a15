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


async def reaches(condition, *, seconds=15.0):
    """Wait for real threads and sockets, which no fake clock moves."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.005)


class Running:
    """An agent in a task group, under a fake clock."""

    def __init__(self, config, **options):
        self.clock = options.pop("clock", None) or FakeClock(now=time.time())
        self._under_way = 0
        self.agent = make_agent(config, self.clock, **options)
        client = self.agent._clients.current
        for name in ("post_metrics", "get_config", "renew", "post_inventory"):
            setattr(client, name, self._counted(getattr(client, name)))

    def _counted(self, call):
        async def counted(*arguments, **named):
            self._under_way += 1
            try:
                return await call(*arguments, **named)
            finally:
                self._under_way -= 1

        return counted

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

    async def steps(self, count, seconds=10.0):
        """Cycles, each with all that follows from it: the requests, and what they bring."""
        for _ in range(count):
            await self.cycles(1, seconds)
            calm = 0
            with anyio.fail_after(5):
                while calm < 4:
                    await anyio.sleep(0.003)
                    calm = 0 if self._under_way else calm + 1
