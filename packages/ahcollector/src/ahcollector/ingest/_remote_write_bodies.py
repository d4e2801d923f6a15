"""What Prometheus remote write says, as one of our batches: pure functions over its messages.

Of a message of 1.0 or 2.0 are taken its series' names, labels and float samples. What cannot be
stored is refused, kind by kind, and the rest is taken:

==================  ==============================================================================
code                what it was
==================  ==============================================================================
native_histogram    a native histogram: the store has no place for them
exemplar            an exemplar, likewise
bad_reference       samples of a series of 2.0 whose labels name no symbols of the table
stale_marker        the NaN that says "this series ended"; passed over, it is no fault of a sender
not_a_number        another NaN, which says "there is no value", as in a summary's quantiles that
                    observed nothing; passed over: were it refused, nearly every request of an
                    ordinary Prometheus would count as failed
==================  ==============================================================================

Metadata and start times are not read. A label with an empty value is left out, since that is what
it means in Prometheus' data model.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Protocol

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._foreign import Refused, Translated
from ahwire.agent_pb2 import MetricsBatch, Series
from ahwire.remote_write_pb2 import Request, Sample, WriteRequest
from ahwire.status import Code

__all__ = ["translate_1", "translate_2"]

_NAME = "__name__"
_STALE_BITS = struct.pack("<Q", 0x7FF0_0000_0000_0002)
_DOUBLE = struct.Struct("<d")
_NAME_CHARS_SHOWN = 60


class _Carried(Protocol):
    """What the series of both versions carry beside their labels."""

    @property
    def samples(self) -> Sequence[Sample]: ...
    @property
    def histograms(self) -> Sequence[object]: ...
    @property
    def exemplars(self) -> Sequence[object]: ...


def translate_1(message: WriteRequest, *, series_max: int) -> Translated:
    """Return what a message of remote write 1.0 means.

    Args:
        message: Stays as it is.
        series_max: How many series are looked into.

    Raises:
        RequestRefusedError: too_large, more series than that.
    """
    _check_count(len(message.timeseries), series_max)
    found = _Found()
    for one in message.timeseries:
        found.see(one, ((label.name, label.value) for label in one.labels))
    return found.translated()


def translate_2(message: Request, *, series_max: int) -> Translated:
    """Return what a message of remote write 2.0 means; arguments as of `translate_1`.

    Raises:
        RequestRefusedError: too_large, or bad_request when its table of symbols is none.
    """
    _check_count(len(message.timeseries), series_max)
    symbols = list(message.symbols)
    if message.timeseries and (not symbols or symbols[0]):
        raise RequestRefusedError(
            Code.BAD_REQUEST,
            "the table of symbols does not begin with the empty text: "
            "write it as remote write 2.0 says",
        )
    found = _Found()
    for place, one in enumerate(message.timeseries):
        references = list(one.labels_refs)
        fault = _reference_fault(references, len(symbols))
        if fault:
            found.cannot_name(place, fault, one)
        else:
            texts = [symbols[reference] for reference in references]
            found.see(one, zip(texts[::2], texts[1::2], strict=True))
    return found.translated()


def _check_count(series: int, series_max: int) -> None:
    if series > series_max:
        raise RequestRefusedError(
            Code.TOO_LARGE, f"the body has {series} series, over {series_max}: send less at once"
        )


def _reference_fault(references: list[int], symbols: int) -> str:
    """Return what is wrong with the references of a series' labels, or an empty text."""
    if len(references) % 2:
        return f"it has {len(references)} references to symbols, an odd number"
    if references and max(references) >= symbols:
        return f"it names symbol {max(references)} of a table of {symbols}"
    return ""


class _Found:
    """Collects what the series of a message come to."""

    def __init__(self) -> None:
        self._batch = MetricsBatch()
        self._histograms = _Kind()
        self._exemplars = _Kind()
        self._stale = 0
        self._nan = 0
        self._nameless: list[Refused] = []

    def see(self, carried: _Carried, labels: Iterable[tuple[str, str]]) -> None:
        """Take a series; the first label that is called __name__ is its name."""
        series = self._batch.series.add()
        names = []
        for name, value in labels:
            if name == _NAME:
                names.append(value)
            elif value:
                series.labels.add(name=name, value=value)
        series.name = names[0] if names else ""
        self._take_samples(series, carried.samples)
        self._histograms.add(len(carried.histograms), series.name)
        self._exemplars.add(len(carried.exemplars), series.name)
        if not series.points:
            del self._batch.series[-1]

    def cannot_name(self, place: int, fault: str, carried: _Carried) -> None:
        """Refuse a series whose labels cannot be told."""
        count = len(carried.samples)
        if count:
            self._nameless.append(
                Refused(
                    reason=f"series {place} of the body: {fault}",
                    code="bad_reference",
                    points=count,
                )
            )
        self._histograms.add(len(carried.histograms), "")
        self._exemplars.add(len(carried.exemplars), "")

    def translated(self) -> Translated:
        """Return what was found."""
        passed_over = (
            Refused(reason="the mark of a series' end", code="stale_marker", points=self._stale),
            Refused(reason="no value", code="not_a_number", points=self._nan),
        )
        return Translated(
            batch=self._batch,
            refused=(
                *self._nameless,
                *self._histograms.refused(
                    "native_histogram", "native histograms are not stored: send classic buckets"
                ),
                *self._exemplars.refused(
                    "exemplar", "exemplars are not stored: set send_exemplars to false"
                ),
            ),
            passed_over=tuple(one for one in passed_over if one.points),
        )

    def _take_samples(self, series: Series, samples: Iterable[Sample]) -> None:
        for sample in samples:
            value = sample.value
            # Only a NaN is unequal to itself, and only one of all NaN is the mark.
            if value == value:
                series.points.add(ts_ms=sample.timestamp, value=value)
            elif _DOUBLE.pack(value) == _STALE_BITS:
                self._stale += 1
            else:
                self._nan += 1


class _Kind:
    """Counts one kind of what is not stored, and keeps a series' name as an example."""

    def __init__(self) -> None:
        self._count = 0
        self._example = ""

    def add(self, count: int, name: str) -> None:
        if count:
            self._count += count
            self._example = self._example or name

    def refused(self, code: str, why: str) -> tuple[Refused, ...]:
        if not self._count:
            return ()
        example = f" (series {self._example[:_NAME_CHARS_SHOWN]!r})" if self._example else ""
        return (Refused(reason=f"{why}{example}", code=code, points=self._count),)
