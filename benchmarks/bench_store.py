"""How many samples a second does the writer bring into VictoriaMetrics, of a ready-made body's?

A write is what a worker flushes: 5 batches of 1,000 series with 6 labels and one point each. Ours
checks every series against the limits that VictoriaMetrics keeps to itself, encodes the samples and
compresses them, all of which is Python; the peer posts a body that was made before, through the
same client, and waits for the same answer. So what is missing to one is what the checks and the
encoding cost. It is measured for the import (gzip) and for remote write (snappy), as samples a
second of processor time, this process and VictoriaMetrics together, because other work has its
share of the machine; the rate by the clock is told beside it. Every series exists before the first
round.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
from _harness import Options, Row, Times, by_rounds, main

from ahcollector.bus import SampleBatch, StoredSeries
from ahcollector.store._lines import Window, kept_series
from ahcollector.store._write_forms import ImportForm, RemoteWriteForm, WriteForm
from ahcollector.store.victoria_metrics import VictoriaMetricsStore
from testkit import VictoriaMetricsServer

BATCHES = 5
SERIES = 1_000
SAMPLES = BATCHES * SERIES
ROUNDS = 20
WRITES_A_ROUND = 20
# Nobody asked for a figure: these are about a fifth under the first measurement (0.30 and 0.15), so
# that what becomes slower is seen.
SHARES = {"import": 0.24, "remote_write": 0.12}
ALWAYS = Window(oldest_ms=0, newest_ms=1 << 62)


def flush(now_ms: int) -> list[SampleBatch]:
    """What a worker writes at once."""
    return [
        SampleBatch(
            company_id=f"company-{number % 3}",
            server_id=f"server-{number:04}",
            agent_id=f"agent-{number:04}",
            request_id=f"{number:016x}",
            received_at_ms=now_ms,
            series=tuple(one_series(number, index, now_ms) for index in range(SERIES)),
        )
        for number in range(BATCHES)
    ]


def one_series(number: int, index: int, now_ms: int) -> StoredSeries:
    """A series with 6 labels of its own and one point."""
    labels = (
        ("__name__", f"ah_disk_{index % 20}_bytes"),
        ("company_id", f"company-{number % 3}"),
        ("server_id", f"server-{number:04}"),
        ("device", f"nvme{index}n1"),
        ("fstype", "ext4"),
        ("host", f"host-{number:04}.example.org"),
        ("mode", "rw"),
        ("mount", f"/var/lib/volumes/{index:03d}"),
        ("zone", "eu-central-1"),
    )
    return StoredSeries(labels=labels, points=((now_ms, float(now_ms % 100_000 + index) / 8),))


def processor_seconds(server: VictoriaMetricsServer) -> float:
    """What this process and VictoriaMetrics have had of the processor."""
    # Behind the name, which may hold anything, come the state and then the numbers.
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


async def rates(
    server: VictoriaMetricsServer, write: Callable[[], Awaitable[object]]
) -> tuple[float, float]:
    """Samples a second of processor time, and by the clock."""
    began, began_processor = time.perf_counter(), processor_seconds(server)
    for _ in range(WRITES_A_ROUND):
        await write()
    count = WRITES_A_ROUND * SAMPLES
    worked = processor_seconds(server) - began_processor
    return count / worked, count / (time.perf_counter() - began)


async def post(client: httpx.AsyncClient, form: WriteForm, data: bytes) -> None:
    """Send a body that is ready."""
    answer = await client.post(form.path, content=data, headers=dict(form.headers))
    answer.raise_for_status()


async def one_form(server: VictoriaMetricsServer, protocol: str, options: Options) -> Row:
    """Both in turns; each round has samples of its own time."""
    form: WriteForm = (
        ImportForm(line_bytes_max=8_000_000, body_bytes_max=16_000_000)
        if protocol == "import"
        else RemoteWriteForm(body_bytes_max=16_000_000)
    )
    ours: list[tuple[float, float]] = []
    ready: list[tuple[float, float]] = []
    began_ms = round(time.time() * 1000) - 3_600_000
    async with (
        VictoriaMetricsStore(url=server.url, write_protocol=protocol) as store,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        for number in range(options.rounds(ROUNDS) + 1):
            batches = flush(began_ms + number * 1_000)
            [body] = form.bodies(kept_series(batches, ALWAYS, Counter()))
            cases: list[tuple[list[tuple[float, float]], Callable[[], Awaitable[None]]]] = [
                (ours, partial(store.write, batches)),
                (ready, partial(post, client, form, body.data)),
            ]
            for values, action in cases[:: 1 if number % 2 else -1]:
                values.append(await rates(server, action))
    mine, peer = (Times(values=[rate for rate, _ in found[1:]]) for found in (ours, ready))
    clock, peer_clock = (Times(values=[rate for _, rate in found[1:]]) for found in (ours, ready))
    share = by_rounds(mine, peer).median
    return Row(
        question=f"writes of {SAMPLES:,} samples by {protocol}, against posting a ready-made body",
        measured=(
            f"{share:.2f} of the rate: {mine.each()} samples a second of processor time beside "
            f"{peer.each()}"
        ),
        value=round(share, 3),
        limit=SHARES[protocol],
        less_is_better=False,
        target=f"at least {SHARES[protocol]:g} of the rate",
        note=(
            f"by the clock {clock.median:,.0f} beside {peer_clock.median:,.0f} samples a second; a "
            f"body is {len(body.data):,} bytes"
        ),
        figures={
            "ours_per_processor_second": round(mine.median),
            "ready_made_per_processor_second": round(peer.median),
            "ours_per_second": round(clock.median),
            "ready_made_per_second": round(peer_clock.median),
            "body_bytes": len(body.data),
            "samples_a_write": SAMPLES,
        },
    )


def measure(options: Options) -> list[Row]:
    """The import, then remote write."""

    async def both() -> list[Row]:
        with VictoriaMetricsServer() as server:
            return [
                await one_form(server, protocol, options) for protocol in ("import", "remote_write")
            ]

    return asyncio.run(both())


if __name__ == "__main__":
    main(__file__, measure, packages=["ahcollector", "httpx", "cramjam", "protobuf"])
