import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from ahwal import WAL, Client, Sample, Sender
from ahwal.errors import QueueClosedError
from ahwal.sender import SenderStatus
from ahwal.testing import FakeClock, ScriptedCollector
from ahwire.agent_pb2 import MetricsBatch
from ahwire.batch import count_points

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
        self.senders: list[Sender] = []
        self.sender = self.new_sender()

    def new_sender(self, **options) -> Sender:
        made = Sender(
            queue=options.pop("queue", self.queue),
            transport=options.pop("transport", self.client),
            clock=self.clock,
            rng=Longest(),
            on_config_etag=self.etags.append,
            on_renew_token=lambda: self.renewals.append(True),
            **options,
        )
        self.senders.append(made)
        return made

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
        # The law of the books, looked at whenever a test looks at anything.
        return checked(self.sender.status())

    def check(self) -> None:
        """What holds at the end of every test of a sender."""
        for sender in self.senders:
            # One of before a restart has no queue to ask any more.
            with suppress(QueueClosedError):
                checked(sender.status())
        only_one = len(self.senders) == 1 and self.sender is self.senders[0]
        if only_one and not self.status.inherited and not self.queue.stats().dropped:
            # The books against the disk itself: what they call queued is there, and nothing else.
            held = [points_in(entry.data) for entry in self.queue.peek(1 << 20, 1 << 30)]
            in_memory = self.status.queued_batches - len(held)
            assert in_memory >= 0
            if in_memory == 0:
                assert self.status.queued == sum(held)

    @property
    def posts(self) -> int:
        return len(self.collector.requests("/metrics"))


def checked(status: SenderStatus) -> SenderStatus:
    lost = sum(status.dropped.values())
    assert status.produced + status.inherited == status.delivered + lost + status.queued
    assert min(status.produced, status.inherited, status.delivered, lost, status.queued) >= 0
    return status


def points_in(data: bytes) -> int:
    try:
        return count_points(MetricsBatch.FromString(data))
    except DecodeError:
        return 0


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
    made.check()
    await made.client.aclose()
    made.queue.close()
