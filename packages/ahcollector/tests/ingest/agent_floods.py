"""Batches that are within the limits of size, and ask for as much as they can; what they cost.

It runs as a program of its own too, where the memory of one request can be measured.
"""

import gc
import gzip

import anyio
from otlp_floods import PEAK_RESET, PLAIN_BYTES, field, peak_kib

NOW_MS = 1_790_000_000_000
ROOM = PLAIN_BYTES - 64
STAMP = b"\x08" + bytes([NOW_MS >> 7 * place & 0x7F | 0x80 for place in range(5)])
POINT = field(3, STAMP + bytes([NOW_MS >> 35]))
NAME = field(1, b"m")
OURS = field(2, field(1, b"agent_id"))


def _json(open_, piece, close):
    return (open_ + piece * ((ROOM - len(open_)) // len(piece))).rstrip(b",") + close


def _full(points):
    """As many series as may be, with as many labels: what a full batch can honestly have."""
    labels = b"".join(field(2, field(1, bytes([97 + n])) + field(2, b"x")) for n in range(26))
    return b"".join(
        field(3, field(1, b"m%d" % n) + labels + POINT * (points if n == 0 else 1))
        for n in range(20_000)
    )


# Name to how the body is made, whether it is JSON, the status of the answer, and the most MiB that
# it may take. A series is field 3 of the batch, its labels are 2 and its points 3.
FLOODS = {
    "empty series": (lambda: b"\x1a\x00" * (ROOM // 2), False, 413, 32),
    "empty labels": (lambda: field(3, b"\x12\x00" * (ROOM // 2)), False, 413, 32),
    "empty points": (lambda: field(3, b"\x1a\x00" * (ROOM // 2)), False, 413, 32),
    "empty labels in many series": (
        lambda: field(3, b"\x12\x00" * 205) * 19_999,
        False,
        413,
        32,
    ),
    "tags at length": (lambda: b"\x9a\x80\x00\x00" * (ROOM // 4), False, 400, 32),
    "numbers": (lambda: b"\x08\x00" * (ROOM // 2), False, 202, 32),
    "unknown numbers": (lambda: b"\x78\x00" * (ROOM // 2), False, 202, 32),
    "unknown numbers in a series": (lambda: field(3, b"\x78\x00" * (ROOM // 2)), False, 202, 48),
    "names between unknown numbers": (
        lambda: field(3, b"\x78\x00\x0a\x00" * (ROOM // 4)),
        False,
        202,
        48,
    ),
    "reserved labels in one series": (
        lambda: field(3, NAME + OURS * 500_000 + POINT),
        False,
        413,
        32,
    ),
    "reserved labels in one series of under 2 MiB": (
        lambda: field(3, NAME + OURS * 150_000 + POINT),
        False,
        413,
        32,
    ),
    "reserved labels in many series": (
        lambda: field(3, NAME + OURS * 1_400 + POINT) * 400,
        False,
        202,
        32,
    ),
    "a full batch": (lambda: _full(1), False, 202, 128),
    "a full batch and a point": (lambda: _full(2), False, 413, 128),
    "empty series of JSON": (lambda: _json(b'{"series":[', b"{},", b"]}"), True, 413, 32),
    "unknown objects of JSON": (lambda: _json(b'{"x":[', b"{},", b"]}"), True, 413, 32),
    "unknown numbers of JSON": (lambda: _json(b'{"x":[', b"0,", b"]}"), True, 413, 32),
    "a long text of JSON": (lambda: _json(b'{"x":"', b"x", b'"}'), True, 202, 48),
    "a long text of wide characters": (
        lambda: _json('{"x":"\N{GRINNING FACE}'.encode(), b"x", b'"}'),
        True,
        202,
        128,
    ),
    "many series of JSON": (
        lambda: (
            b'{"series":[{}' + b',{"name":"m","points":[{"tsMs":"1","value":1}]}' * 119_000 + b"]}"
        ),
        True,
        413,
        64,
    ),
    "many series of JSON without points": (
        lambda: b'{"series":[{}' + b',{"name":"m","labels":[]}' * 239_000 + b"]}",
        True,
        413,
        64,
    ),
    "as many objects of JSON as may be": (
        lambda: b'{"series":[{"points":[{"value":1}' + b',{"value":1}' * 239_900 + b"]}]}",
        True,
        413,
        128,
    ),
}


def sent(name):
    """The body and the headers of a flood."""
    make, as_json, _, _ = FLOODS[name]
    headers = {"Content_Encoding": "gzip"}
    if as_json:
        headers["Content_Type"] = "application/json"
    return gzip.compress(make(), 1), headers


def grown_mib(name):
    """How much the memory of this process grew at most by one request."""
    from conftest import World

    async def scenario():
        world = World()
        world.hub.active("agent-1", world.token)
        await world.send(world.batch(world.series()))
        body, headers = sent(name)
        gc.collect()
        PEAK_RESET.write_text("5")  # the peak is from here
        before = peak_kib()
        await world.send(body, coding=None, **headers)
        return (peak_kib() - before) / 1024

    return anyio.run(scenario)
