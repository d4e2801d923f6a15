"""How many batches a second does the ingest door take, of a bare handler's?

The bare handler is an ASGI application that inflates the body, parses it, reads every name, label
and point once in Python and answers; it checks nothing and keeps nothing. Ours is the whole door:
token, sign of life, rate, limits, every series judged, the budget of new series, the tenant's
labels, the bus, which a consumer drains in the same process (holding 5,000 samples at a time, as a
worker does), and the acknowledgement. Batches have
6 labels and one point a series; the series are known, as they are in every batch of an agent but
its first ones.

In process, both are called through the ASGI interface in turns and the processor time is taken.
Served, each runs under uvicorn (h11, as everywhere) in a process of its own, and a crowd of agents
in another process keeps its connections full; what is compared is batches a second of the server's
processor time, because the crowd and other work have their share of the machine. VictoriaMetrics'
remote-write door takes the same series beside them, for scale.
"""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from _harness import Options, Row, Times, by_rounds, in_turns, main
from _ingest_doors import BARE, OURS, PATH, bare, bodies, headers, ours
from starlette.types import ASGIApp, Message, Scope

from testkit import VictoriaMetricsServer

SIZES = (1_000, 100, 5_000)
ROUNDS = 40
SERVED_ROUNDS = 6
SERVED_SECONDS = 3.0
SERVED_SERIES = 1_000
SERIES_A_ROUND = 16_000
SHARE = 0.6
SCALE = "VictoriaMetrics"
DOORS = Path(__file__).with_name("_ingest_doors.py")
NANOSECONDS = 1e9


async def answer_of(app: ASGIApp, scope: Scope, body: bytes) -> None:
    """Send one request through the ASGI interface; only an acceptance will do."""
    status: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    await app(scope, receive, send)
    if status != [202]:
        raise RuntimeError(f"the door answered {status}")


def scope_of(agent: int, body: bytes) -> Scope:
    """What a server hands over with a request; an application may change it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers(agent, body)],
        "client": ("127.0.0.1", 40_000),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


async def send_all(app: ASGIApp, packed: list[bytes], count: int) -> float:
    """Batches a second of processor time."""
    began = time.process_time()
    for number in range(count):
        agent = number % len(packed)
        await answer_of(app, scope_of(agent, packed[agent]), packed[agent])
        # As a server that reads the next request: what consumes the bus has its turn.
        await asyncio.sleep(0)
    return count / (time.process_time() - began)


def in_process(options: Options) -> list[Row]:
    """Both doors in this process, for each size of a batch."""

    async def all_sizes() -> list[Row]:
        async with ours() as door:
            return [await one_size(options, door, size) for size in SIZES]

    return asyncio.run(all_sizes())


async def one_size(options: Options, door: ASGIApp, size: int) -> Row:
    """Both doors in turns."""
    packed = bodies(size)
    count = max(2 * len(packed), SERIES_A_ROUND // size)
    await send_all(door, packed, len(packed))
    found = await in_turns_async(
        {
            BARE: lambda: send_all(bare, packed, count),
            OURS: lambda: send_all(door, packed, count),
        },
        rounds=options.rounds(ROUNDS),
    )
    return share_row(
        f"{size:,} known series a batch, in process", found, note=series_note(found, size)
    )


async def in_turns_async(
    cases: dict[str, Callable[[], Awaitable[float]]], *, rounds: int
) -> dict[str, Times]:
    """As `in_turns` of the harness, for what awaits."""
    values: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for number in range(rounds + 1):
        for name in names if number % 2 else reversed(names):
            value = await cases[name]()
            if number:
                values[name].append(value)
    return {name: Times(values=found) for name, found in values.items()}


def series_note(found: dict[str, Times], size: int) -> str:
    """The cost of one series."""
    each = {name: 1e6 / (times.median * size) for name, times in found.items()}
    return f"{each[OURS]:.2f} µs a series beside {each[BARE]:.2f} µs"


def share_row(question: str, found: dict[str, Times], *, note: str = "") -> Row:
    """Our rate as a share of the bare handler's, round by round."""
    share = by_rounds(found[OURS], found[BARE])
    return Row(
        question=question,
        measured=(
            f"{share.each(2)} of the rate: {found[OURS].each()} batches a second of processor time "
            f"beside {found[BARE].each()}"
        ),
        value=round(share.median, 3),
        limit=SHARE,
        less_is_better=False,
        target=f"at least {SHARE:g} of the rate of a bare handler",
        note=note,
        figures={
            "ours_batches_per_second": found[OURS].median,
            "bare_batches_per_second": found[BARE].median,
        },
    )


class Server:
    """One door, served by processes that share a port."""

    def __init__(self, stack: ExitStack, door: str, *, processes: int) -> None:
        listener = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        self.port: int = listener.getsockname()[1]
        self.pids = [
            stack.enter_context(_running(door, listener.fileno(), cpu)) for cpu in range(processes)
        ]


@contextmanager
def _running(door: str, descriptor: int, cpu: int) -> Iterator[int]:
    command = [sys.executable, str(DOORS), "serve", door]
    command += ["--fd", str(descriptor), "--cpu", str(cpu)]
    process = subprocess.Popen(command, pass_fds=(descriptor,))
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pids: list[int]) -> float:
    """Processor time that all threads of the processes have had."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / NANOSECONDS


def rate_of(door: str, port: int, pids: list[int], seconds: float) -> tuple[float, float]:
    """Batches a second: of the server's processor time, and of the clock."""
    before = cpu_seconds(pids)
    command = [sys.executable, str(DOORS), "load", door, "--port", str(port)]
    command += ["--series", str(SERVED_SERIES), "--seconds", str(seconds)]
    count = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return count / (cpu_seconds(pids) - before), count / seconds


def served(options: Options) -> list[Row]:
    """Over loopback: one process, then two."""
    with VictoriaMetricsServer() as scale:
        assert scale.pid is not None
        place = (scale.port, [scale.pid])
        return [
            served_by(options, processes, words, place)
            for processes, words in (
                (1, "one process on one core"),
                (2, "two processes on one port"),
            )
        ]


def served_by(options: Options, processes: int, words: str, scale: tuple[int, list[int]]) -> Row:
    """Both doors in so many processes, VictoriaMetrics beside them."""
    seconds = 1.0 if options.quick else SERVED_SECONDS
    with ExitStack() as stack:
        places = {SCALE: scale}
        for door in (BARE, OURS):
            server = Server(stack, door, processes=processes)
            places[door] = (server.port, server.pids)
        clocks: dict[str, list[float]] = {door: [] for door in places}

        def measured(door: str) -> float:
            of_cpu, of_clock = rate_of(door, *places[door], seconds)
            clocks[door].append(of_clock)
            return of_cpu

        found = in_turns(
            {door: partial(measured, door) for door in places},
            rounds=2 if options.quick else SERVED_ROUNDS,
        )
    by_clock = {door: Times(values=values[1:]).median for door, values in clocks.items()}
    note = (
        f"by the clock {by_clock[OURS]:,.0f} beside {by_clock[BARE]:,.0f} batches a second; for "
        f"scale, VictoriaMetrics' remote-write door takes {found[SCALE].median:,.0f} such batches "
        f"a second of processor time and {by_clock[SCALE]:,.0f} by the clock"
    )
    return share_row(f"{SERVED_SERIES:,} known series a batch, {words}", found, note=note)


def measure(options: Options) -> list[Row]:
    """All of it."""
    return [*in_process(options), *served(options)]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahcollector", "protobuf", "starlette", "uvicorn"])
