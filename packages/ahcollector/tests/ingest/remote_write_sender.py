"""A sender of Prometheus remote write, written from the public specifications of 1.0 and 2.0.

It writes the messages with a few lines of its own, so that a fault of the generated module that the
door reads with cannot hide itself.
"""

import struct

import cramjam

ONE = "application/x-protobuf"
ONE_NAMED = "application/x-protobuf;proto=prometheus.WriteRequest"
TWO = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def chunk(field, payload):
    """A field of length-delimited type."""
    payload = payload.encode() if isinstance(payload, str) else payload
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def sample(ts_ms, value):
    return b"\x09" + struct.pack("<d", value) + b"\x10" + varint(ts_ms)


def histogram(ts_ms):
    return b"\x08\x03" + b"\x19" + struct.pack("<d", 4.5) + b"\x78" + varint(ts_ms)


def exemplar(ts_ms, labels=b""):
    return labels + b"\x11" + struct.pack("<d", 0.25) + b"\x18" + varint(ts_ms)


def message_1(*series, metadata=()):
    """A WriteRequest.

    A series is (labels, samples, histograms, exemplars); labels are pairs or a dict, samples are
    (ms, value), histograms and exemplars are counts. What stands at the end may be left out.
    """
    out = [chunk(1, series_1(*one)) for one in series]
    out += [chunk(3, b"\x08\x01" + chunk(2, name) + chunk(4, "help")) for name in metadata]
    return b"".join(out)


def pairs(labels):
    return list(labels.items()) if isinstance(labels, dict) else list(labels)


def series_1(labels, samples=(), histograms=0, exemplars=0):
    return b"".join(
        [
            *(chunk(1, chunk(1, name) + chunk(2, value)) for name, value in pairs(labels)),
            *(chunk(2, sample(*one)) for one in samples),
            *[chunk(3, exemplar(5, chunk(1, chunk(1, "trace_id") + chunk(2, "x"))))] * exemplars,
            *[chunk(4, histogram(5))] * histograms,
        ]
    )


def message_2(*series, created=False):
    """A Request of 2.0 of the same series."""
    table = {"": 0, "a help": 1}
    out = []
    for labels, *carried in series:
        references = [table.setdefault(text, len(table)) for pair in pairs(labels) for text in pair]
        out.append(chunk(5, series_2(references, *carried, created=created)))
    return b"".join([*(chunk(4, text) for text in table), *out])


def series_2(references, samples=(), histograms=0, exemplars=0, *, created=False):
    start = b"\x18" + varint(77) if created else b""
    return b"".join(
        [
            chunk(1, b"".join(map(varint, references))),
            *(chunk(2, sample(*one) + start) for one in samples),
            *[chunk(3, histogram(5))] * histograms,
            *[chunk(4, exemplar(5, chunk(1, b"\x00\x01")))] * exemplars,
            chunk(5, b"\x08\x01\x18\x01\x20\x00"),
            b"\x30" + varint(77) if created else b"",
        ]
    )


def block(plain):
    """Snappy's block format."""
    return bytes(cramjam.snappy.compress_raw(plain)) if plain else b"\x00"


def headers(token, content_type=ONE, **more):
    return {
        "Authorization": f"Bearer {token}",
        "Content-Type": content_type,
        "Content-Encoding": "snappy",
        "User-Agent": "sender-of-tests/1",
        "X-Prometheus-Remote-Write-Version": "2.0.0" if content_type == TWO else "0.1.0",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }


async def write(world, plain, content_type=ONE, *, token=None, **more):
    """Send a plain message through a world's client."""
    return await world.client.post(
        "/api/v1/write",
        content=block(plain),
        headers=headers(token or world.token, content_type, **more),
    )
