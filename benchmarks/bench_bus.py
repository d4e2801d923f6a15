"""How many batches does the bus on Redis carry, of what bare XADD, XREADGROUP and XACK would?

64 tasks publish batches of 100 series of a host, one after the other each, while a subscription to
all 64 shards takes them and acknowledges every one. The time ends when the last acknowledgement is
in Redis and the streams are empty.

The bare peer sends the same batches with the least that is right, through the same client: as many
tasks encode each batch and send an XADD, to 64 streams; eight readers send XREADGROUP for their
eight streams with COUNT 32, as ours do, decode what comes, and acknowledge what each reading of a
stream brought with one XACK. It knows no owner, no tries, no bound, and never deletes an entry.

A second peer carries the same bytes and never looks at them: what it is faster by is the cost of
making bytes of objects and objects of bytes, which any bus between processes has. Both sides of all
three are one process, whose processor time is told beside the rate: where the machine has other
work, its rate says more of that.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable

from _harness import Options, Row, Times, by_rounds, main

from ahcollector.bus import SHARDS, Bus, Delivery, SampleBatch, StoredSeries, shard_for
from ahcollector.bus._entries import decode, encode
from ahcollector.bus.redis import RedisBus
from ahcollector.redis import RedisClient, RedisConfig
from testkit import RedisServer

SERVERS = 640
SERIES = 100
TASKS = 64
BATCHES = 2_000
BATCHES_ALONE = 600
READERS = 8
COUNT = 32
ROUNDS = 7
SHARE = 0.6
NAMES = (
    "cpu_seconds_total",
    "disk_read_bytes_total",
    "disk_used_bytes",
    "network_sent_bytes_total",
)


def batch_of(number: int) -> SampleBatch:
    """What one host sends once."""
    rng = random.Random(number % SERVERS)
    server = f"server-{number % SERVERS:04}"
    company = f"company-{number % 40}"
    # Each is one object for all series of a batch, as the ingest door makes them.
    tenant = (("company_id", company), ("server_id", server))
    now_ms = 1_796_000_000_000 + number * 50
    return SampleBatch(
        company_id=company,
        server_id=server,
        agent_id=f"agent-{server}",
        request_id=f"{number:032x}",
        received_at_ms=now_ms,
        series=tuple(
            StoredSeries(
                labels=(
                    ("__name__", f"ah_{NAMES[index % 4]}"),
                    *tenant,
                    ("device", f"nvme{index // 4}n1"),
                ),
                points=((now_ms, float(rng.randrange(10 ** rng.randint(1, 12)))),),
            )
            for index in range(SERIES)
        ),
    )


class Watch:
    """Time from its making on."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def told(self, count: int) -> tuple[float, float]:
        """How many a second so many are, and processor seconds for each."""
        steady, busy = self._began
        return count / (time.perf_counter() - steady), (time.process_time() - busy) / count


class Ours:
    """A bus, with one subscription for all rounds; `count_kept` tells what its backend keeps."""

    def __init__(self, bus: Bus, count_kept: Callable[[], Awaitable[int]]) -> None:
        self.bus = bus
        self._count_kept = count_kept
        self._left = 0
        self._over = asyncio.Event()

    async def take(self, delivery: Delivery) -> None:
        """Acknowledge at once."""
        await delivery.ack()
        self._left -= 1
        if not self._left:
            self._over.set()

    async def round(self, batches: list[SampleBatch], tasks: int) -> tuple[float, float]:
        """Batches a second, and processor seconds for each."""
        self._left = len(batches)
        self._over.clear()
        watch = Watch()

        async def publish(mine: list[SampleBatch]) -> None:
            for batch in mine:
                await self.bus.publish(batch)

        async with asyncio.TaskGroup() as group:
            for number in range(tasks):
                group.create_task(publish(batches[number::tasks]))
            await self._over.wait()
        while await self._count_kept():
            pass
        return watch.told(len(batches))


