"""The doors that bench_ingest compares, what is sent to them, and who sends it.

Run as a program it is one server (`serve`) or one crowd of agents (`load`), so that a server has a
process, and a core, of its own.
"""

import argparse
import hashlib
import http.client
import os
import random
import socket
import threading
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import cramjam
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from ahcollector.bus import SHARDS, Delivery, InProcessBus
from ahcollector.clock import SystemClock
from ahcollector.ingest import IngestLimits, SeriesBudget, ingest_app
from ahcollector.presence import MemoryPresence
from ahcollector.registry import (
    CompanySettingsCache,
    Directory,
    MemoryRegistry,
    NegativeCache,
    Resolver,
)
from ahwire import AgentRecord, UUID7Generator
from ahwire.agent_pb2 import MetricsAck, MetricsBatch
from ahwire.codec import GZIP, compress
from ahwire.hub import AgentState
from ahwire.remote_write_pb2 import WriteRequest

PATH = "/agent/v1/metrics"
AGENTS = 8
LABELS = ("device", "mount", "filesystem", "group", "cluster", "model")
BARE, OURS = "bare", "ours"

WRITE_PATH = "/api/v1/write"
_CONNECTIONS = 4
_SERIES_KNOWN = 10_000
_FLUSH_SAMPLES = 5_000
_OK = (200, 202, 204)


def token(agent: int) -> str:
    """What an agent shows."""
    return f"token-of-agent-{agent}"


def batch(agent: int, series_count: int, now_ms: int) -> MetricsBatch:
    """A clean batch of one point a series, a third of them zero."""
    rng = random.Random(agent)
    message = MetricsBatch(seq=now_ms, sent_at_ms=now_ms, collected_at_ms=now_ms)
    message.stats.interval_seconds = 30
    for number in range(series_count):
        series = message.series.add(name=f"disk_read_bytes_total_{number % 40}")
        for label in LABELS:
            series.labels.add(name=label, value=f"{label}-{agent}-{number}")
        value = rng.random() * 1e9 if number % 3 else 0.0
        series.points.add(ts_ms=now_ms, value=value)
    return message


