"""The forms in which samples go to VictoriaMetrics: its import, or Prometheus remote write 1.0.

The import is text that every tool reads, the remote write is smaller before compression and what
proxies in front of a store often take alone. Both carry the same doubles.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

import attrs

from ahcollector._extras import missing_extra
from ahcollector.bus.base import StoredSeries
from ahcollector.store._lines import SERIES_BYTES_MAX, import_lines
from ahwire.remote_write_pb2 import WriteRequest

__all__ = ["ImportForm", "RemoteWriteForm", "WriteBody", "WriteForm"]

# No body is asked to be shorter: then each has one line or series, and few points of it.
_BODY_BYTES_MIN: Final = 256
# The double, the time and what stands before them.
_SAMPLE_BYTES_MAX: Final = 22


@attrs.frozen(kw_only=True)
class WriteBody:
    """The body of one request, compressed, and how many samples it holds."""

    data: bytes
    samples: int


class WriteForm(Protocol):
    """How samples become requests."""

    @property
    def line_bytes_max(self) -> int:
        """Every line is shorter; 0: there are no lines."""
        ...

    @property
    def message_bytes_max(self) -> int:
        """Every message is shorter, before compression; 0: there are no messages."""
        ...

    @property
    def path(self) -> str:
        """Where they go."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What is said of each body."""
        ...

    def bodies(self, kept: Iterable[StoredSeries]) -> Iterator[WriteBody]:
        """Return bodies, each over its bound by at most one line or series."""
        ...

    def smaller(self) -> WriteForm | None:
        """Return the form whose bodies are half as long; None: they hold little as it is."""
        ...


class ImportForm:
    """Lines of JSON, gzip.

    Args:
        line_bytes_max: Every line is shorter.
        body_bytes_max: About how long a body is before compression.
    """

    path: Final = "/api/v1/import"
    message_bytes_max: Final = 0
    headers: Mapping[str, str] = {
        "Content-Encoding": "gzip",
        "Content-Type": "application/x-ndjson",
    }

    def __init__(self, *, line_bytes_max: int, body_bytes_max: int) -> None:
        self.line_bytes_max = line_bytes_max
        self._body_bytes_max = body_bytes_max

    def bodies(self, kept: Iterable[StoredSeries]) -> Iterator[WriteBody]:
        """Return bodies of whole lines."""
        lines: list[bytes] = []
        size = samples = 0
        for series in kept:
            for line, count in import_lines(series, self.line_bytes_max):
                lines.append(line)
                size += len(line)
                samples += count
                if size >= self._body_bytes_max:
                    yield self._body(lines, samples)
                    lines, size, samples = [], 0, 0
        if lines:
            yield self._body(lines, samples)

    def smaller(self) -> ImportForm | None:
        """Return the form whose bodies, and lines, are half as long."""
        half = self._body_bytes_max // 2
        if half < _BODY_BYTES_MIN:
            return None
        return ImportForm(line_bytes_max=min(self.line_bytes_max, half), body_bytes_max=half)

    def _body(self, lines: list[bytes], samples: int) -> WriteBody:
        # Level 1 takes nine tenths of the bytes off the network for the least of the work.
        data = gzip.compress(b"".join(lines), compresslevel=1, mtime=0)
        return WriteBody(data=data, samples=samples)


class RemoteWriteForm:
    """Messages of remote write 1.0, snappy.

    Args:
        body_bytes_max: About how long a body is before compression.

    Raises:
        ImportError: cramjam is missing, which the extra ``[http]`` brings.
    """

    path: Final = "/api/v1/write"
    line_bytes_max: Final = 0
    headers: Mapping[str, str] = {
        "Content-Encoding": "snappy",
        "Content-Type": "application/x-protobuf",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }

    def __init__(self, *, body_bytes_max: int) -> None:
        # Imported here, so that the import works without the extra.
        try:
            import cramjam  # noqa: PLC0415 - an optional extra
        except ModuleNotFoundError as error:
            raise missing_extra("write_protocol remote_write", "http", error) from error

        self._compress = cramjam.snappy.compress_raw
        self._body_bytes_max = body_bytes_max
        # A body that is nearly full, and then the longest part of a series.
        self.message_bytes_max = 2 * body_bytes_max + SERIES_BYTES_MAX

    def bodies(self, kept: Iterable[StoredSeries]) -> Iterator[WriteBody]:
        """Return bodies of whole series, or of parts of those that are longer than a body."""
        request = WriteRequest()
        size = samples = 0
        for part in self._parts(kept):
            entry = request.timeseries.add()
            for name, value in part.labels:
                entry.labels.add(name=name, value=value)
            for timestamp_ms, number in part.points:
                entry.samples.add(value=number, timestamp=timestamp_ms)
            size += entry.ByteSize()
            samples += len(part.points)
            if size >= self._body_bytes_max:
                yield self._body(request, samples)
                request, size, samples = WriteRequest(), 0, 0
        if samples:
            yield self._body(request, samples)

    def smaller(self) -> RemoteWriteForm | None:
        """Return the form whose bodies are half as long."""
        half = self._body_bytes_max // 2
        return None if half < _BODY_BYTES_MIN else RemoteWriteForm(body_bytes_max=half)

    def _parts(self, kept: Iterable[StoredSeries]) -> Iterator[StoredSeries]:
        points_max = max(1, self._body_bytes_max // _SAMPLE_BYTES_MAX)
        for series in kept:
            if len(series.points) <= points_max:
                yield series
                continue
            for start in range(0, len(series.points), points_max):
                points = series.points[start : start + points_max]
                yield StoredSeries(labels=series.labels, points=points)

    def _body(self, request: WriteRequest, samples: int) -> WriteBody:
        return WriteBody(data=bytes(self._compress(request.SerializeToString())), samples=samples)
