"""How many batches does the bus on NATS carry, of what bare publish, fetch and ack would?

64 tasks publish batches of 100 series of a host, one after the other each, while a subscription to
all 64 shards takes them and acknowledges every one. The time ends when the stream is empty.

The bare peer sends the same batches with nats-py's own JetStream: as many tasks encode each batch
and publish it, to 64 subjects of a work queue; a pull consumer a subject fetches up to 32, decodes
what comes, and sends an acknowledgement for each without waiting for an answer. It knows no owner
and no tries, and what it acknowledged may be lost with the connection.
"""

import asyncio
import json
from contextlib import suppress

import nats
import nats.errors
from _harness import Options, Row, Times, by_rounds, main
from bench_bus import BATCHES, BATCHES_ALONE, ROUNDS, TASKS, Ours, Watch, batch_of

from ahcollector.bus import SHARDS, SampleBatch, shard_for
from ahcollector.bus._entries import decode, encode
from ahcollector.bus.jetstream import BufferSize, JetStreamBus
from ahcollector.nats import NatsClient, NatsConfig
from testkit import NatsServer

COUNT = 32
BYTES = 256 << 20
# The figure that the bus on Redis has; none is set for NATS.
SHARE = 0.6


class Bare:
    """What nats-py offers, and nothing else."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._left = 0

    async def begin(self) -> None:
        """Connect, and make the stream and its consumers."""
        self._nats = await nats.connect(self._url)
        self._jetstream = self._nats.jetstream()
        await self._jetstream.add_stream(
            name="bare", subjects=["bare.*"], retention="workqueue", max_bytes=BYTES
        )
        self._pulls = [
            await self._jetstream.pull_subscribe(f"bare.{shard}", durable=f"c{shard}")
            for shard in range(SHARDS)
        ]

    async def end(self) -> None:
        """Disconnect."""
        await self._nats.close()

    async def round(self, batches: list[SampleBatch], tasks: int) -> tuple[float, float]:
        """Batches a second, and processor seconds for each."""
        self._left = len(batches)
        watch = Watch()

        async def publish(mine: list[SampleBatch]) -> None:
            for batch in mine:
                subject = f"bare.{shard_for(batch.server_id)}"
                await self._jetstream.publish(subject, encode(batch))

        async with asyncio.TaskGroup() as group:
            for number in range(tasks):
                group.create_task(publish(batches[number::tasks]))
            for pull in self._pulls:
                group.create_task(self._read(pull))
        return watch.told(len(batches))

    async def _read(self, pull: nats.js.JetStreamContext.PullSubscription) -> None:
        while self._left > 0:
            with suppress(nats.errors.TimeoutError, TimeoutError):
                for message in await pull.fetch(COUNT, timeout=0.05):
                    decode(message.data)
                    await message.ack()
                    self._left -= 1


async def compare(url: str, options: Options, count: int, tasks: int) -> list[Times]:
    """Ours and the bare one in turns: two rates, then the processor seconds of both for a batch."""
    client = NatsClient(config=NatsConfig(servers=(url,), prefix=f"bench{tasks}"))

    async def count_kept() -> int:
        info = await client.request(f"$JS.API.STREAM.INFO.{client.prefix}_bus")
        return int(json.loads(info.data)["state"]["messages"])

    size = BufferSize(bytes_max=BYTES, batches_max=100_000, shard_batches_max=100_000)
    bus = JetStreamBus(client=client, size=size, dead_bytes_max=8 << 20)
    ours, bare = Ours(bus, count_kept), Bare(url)
    await bare.begin()
    subscription = asyncio.create_task(ours.bus.subscribe(range(SHARDS), ours.take))
    batches = [batch_of(number) for number in range(count)]
    values: list[list[float]] = [[] for _ in range(4)]
    for number in range(options.rounds(ROUNDS) + 1):
        for place in range(2):
            turn = (place + number) % 2
            rate, busy = await (ours.round, bare.round)[turn](batches, tasks)
            if number:
                values[turn].append(rate)
                values[2 + turn].append(busy)
    subscription.cancel()
    await asyncio.wait([subscription])
    await bare.end()
    await client.aclose()
    return [Times(values=found) for found in values]


def row(question: str, times: list[Times]) -> Row:
    """The answer to one comparison."""
    ours, bare, *busy = times
    ours_us, bare_us = (one.median * 1e6 for one in busy)
    found = by_rounds(ours, bare).median
    return Row(
        question=question,
        measured=f"{found:.1%}: {ours.each()} batches a second against {bare.each()}",
        value=round(found, 3),
        limit=SHARE,
        less_is_better=False,
        target="at least 60 %, as on Redis",
        note=f"of the processor {ours_us:.0f} µs a batch, beside {bare_us:.0f} of theirs",
        figures={
            "ours_per_second": round(ours.median),
            "bare_per_second": round(bare.median),
            "ours_processor_us": round(ours_us),
            "bare_processor_us": round(bare_us),
        },
    )


def measure(options: Options) -> list[Row]:
    """Many publishers, then one."""
    with NatsServer() as server:
        many = asyncio.run(compare(server.url, options, BATCHES, TASKS))
        one = asyncio.run(compare(server.url, options, BATCHES_ALONE, 1))
    return [
        row("batches over NATS, published and consumed, against bare nats-py", many),
        row("the same with one publisher", one),
    ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahcollector", "nats-py", "anyio", "zstandard"])