def agents_with(series_count: int) -> int:
    """So many agents that their series together are some that a door can know."""
    return min(AGENTS, max(2, _SERIES_KNOWN // series_count))


def bodies(series_count: int) -> list[bytes]:
    """A gzip body of each agent."""
    now_ms = round(time.time() * 1000)
    return [
        compress(batch(agent, series_count, now_ms).SerializeToString(), GZIP)
        for agent in range(agents_with(series_count))
    ]


def remote_write(agent: int, series_count: int, number: int) -> bytes:
    """The same series as Prometheus writes them, plain."""
    now_ms = round(time.time() * 1000) + number
    request = WriteRequest()
    for series in batch(agent, series_count, now_ms).series:
        written = request.timeseries.add()
        written.labels.add(name="__name__", value=series.name)
        for label in sorted(series.labels, key=lambda one: one.name):
            written.labels.add(name=label.name, value=label.value)
        written.samples.add(timestamp=now_ms, value=series.points[0].value)
    return request.SerializeToString()


def headers(agent: int, body: bytes) -> list[tuple[str, str]]:
    """What an agent sends before a body."""
    return [
        ("host", "collector"),
        ("authorization", f"Bearer {token(agent)}"),
        ("x-ah-proto", "1"),
        ("x-ah-agent-version", "1.0"),
        ("x-request-id", f"{agent:016x}"),
        ("user-agent", "ahwal/1.0"),
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
        ("content-length", str(len(body))),
    ]


async def bare(_scope: Scope, receive: Receive, send: Send) -> None:
    """Decompress, parse, walk once, answer: no check of anything, and nothing is kept."""
    pieces = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    parsed = MetricsBatch.FromString(zlib.decompress(b"".join(pieces), 31))
    seen = points = 0
    for series in parsed.series:
        seen += len(series.name)
        for label in series.labels:
            seen += len(label.name) + len(label.value)
        for point in series.points:
            points += point.ts_ms > 0 and point.value >= 0
    ack = MetricsAck(ack_seq=parsed.seq, accepted_points=points).SerializeToString()
    await send(
        {
            "type": "http.response.start",
            "status": 202,
            "headers": [
                (b"content-type", b"application/x-protobuf"),
                (b"content-length", str(len(ack)).encode()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": ack})


@asynccontextmanager
async def ours() -> AsyncIterator[ASGIApp]:
    """The door with everything behind it in memory, and a reader of the bus."""
    clock = SystemClock()
    rng = random.Random(1)
    registry, negative = MemoryRegistry(), NegativeCache()
    presence = MemoryPresence(event_ids=UUID7Generator(clock, rng).next)
    limits = IngestLimits(metrics_burst=10**9, series_first_hour=10**6)
    budget = SeriesBudget(per_hour=limits.series_per_hour, first_hour=limits.series_first_hour)
    directory = Directory(
        registry=registry, presence=presence, negative=negative, clock=clock, followers=(budget,)
    )
    for agent in range(AGENTS):
        await directory.put(_record(agent))
    resolver = Resolver(
        registry=registry, directory=directory, hub=None, negative=negative, clock=clock
    )
    bus = InProcessBus(clock=clock)
    app = ingest_app(
        resolver=resolver,
        presence=presence,
        bus=bus,
        settings=CompanySettingsCache(hub=None, clock=clock),
        budget=budget,
        limits=limits,
        clock=clock,
        rng=rng,
    )

    held: list[Delivery] = []
    held_samples = 0

    async def drain(delivery: Delivery) -> None:
        nonlocal held_samples
        held.append(delivery)
        held_samples += delivery.batch.samples
        if held_samples >= _FLUSH_SAMPLES:
            for one in held:
                await one.ack()
            held.clear()
            held_samples = 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.subscribe, range(SHARDS), drain)
        yield app
        tasks.cancel_scope.cancel()


def _record(agent: int) -> AgentRecord:
    return AgentRecord(
        agent_id=f"agent-{agent}",
        company_id=f"company-{agent % 3}",
        server_id=f"server-{agent}",
        state=AgentState.ACTIVE,
        token_hash=hashlib.sha256(token(agent).encode()).hexdigest(),
        version=1,
    )


async def serve(name: str, descriptor: int) -> None:
    """Serve a door on a socket that was bound and inherited, until killed."""
    listener = socket.socket(fileno=descriptor)

    async def on(app: ASGIApp) -> None:
        config = uvicorn.Config(app, http="h11", lifespan="off", log_config=None, access_log=False)
        await uvicorn.Server(config).serve(sockets=[listener])

    if name == BARE:
        await on(bare)
    else:
        async with ours() as app:
            await on(app)


class Crowd:
    """Agents on connections that stay open, each sending its next batch when it has the answer.

    Args:
        port: Where they send.
        requests: Path, headers and body of each request; they are sent in turns.
    """

    def __init__(self, port: int, requests: Sequence[tuple[str, dict[str, str], bytes]]) -> None:
        self._port = port
        self._requests = requests
        self._lock = threading.Lock()
        self._sent = 0
        self._refused: list[str] = []

    def send_for(self, seconds: float) -> int:
        """Send until the time is over; return how many were accepted. One refused is an error."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._send, args=(number, end))
            for number in range(_CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._refused:
            raise RuntimeError(f"the door refused a batch: {self._refused[0]}")
        return self._sent

    def _send(self, number: int, end: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while time.monotonic() < end and not self._refused:
            path, given, body = self._requests[number % len(self._requests)]
            connection.request("POST", path, body=body, headers=given)
            response = connection.getresponse()
            answer = response.read()
            if response.status not in _OK:
                self._refused.append(f"{response.status} {answer[:200]!r}")
            number += _CONNECTIONS
            with self._lock:
                self._sent += 1
        connection.close()


def requests_to(door: str, series_count: int) -> list[tuple[str, dict[str, str], bytes]]:
    """What a crowd sends to a door."""
    if door in (BARE, OURS):
        return [
            (PATH, dict(headers(agent, body)), body)
            for agent, body in enumerate(bodies(series_count))
        ]
    kind = {
        "content-type": "application/x-protobuf",
        "content-encoding": "snappy",
        "x-prometheus-remote-write-version": "0.1.0",
    }
    return [
        (WRITE_PATH, kind, bytes(cramjam.snappy.compress_raw(remote_write(agent, series_count, n))))
        for n in range(4)
        for agent in range(AGENTS)
    ]


def main() -> None:
    """One server, or one crowd."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("serve", "load"))
    parser.add_argument("door")
    parser.add_argument("--fd", type=int)
    parser.add_argument("--cpu", type=int)
    parser.add_argument("--port", type=int)
    parser.add_argument("--series", type=int)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    if given.cpu is not None:
        os.sched_setaffinity(0, {given.cpu})
    if given.what == "serve":
        anyio.run(serve, given.door, given.fd)
    else:
        crowd = Crowd(given.port, requests_to(given.door, given.series))
        print(crowd.send_for(given.seconds))


if __name__ == "__main__":
    main()
