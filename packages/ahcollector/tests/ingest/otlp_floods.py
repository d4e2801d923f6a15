"""Bodies that are within the limits of size, and ask for as much as they can; what they cost.

It runs as a program of its own too, where the memory of one request can be measured.
"""

import functools
import gc
import gzip
import subprocess
import sys
import zlib
from pathlib import Path

import anyio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_exports import (
    JSON,
    bucketed,
    export,
    gauge,
    histogram,
    number,
    resource,
    send,
)

STATUS, PEAK_RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PLAIN_BYTES = 8 << 20
ZIPPED = {"Content_Encoding": "gzip"}
ZIPPED_JSON = {"Content_Encoding": "gzip", "media": JSON}


@functools.cache
def _bomb():
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = [deflater.compress(bytes(1 << 20)) for _ in range(64)]
    return b"".join(pieces) + deflater.flush()


def field(number_, body):
    """A field of bytes, as a message has it."""
    length, size = b"", len(body)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number_ << 3 | 2]) + length + bytes([size]) + body


def _empties(path, room=PLAIN_BYTES - 64):
    """As many empty messages as fit, at the end of a path of field numbers."""
    *above, last = path
    body = bytes([last << 3 | 2, 0]) * (room // 2)
    for number_ in reversed(above):
        body = field(number_, body)
    return gzip.compress(body, 1)


def _json(open_, piece, close):
    count = (PLAIN_BYTES - len(open_) - len(close)) // len(piece)
    return gzip.compress((open_ + piece * count).rstrip(b",") + close, 1)


def _written(request):
    return gzip.compress(request.SerializeToString(), 1)


def _wide():
    return histogram("h", bucketed(range(400_000), [0] * 400_001))


def _multiplied():
    labels = {f"a{n}": "x" * 1000 for n in range(20)}
    return histogram("h", bucketed(range(10_000), [0] * 10_001, labels))


def _nested():
    found = "x"
    for _ in range(40):
        found = [found]
    return gauge("m", number(1, {"k": found}))


BUCKETS = (
    b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"h","histogram":{"aggregationTemporality":2,'
    b'"dataPoints":[{"timeUnixNano":"1790000000000000000","bucketCounts":['
)

GAUGE = b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":['

# Name to headers, body and the status of the answer. A resource is field 1 of the request, its
# scopes are 2, their metrics 2, a gauge 5, its points 1, their attributes 7.
FLOODS = {
    "gzip bomb": (ZIPPED, _bomb, {413}),
    "empty resources": (ZIPPED, lambda: _empties([1]), {413}),
    "empty scopes": (ZIPPED, lambda: _empties([1, 2]), {413}),
    "empty metrics": (ZIPPED, lambda: _empties([1, 2, 2]), {413}),
    "empty points": (ZIPPED, lambda: _empties([1, 2, 2, 5, 1]), {413}),
    "empty attributes of a point": (ZIPPED, lambda: _empties([1, 2, 2, 5, 1, 7]), {413}),
    "empty attributes of a resource": (ZIPPED, lambda: _empties([1, 1, 1]), {413}),
    "empty exemplars": (ZIPPED, lambda: _empties([1, 2, 2, 5, 1, 5]), {413}),
    "empty values of a list": (ZIPPED, lambda: _empties([1, 2, 2, 5, 1, 7, 2, 5, 1]), {413}),
    "empty values behind a group": (
        ZIPPED,
        lambda: gzip.compress(b"\x7b\x7c" + gzip.decompress(_empties([1, 2])), 1),
        {400},
    ),
    "100,000 attributes": (
        ZIPPED,
        lambda: _written(export(gauge("m", number(1, {f"a{n}": "x" for n in range(100_000)})))),
        {200},
    ),
    "100,000 attributes of a resource": (
        ZIPPED,
        lambda: _written(
            export(gauge("m", number(1)), labels={f"a{n}": "x" for n in range(100_000)})
        ),
        {200},
    ),
    "400,000 buckets": (ZIPPED, lambda: _written(export(_wide())), {413}),
    "labels times buckets": (ZIPPED, lambda: _written(export(_multiplied())), {413}),
    "a long name times points": (
        ZIPPED,
        lambda: _written(
            export(gauge("m" * 100_000, *[number(1, {"n": n}) for n in range(20_000)]))
        ),
        {413},
    ),
    "many resources": (
        ZIPPED,
        lambda: _written(
            ExportMetricsServiceRequest(
                resource_metrics=[
                    resource(gauge("m", number(1)), labels={"service.name": "s", "n": n})
                    for n in range(9_000)
                ]
            )
        ),
        {200},
    ),
    "nested values": (ZIPPED, lambda: _written(export(_nested())), {200}),
    "empty maps of JSON": (
        ZIPPED_JSON,
        lambda: _json(b'{"resourceMetrics":[', b"{},", b"]}"),
        {413},
    ),
    "unknown fields of JSON": (ZIPPED_JSON, lambda: _json(b'{"x":[', b"{},", b"]}"), {413}),
    "unknown objects of JSON in few lists": (
        ZIPPED_JSON,
        lambda: _json(b'{"x":[', b'{"a":{"a":{"a":{}}}},', b"]}"),
        {413},
    ),
    "unknown numbers of JSON": (ZIPPED_JSON, lambda: _json(b'{"x":[', b"0,", b"]}"), {413}),
    "many points of JSON": (
        ZIPPED_JSON,
        lambda: gzip.compress(GAUGE + b"{}" + b',{"timeUnixNano":"1"}' * 299_900 + b"]}}]}]}]}", 1),
        {413},
    ),
    "as many objects of JSON as may be": (
        ZIPPED_JSON,
        lambda: gzip.compress(b'{"resourceMetrics":[{}' + b",{}" * 299_990 + b"]}", 1),
        {413},
    ),
    "as many numbers of JSON as may be": (
        ZIPPED_JSON,
        lambda: gzip.compress(BUCKETS + b"0" + b",0" * 499_990 + b"]}]}}]}]}]}", 1),
        {413},
    ),
    "a long text of JSON": (ZIPPED_JSON, lambda: _json(b'{"x":"', b"x", b'"}'), {200}),
}


def grown_mib(name):
    """How much the memory of this process grew at most by one request."""
    from conftest import World

    async def scenario():
        world = World()
        world.hub.active("agent-1", world.token)
        await send(world, export(gauge("m", number(1))))
        headers, body, _ = FLOODS[name]
        made = body()
        gc.collect()
        PEAK_RESET.write_text("5")  # the peak is from here
        before = peak_kib()
        await send(world, made, **headers)
        return (peak_kib() - before) / 1024

    return anyio.run(scenario)


def grown_mib_elsewhere(module, name):
    """What `grown_mib` of a module says in a process of its own.

    What the parser of messages takes is traced nowhere, and a process that did more before has
    memory to take it from.
    """
    script = f"import {module}, sys; print({module}.grown_mib(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, name],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def peak_kib():
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])
