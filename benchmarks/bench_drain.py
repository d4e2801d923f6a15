"""How long does a day's backlog take at the protocol's own rate?

A WAL on disk holds 2,880 batches, one each 29 s over the last 23.2 hours (so that no point becomes
too old meanwhile), of 150 or of 1,000 points. A real sender drains it over real HTTP to a local
collector, while the host goes on and makes a batch each 30 s. The minutes are those of a simulated
clock, which the sender's token bucket is filled by; they are what an agent would take beside a
collector that answers at once. What the machine itself needed for it is told beside.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import anyio
from _batches import host_batch
from _harness import Options, Row, main, work_folder

from ahwal import WAL, Client, Sender
from ahwal.testing import FakeClock, ScriptedCollector
from ahwire import limits

BATCHES = 2_880
SPACING_SECONDS = 29
CYCLE_SECONDS = 30.0
GOALS_MINUTES = {150: 10.0, 1_000: 45.0}


def batches(count: int, points: int, now: float) -> Iterator[bytes]:
    """Serialized batches as cycles before `now` left them."""
    message = host_batch(points)
    for number in range(count):
        time_ms = round((now - (count - number) * SPACING_SECONDS) * 1000)
        message.seq = number + 1
        message.collected_at_ms = time_ms
        for index, series in enumerate(message.series):
            point = series.points[0]
            point.ts_ms = time_ms
            if index % 4 == 0:  # most of what a host measures does not change from cycle to cycle
                point.value += number
        yield message.SerializeToString()


async def drain(folder: Path, count: int, points: int) -> dict[str, float]:
    """Fill a WAL, drain it, and return what happened."""
    clock = FakeClock()
    with (
        ScriptedCollector(wall_clock=clock.time) as collector,
        WAL.open(folder, clock=clock, max_bytes=1 << 30) as queue,
    ):
        waiting: list[bytes] = []
        for data in batches(count, points, clock.time()):
            waiting.append(data)
            if len(waiting) == 200:
                queue.append_many(waiting)
                waiting.clear()
        if waiting:
            queue.append_many(waiting)
        wal_bytes = queue.stats().bytes
        async with Client(collector_url=collector.url, token="token-of-a-benchmark") as client:
            sender = Sender(queue=queue, transport=client, clock=clock)
            began, cpu, started = time.perf_counter(), time.process_time(), clock.monotonic()
            rounds = 0
            while sender.status().queued_batches:
                clock.step(CYCLE_SECONDS)
                queue.append(next(batches(1, points, clock.time())))
                rounds += 1
                await sender.tick()
            status = sender.status()
            assert status.delivered == (count + rounds) * points, status
            return {
                "simulated_minutes": round((clock.monotonic() - started) / 60, 1),
                "real_seconds": round(time.perf_counter() - began, 1),
                "cpu_seconds": round(time.process_time() - cpu, 1),
                "requests": len(collector.requests("/metrics")),
                "wal_mib": round(wal_bytes / 2**20, 1),
                "sent_mib": round(
                    sum(len(r.body) for r in collector.requests("/metrics")) / 2**20, 1
                ),
            }


def measure(options: Options) -> list[Row]:
    """Both sizes of a batch."""
    rows = []
    for points, goal in GOALS_MINUTES.items():
        with work_folder() as folder:
            count = BATCHES // 50 if options.quick else BATCHES
            found = anyio.run(drain, folder, count, points)
        a_minute = limits.metrics_per_minute(CYCLE_SECONDS)
        rows.append(
            Row(
                question=f"a day's backlog of {points:,}-point batches, at the protocol's "
                f"{a_minute:g} requests a minute",
                measured=f"{found['simulated_minutes']} min of a simulated clock, "
                f"{found['requests']} requests",
                value=found["simulated_minutes"],
                limit=goal,
                less_is_better=True,
                target=f"at most {goal:g} min",
                note=f"{count:,} batches and what the host made meanwhile, over real HTTP to a "
                f"local collector; the machine needed {found['real_seconds']} s for it, "
                f"{found['cpu_seconds']} s of CPU, the collector's part included; "
                f"{found['wal_mib']} MiB on disk became {found['sent_mib']} MiB sent",
                figures=found,
            )
        )
    return rows


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwal", "ahwire", "protobuf", "httpx"])
