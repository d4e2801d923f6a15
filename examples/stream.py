"""A batch on its way: published on a bus, written by a worker, read from the store."""

import random
import time

import anyio

from ahcollector.bus import InProcessBus, SampleBatch, StoredSeries
from ahcollector.clock import SystemClock
from ahcollector.store import MemoryStore
from ahcollector.worker import Worker
from ahwire.names import metric_name


def batch(at_ms: int) -> SampleBatch:
    """Make what the ingest door makes of a request."""
    labels = (
        ("__name__", metric_name("shop.orders")),
        ("company_id", "acme"),
        ("server_id", "web-1"),
    )
    return SampleBatch(
        company_id="acme",
        server_id="web-1",
        agent_id="agent-1",
        request_id="00000000000000aa",
        received_at_ms=at_ms,
        series=(StoredSeries(labels=labels, points=((at_ms, 12.0),)),),
    )


async def main() -> None:
    """Publish one batch, let a worker take it, and read it back."""
    clock = SystemClock()
    bus, store = InProcessBus(clock=clock), MemoryStore(clock=clock)
    worker = Worker(bus=bus, store=store, clock=clock, rng=random.Random())
    await bus.publish(batch(round(time.time() * 1000)))
    await bus.close()  # nothing more comes, so the worker ends when everything is written
    await worker.run()
    print("written:", worker.stats().samples_written)
    for sample in await store.latest("acme", "web-1"):
        print(dict(sample.labels)["__name__"], sample.value)


if __name__ == "__main__":
    anyio.run(main)
