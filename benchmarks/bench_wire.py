"""What do a batch and a message cost at the door, beside the least that anybody could do?

- Judging a batch of 1,000 series with 4 labels: a `Validator` that knows them, the plain function,
  and beside them a bare walk that reads every name, label and point once and keeps nothing.
- Inflating: beside the library's own call on a whole body.
- Decoding an incident: beside `json.loads` of the same bytes.
"""

import json
import random
import zlib
from collections.abc import Callable
from functools import partial

import zstandard
from _harness import Options, Row, Times, in_turns, main, seconds_of

from ahwire import IncidentEvent
from ahwire.agent_pb2 import MetricsBatch
from ahwire.batch import Validator, validate
from ahwire.codec import GZIP, ZSTD, compress, decompress
from ahwire.limits import MAX_PLAIN_BYTES

ROUNDS = 200
SERIES = 1_000
NOW_MS = 1_796_000_000_000
LABELS = ("device", "mount", "filesystem", "group")
DECODES = 200
INCIDENT = json.dumps(
    {
        "event_id": "incident-456",
        "tenant_id": "company-a",
        "occurred_at": "2026-06-15T10:20:30Z",
        "severity": "high",
        "event_type": "suspicious_login",
        "ip_address": "10.10.1.5",
        "host": "auth-node-01",
        "payload": {"geo": "RU", "failed_attempts": 7},
    }
).encode()


def batch() -> MetricsBatch:
    """A clean batch of one point a series, a third of them zero."""
    rng = random.Random(1)
    message = MetricsBatch(seq=1, collected_at_ms=NOW_MS)
    for number in range(SERIES):
        value = rng.random() * 1e9 if number % 3 else 0.0
        series = message.series.add(name=f"disk_read_bytes_total_{number % 40}")
        for label in LABELS:
            series.labels.add(name=label, value=f"{label}-{number}")
        series.points.add(ts_ms=NOW_MS, value=value)
    return message


def walk(message: MetricsBatch) -> int:
    """Read everything once in Python."""
    seen = 0
    for series in message.series:
        seen += len(series.name)
        for label in series.labels:
            seen += len(label.name) + len(label.value)
        for point in series.points:
            seen += point.ts_ms > 0 and point.value >= 0
    return seen


def fresh(body: bytes, action: Callable[[MetricsBatch], object]) -> float:
    """Seconds of an action on a message that was just parsed, as a door meets it."""
    message = MetricsBatch.FromString(body)
    return seconds_of(lambda: action(message))


def times_each(count: int, action: Callable[[], object]) -> float:
    """Seconds of one call, of many."""

    def all_of_them() -> None:
        for _ in range(count):
            action()

    return seconds_of(all_of_them) / count


def ratio_row(question: str, ours: Times, bare: Times, *, limit: float, note: str = "") -> Row:
    """How many times as long as the bare peer."""
    ratio = ours.median / bare.median
    return Row(
        question=question,
        measured=f"{ratio:.2f} x: {ours.micros()} beside {bare.micros()}",
        value=ratio,
        limit=limit,
        less_is_better=True,
        target=f"at most {limit:g} x",
        note=note,
        figures={"ours_us": ours.median * 1e6, "bare_us": bare.median * 1e6},
    )


def judging(options: Options, body: bytes) -> list[Row]:
    """A validator that knows the series, and one that knows none."""
    validator = Validator()
    validator.validate(MetricsBatch.FromString(body), now_ms=NOW_MS)
    found = in_turns(
        {
            "walk": lambda: fresh(body, walk),
            "known": lambda: fresh(body, partial(validator.validate, now_ms=NOW_MS)),
            "plain": lambda: fresh(body, partial(validate, now_ms=NOW_MS)),
        },
        rounds=options.rounds(ROUNDS),
    )
    return [
        ratio_row(
            "1,000 known series judged, against a bare walk",
            found["known"],
            found["walk"],
            limit=1.3,
        ),
        ratio_row(
            "1,000 series judged without a memory, against a bare walk",
            found["plain"],
            found["walk"],
            limit=6.0,
            note="each label is normalised, measured and compared with the reserved ones",
        ),
    ]


def inflating(options: Options, body: bytes) -> list[Row]:
    """Both codings within their bounds."""
    packed = {coding: compress(body, coding) for coding in (GZIP, ZSTD)}
    library = zstandard.ZstdDecompressor()
    found = in_turns(
        {
            "gzip": lambda: seconds_of(lambda: decompress(packed[GZIP], GZIP, MAX_PLAIN_BYTES)),
            "zlib": lambda: seconds_of(lambda: zlib.decompress(packed[GZIP], 31)),
            "zstd": lambda: seconds_of(lambda: decompress(packed[ZSTD], ZSTD, MAX_PLAIN_BYTES)),
            "zstandard": lambda: seconds_of(lambda: library.decompress(packed[ZSTD])),
        },
        rounds=options.rounds(ROUNDS),
    )
    return [
        ratio_row(
            "gzip inflated within its bound, against zlib", found["gzip"], found["zlib"], limit=1.6
        ),
        ratio_row(
            "zstd inflated within its bound, against zstandard",
            found["zstd"],
            found["zstandard"],
            limit=2.0,
        ),
    ]


def decoding(options: Options) -> list[Row]:
    """An incident from its JSON."""
    found = in_turns(
        {
            "ours": lambda: times_each(DECODES, lambda: IncidentEvent.from_json(INCIDENT)),
            "json": lambda: times_each(DECODES, lambda: json.loads(INCIDENT)),
        },
        rounds=options.rounds(ROUNDS),
    )
    return [
        ratio_row(
            "an IncidentEvent decoded, against json.loads", found["ours"], found["json"], limit=2.5
        )
    ]


def measure(options: Options) -> list[Row]:
    """All of it."""
    body = batch().SerializeToString()
    return [*judging(options, body), *inflating(options, body), *decoding(options)]


if __name__ == "__main__":
    main(__file__, measure, packages=["ahwire", "protobuf", "zstandard"])
