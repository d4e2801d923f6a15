"""Samples as lines of VictoriaMetrics' import, and what is never sent.

A line is one JSON object and a newline::

    {"metric":{"__name__":"ah_cpu","company_id":"c","server_id":"s",…},"values":[1.5],
     "timestamps":[1700000000000]}

The name and the tenant come first: versions that keep only the first labels of a row, and say
nothing, then at least never mix tenants. Values are written with the fewest digits that read back
as the same double. Non-finite values have no form in JSON (the store skips a line with one and
answers that all is well), so they are left out here and counted.

VictoriaMetrics cuts or drops what is over its limits without a word. Those limits are checked here
first, so that what was taken can be read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Final

import attrs

from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import PermanentStoreError

__all__ = [
    "LABELS_MAX",
    "LABEL_NAME_BYTES_MAX",
    "LABEL_VALUE_BYTES_MAX",
    "SERIES_BYTES_MAX",
    "Window",
    "check_labels",
    "import_lines",
    "kept_series",
    "series_bytes",
]

LABELS_MAX: Final = 30
"""Labels of a series with its name and tenant: what every version keeps by default."""

LABEL_NAME_BYTES_MAX: Final = 256
LABEL_VALUE_BYTES_MAX: Final = 4_096
"""UTF-8 bytes: what every version keeps by default, longer ones are cut or dropped."""

SERIES_BYTES_MAX: Final = 64_000
"""`series_bytes` of a series. Its index has no room for an entry of 64 KiB, of which a few bytes
are its own: a series that is longer is dropped with no more than a line in its log, and no counter
of it tells."""

_NAME_CHARS_SHOWN: Final = 40
# So many ASCII characters are within every limit, and so are `LABELS_MAX` labels of them together,
# each character escaped.
_NAME_CHARS_PLAIN: Final = 64
_VALUE_CHARS_PLAIN: Final = 1_000
_ESCAPED: Final = (b"\x00", b"\x01", b"\x02")


@attrs.frozen(kw_only=True)
class Window:
    """The instants that the store keeps, Unix milliseconds, both ends included."""

    oldest_ms: int
    newest_ms: int


def check_labels(batch: SampleBatch) -> None:
    """Refuse a batch of which VictoriaMetrics would cut or drop a series in silence.

    Raises:
        PermanentStoreError: A series has too many labels, one that is empty or too long, one that
            is no Unicode text, or labels that are too long together.
    """
    for series in batch.series:
        if len(series.labels) > LABELS_MAX:
            raise _refusal(batch, series, f"{len(series.labels)} labels, over {LABELS_MAX}")
        plain = True
        for name, value in series.labels:
            # Nearly all are short and plain, and nothing more is to be known of them.
            if (
                0 < len(name) <= _NAME_CHARS_PLAIN
                and 0 < len(value) <= _VALUE_CHARS_PLAIN
                and value.isascii()
                and name.isascii()
            ):
                continue
            plain = False
            fault = _fault(name, value)
            if fault is not None:
                raise _refusal(batch, series, fault)
        if not plain:
            size = series_bytes(series.labels)
            if size > SERIES_BYTES_MAX:
                what = f"{size} bytes of labels as they are kept, over {SERIES_BYTES_MAX}"
                raise _refusal(batch, series, what)


def series_bytes(labels: Iterable[tuple[str, str]]) -> int:
    """Return how long labels are in VictoriaMetrics' index.

    Texts are in UTF-8, each ended by a byte; the bytes 0, 1 and 2 are written as two.
    """
    size = 0
    for label in labels:
        for text in label:
            encoded = text.encode()
            size += len(encoded) + 1 + sum(encoded.count(byte) for byte in _ESCAPED)
    return size


def _fault(name: str, value: str) -> str | None:
    """Return why a label cannot be kept, or None."""
    try:
        name_bytes, value_bytes = len(name.encode()), len(value.encode())
    except UnicodeEncodeError:
        return "a label with a lone surrogate"
    if not name_bytes or not value_bytes:
        return f"the empty label {name[:_NAME_CHARS_SHOWN]!r}"
    if name_bytes > LABEL_NAME_BYTES_MAX:
        return f"a label name of {name_bytes} bytes, over {LABEL_NAME_BYTES_MAX}"
    if value_bytes > LABEL_VALUE_BYTES_MAX:
        return f"{value_bytes} bytes in label {name!r}, over {LABEL_VALUE_BYTES_MAX}"
    return None


def _refusal(batch: SampleBatch, series: StoredSeries, what: str) -> PermanentStoreError:
    name = series.labels[0][1][:_NAME_CHARS_SHOWN]
    return PermanentStoreError(
        f"batch {batch.request_id} has a series {name!r} with {what}: VictoriaMetrics would cut or "
        "drop it and say nothing, so nothing of the batch is stored"
    )


def kept_series(
    batches: Sequence[SampleBatch], window: Window, dropped: Counter[str]
) -> Iterator[StoredSeries]:
    """Return what is sent of each series, if anything; add to `dropped` what is not, by reason."""
    oldest_ms, newest_ms = window.oldest_ms, window.newest_ms
    isfinite = math.isfinite
    for batch in batches:
        for series in batch.series:
            for timestamp_ms, value in series.points:
                if not isfinite(value) or not oldest_ms <= timestamp_ms <= newest_ms:
                    points = _sound(series.points, window, dropped)
                    if points:
                        yield StoredSeries(labels=series.labels, points=points)
                    break
            else:
                if series.points:
                    yield series


def _sound(
    points: Sequence[tuple[int, float]], window: Window, dropped: Counter[str]
) -> tuple[tuple[int, float], ...]:
    result: list[tuple[int, float]] = []
    for timestamp_ms, value in points:
        if not math.isfinite(value):
            dropped["non_finite"] += 1
        elif timestamp_ms < window.oldest_ms:
            dropped["too_old"] += 1
        elif timestamp_ms > window.newest_ms:
            dropped["in_future"] += 1
        else:
            result.append((timestamp_ms, value))
    return tuple(result)


def import_lines(series: StoredSeries, line_bytes_max: int) -> Iterator[tuple[bytes, int]]:
    """Return the lines of a series, each with its number of points.

    Each is shorter than `line_bytes_max`, as long as one point and the labels are.
    """
    metric = _metric(series.labels)
    if len(series.points) == 1:
        [(timestamp_ms, value)] = series.points
        yield f'{metric},"values":[{value!r}],"timestamps":[{timestamp_ms}]}}\n'.encode(), 1
        return
    waiting = [series.points]
    while waiting:
        points = waiting.pop()
        values = ",".join([repr(value) for _, value in points])
        timestamps = ",".join([str(timestamp_ms) for timestamp_ms, _ in points])
        line = f'{metric},"values":[{values}],"timestamps":[{timestamps}]}}\n'.encode()
        if len(line) >= line_bytes_max and len(points) > 1:
            middle = len(points) // 2
            waiting += [points[middle:], points[:middle]]
        else:
            yield line, len(points)


def _metric(labels: tuple[tuple[str, str], ...]) -> str:
    """Return the beginning of a line."""
    plain = '","'.join([f'{name}":"{value}' for name, value in labels])
    # Where there are no quotes but those between the texts, nothing has to be escaped.
    if plain.count('"') == 4 * len(labels) - 2 and "\\" not in plain and plain.isprintable():
        return f'{{"metric":{{"{plain}"}}'
    quote = encode_basestring
    whole = ",".join([f"{quote(name)}:{quote(value)}" for name, value in labels])
    return f'{{"metric":{{{whole}}}'
