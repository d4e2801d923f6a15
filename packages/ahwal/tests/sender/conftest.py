import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ahwal import WAL, Client, Sample, Sender
from ahwal.sender import SenderStatus
from ahwal.testing import FakeClock, ScriptedCollector

TOKEN = "canary-token-1f6e0c"


class Longest(random.Random):
    """Jitter that always takes the whole step, so that a test knows when the next try is due."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Rig:
    """A real sender over a real WAL and real HTTP, under a clock that the test moves."""

    def __init__(self, collector: ScriptedCollector, path: Path) -> None:
        self.collector = collector
        self.clock = FakeClock()
        collector.wall_clock = self.clock.time
        self.path = path
        self.queue = WAL.open(path, clock=self.clock)
        self.client = Client(collector_url=collector.url, token=TOKEN, send_timeout_seconds=5.0)
        self.etags: list[str] = []
        self.renewals: list[bool] = []
        self.sender = self.new_sender()

    def new_sender(self, **options) -> Sender:
        return Sender(
            queue=options.pop("queue", self.queue),
            transport=options.pop("transport", self.client),
            clock=self.clock,
            rng=Longest(),
            on_config_etag=self.etags.append,
            on_renew_token=lambda: self.renewals.append(True),
            **options,
        )

    async def enqueue(self, series: int = 1, *, age_seconds: float = 0.0) -> int:
        return await self.sender.enqueue(
            [Sample("work", index, {"index": str(index)}) for index in range(series)],
            collected_at_ms=round((self.clock.time() - age_seconds) * 1000),
        )

    async def tick(self, wait_seconds: float = 30.0) -> int:
        """One tick, a collection interval after the last, so that the pace allows it."""
        self.clock.step(wait_seconds)
        return await self.sender.tick()

    @property
    def status(self) -> SenderStatus:
        status = self.sender.status()
        lost = sum(status.dropped.values())
        # The law of the books, looked at whenever a test looks at anything.
        assert status.produced + status.inherited == status.delivered + lost + status.queued
        return status

    @property
    def posts(self) -> int:
        return len(self.collector.requests("/metrics"))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def collector() -> Iterator[ScriptedCollector]:
    with ScriptedCollector() as running:
        yield running


@pytest.fixture
async def rig(collector: ScriptedCollector, tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(collector, tmp_path / "wal")
    yield made
    await made.client.aclose()
    made.queue.close()