class Bare:
    """Commands, and nothing else; with `is_coded`, also bytes of batches and batches of bytes."""

    def __init__(self, client: RedisClient, reading: RedisClient, *, is_coded: bool) -> None:
        self._client = client
        self._reading = reading
        self._is_coded = is_coded
        self._keys = [client.key("bare", str(shard)) for shard in range(SHARDS)]
        self._left = 0

    async def round(self, batches: list[SampleBatch], tasks: int) -> tuple[float, float]:
        """Batches a second, and processor seconds for each."""
        await self._client.call("DEL", *self._keys)
        for key in self._keys:
            await self._client.call("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
        ready = {} if self._is_coded else {batch.request_id: encode(batch) for batch in batches}
        self._left = len(batches)
        watch = Watch()

        async def publish(mine: list[SampleBatch]) -> None:
            for batch in mine:
                data = ready.get(batch.request_id) or encode(batch)
                key = self._keys[shard_for(batch.server_id)]
                await self._client.call("XADD", key, "*", "b", data)

        async with asyncio.TaskGroup() as group:
            for number in range(tasks):
                group.create_task(publish(batches[number::tasks]))
            for number in range(READERS):
                group.create_task(self._read(self._keys[number::READERS]))
        return watch.told(len(batches))

    async def _read(self, keys: list[str]) -> None:
        command = ("XREADGROUP", "GROUP", "g", "c", "COUNT", COUNT, "BLOCK", 20, "STREAMS")
        while self._left > 0:
            reply = await self._reading.call(*command, *keys, *([">"] * len(keys)))
            for key, rows in reply or ():
                if self._is_coded:
                    for _, fields in rows:
                        decode(fields[b"b"])
                await self._client.call("XACK", key, "g", *(entry_id for entry_id, _ in rows))
                self._left -= len(rows)


async def compare(port: int, options: Options, count: int, tasks: int) -> list[Times]:
    """Ours, the peer that carries batches and the one that carries bytes, in turns.

    Three rates, then the processor seconds of all three for a batch.
    """
    config = RedisConfig(port=port, timeout_seconds=10, connections_max=TASKS + 16)
    client = RedisClient(config=config)
    reading = client.for_blocking(block_seconds=1, connections_max=READERS)
    batches = [batch_of(number) for number in range(count)]
    keys = [client.key("bus", "s", str(shard)) for shard in range(SHARDS)]

    async def count_kept() -> int:
        return sum(await client.pipeline([("XLEN", key) for key in keys]))

    ours = Ours(RedisBus(client=client, queue_batches_max=1_000_000), count_kept)
    coded, plain = (Bare(client, reading, is_coded=is_coded) for is_coded in (True, False))
    subscription = asyncio.create_task(ours.bus.subscribe(range(SHARDS), ours.take))
    rounds = [ours.round, coded.round, plain.round]
    values: list[list[float]] = [[] for _ in range(6)]
    for number in range(options.rounds(ROUNDS) + 1):
        for place in range(3):
            turn = (place + number) % 3
            rate, busy = await rounds[turn](batches, tasks)
            if number:
                values[turn].append(rate)
                values[3 + turn].append(busy)
    subscription.cancel()
    await asyncio.wait([subscription])
    await reading.aclose()
    await client.aclose()
    return [Times(values=found) for found in values]


def codec_micros() -> tuple[float, float]:
    """Microseconds to encode and to decode one batch."""
    batch = batch_of(1)
    entry = encode(batch)
    values: tuple[list[float], list[float]] = ([], [])
    for _ in range(500):
        began = time.perf_counter()
        encode(batch)
        between = time.perf_counter()
        decode(entry)
        values[0].append(between - began)
        values[1].append(time.perf_counter() - between)
    return statistics.median(values[0]) * 1e6, statistics.median(values[1]) * 1e6


def row(question: str, times: list[Times]) -> Row:
    """The answer to one comparison."""
    ours, coded, plain, *busy = times
    ours_us, coded_us, plain_us = (one.median * 1e6 for one in busy)
    encoding, decoding = codec_micros()
    found = by_rounds(ours, coded).median
    of_bytes = by_rounds(ours, plain).median
    return Row(
        question=question,
        measured=f"{found:.1%}: {ours.each()} batches a second against {coded.each()}",
        value=round(found, 3),
        limit=SHARE,
        less_is_better=False,
        target="at least 60 %",
        note=(
            f"{of_bytes:.1%} of {plain.each()} that carry ready bytes and never look at "
            f"them; a batch takes {encoding:.0f} µs to encode and {decoding:.0f} µs to decode; of "
            f"the processor {ours_us:.0f} µs, beside {coded_us:.0f} and {plain_us:.0f} of theirs"
        ),
        figures={
            "ours_per_second": round(ours.median),
            "bare_per_second": round(coded.median),
            "bytes_only_per_second": round(plain.median),
            "share_of_bytes_only": round(of_bytes, 3),
            "series": SERIES,
            "entry_bytes": len(encode(batch_of(1))),
            "encode_us": round(encoding),
            "decode_us": round(decoding),
            "ours_processor_us": round(ours_us),
            "bare_processor_us": round(coded_us),
            "bytes_only_processor_us": round(plain_us),
        },
    )


def measure(options: Options) -> list[Row]:
    """Many publishers, then one."""
    with RedisServer() as server:
        many = asyncio.run(compare(server.port, options, BATCHES, TASKS))
        one = asyncio.run(compare(server.port, options, BATCHES_ALONE, 1))
    return [
        row("batches over Redis, published and consumed, against bare commands", many),
        row("the same with one publisher", one),
    ]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahcollector", "redis", "hiredis", "anyio", "zstandard"])
