"""What Prometheus remote write says, as one of our batches: pure functions over its messages.

Of a message of 1.0 or 2.0 are taken its series' names, labels and float samples. What cannot be
stored is refused, kind by kind, and the rest is taken:

==================  ==============================================================================
code                what it was
==================  ==============================================================================
native_histogram    a native histogram: the store has no place for them
exemplar            an exemplar, likewise
bad_reference       samples of a series of 2.0 whose labels name no symbols of the table
too_many_labels     samples of a series with several times the labels that may be stored
too_long            samples of a series of 2.0 that names a symbol too long for its place
stale_marker        the NaN that says "this series ended"; passed over, it is no fault of a sender
not_a_number        another NaN, which says "there is no value", as in a summary's quantiles that
                    observed nothing; passed over: were it refused, nearly every request of an
                    ordinary Prometheus would count as failed
==================  ==============================================================================

Metadata and start times are not read. A label with an empty value is left out, since that is what
it means in Prometheus' data model.

Law of this file: what is made of a message is no larger than a body may be. A symbol of 2.0 is a
few bytes each time that it is named and may stand for megabytes, so what is named is counted before
it is copied. Labels of a series without values are not read at all.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ahcollector.errors import RequestRefusedError
from ahcollector.ingest._foreign import NAME_CHARS_SHOWN, Refused, Translated, refused_series
from ahwire.agent_pb2 import MetricsBatch
from ahwire.batch import TOO_LONG, TOO_MANY_LABELS
from ahwire.limits import Limits
from ahwire.names import is_reserved_label
from ahwire.remote_write_pb2 import Request, Sample, TimeSeries, WriteRequest
from ahwire.status import Code

__all__ = ["translate_1", "translate_2"]

_NAME = "__name__"
_STALE_BITS = struct.pack("<Q", 0x7FF0_0000_0000_0002)
_DOUBLE = struct.Struct("<d")
# Labels that a series may have for each that it may keep, as in the judgement of batches: the
# others are reserved, double or empty.
_LABELS_OVER = 2
# What a text takes in a message beside its own bytes, about.
_LABEL_BYTES = 3

_Labels = Sequence[tuple[str, str]]
_Read = Callable[[int], _Labels | Refused]
"""Gives a series' labels, the name among them; or why its points, so many, cannot be stored."""


class _Carried(Protocol):
    """What the series of both versions carry beside their labels."""

    @property
    def samples(self) -> Sequence[Sample]: ...
    @property
    def histograms(self) -> Sequence[object]: ...
    @property
    def exemplars(self) -> Sequence[object]: ...


def translate_1(message: WriteRequest, *, limits: Limits, bytes_max: int) -> Translated:
    """Return what a message of remote write 1.0 means.

    Args:
        message: Stays as it is.
        limits: What batches are held to.
        bytes_max: How large names and labels may become, in all.

    Raises:
        RequestRefusedError: too_large: more series or points than a batch may have, or more bytes.
    """
    _check_counts(message.timeseries, limits.points_per_batch)
    found = _Found(bytes_max=bytes_max)
    labels_max = _labels_max(limits)
    for one in message.timeseries:
        found.see(one, functools.partial(_labels_of, one, labels_max))
    return found.translated()


def translate_2(message: Request, *, limits: Limits, bytes_max: int) -> Translated:
    """Return what a message of remote write 2.0 means; arguments as of `translate_1`.

    Raises:
        RequestRefusedError: too_large, or bad_request when its table of symbols is none.
    """
    _check_counts(message.timeseries, limits.points_per_batch)
    symbols = list(message.symbols)
    if message.timeseries and (not symbols or symbols[0]):
        raise RequestRefusedError(
            Code.BAD_REQUEST,
            "the table of symbols does not begin with the empty text: "
            "write it as remote write 2.0 says",
        )
    table = _Table(symbols, limits)
    found = _Found(bytes_max=bytes_max)
    for place, one in enumerate(message.timeseries):
        found.see(one, functools.partial(table.labels_of, place, one.labels_refs))
    return found.translated()


def _labels_max(limits: Limits) -> int:
    """Return how many labels of a series are looked at, its name among them."""
    return _LABELS_OVER * limits.labels_per_series + 1


def _check_counts(all_series: Sequence[_Carried], most: int) -> None:
    """Refuse a message with more in it than a batch, before any of it is made into something."""
    if len(all_series) > most:
        raise _too_large(f"has {len(all_series)} series, over {most}")
    points = sum(len(one.samples) + len(one.histograms) + len(one.exemplars) for one in all_series)
    if points > most:
        raise _too_large(f"has {points} points, over {most}")


def _too_large(what: str) -> RequestRefusedError:
    return RequestRefusedError(Code.TOO_LARGE, f"the body {what}: send less at once")


def _labels_of(series: TimeSeries, labels_max: int, points: int) -> _Labels | Refused:
    """Return the labels of a series of 1.0."""
    labels = [(one.name, one.value) for one in series.labels[:labels_max]]
    if len(series.labels) > labels_max:
        return refused_series(_name_in(labels), TOO_MANY_LABELS, points)
    return labels


class _Table:
    """The table of symbols of a message of 2.0, with what is known of each before it is copied.

    Args:
        symbols: The texts.
        limits: What batches are held to.
    """

    def __init__(self, symbols: Sequence[str], limits: Limits) -> None:
        self._symbols = symbols
        self._labels_max = _labels_max(limits)
        self._long_names = _longer(symbols, limits.name_bytes)
        self._long_values = _longer(symbols, limits.label_value_bytes)

    def labels_of(self, place: int, references: Sequence[int], points: int) -> _Labels | Refused:
        """Return the labels of a series.

        Args:
            place: Of the series in the message.
            references: To symbols: a label's name, its value, the next one's name.
            points: For a refusal.
        """
        if len(references) % 2:
            fault = f"it has {len(references)} references to symbols, an odd number"
            return _bad_reference(place, fault, points)
        looked_at = list(references[: 2 * self._labels_max])
        highest = max(looked_at, default=0)
        if looked_at and highest >= len(self._symbols):
            fault = f"it names symbol {highest} of a table of {len(self._symbols)}"
            return _bad_reference(place, fault, points)
        texts = [self._symbols[one] for one in looked_at]
        labels = list(zip(texts[::2], texts[1::2], strict=True))
        if len(looked_at) < len(references):
            return refused_series(_name_in(labels), TOO_MANY_LABELS, points)
        if not self._long_names.isdisjoint(looked_at):
            return self._without_long(labels, looked_at, points)
        return labels

    def _without_long(
        self, labels: _Labels, references: Sequence[int], points: int
    ) -> _Labels | Refused:
        """Return the labels when those that are too long would be left out by the judgement."""
        kept: list[tuple[str, str]] = []
        for pair, name_at, value_at in zip(labels, references[::2], references[1::2], strict=True):
            is_name = pair[0] == _NAME
            long = self._long_names if is_name else self._long_values
            if name_at not in self._long_names and value_at not in long:
                kept.append(pair)
            elif is_name or not is_reserved_label(pair[0]):
                return refused_series(_name_in(labels), TOO_LONG, points)
        return kept


def _longer(symbols: Sequence[str], bytes_max: int) -> frozenset[int]:
    """Return the places of the symbols whose UTF-8 form has more bytes."""
    return frozenset(
        place
        for place, text in enumerate(symbols)
        if len(text) * 4 > bytes_max and len(text.encode()) > bytes_max
    )


def _bad_reference(place: int, fault: str, points: int) -> Refused:
    reason = f"series {place} of the body: {fault}"
    return Refused(reason=reason, code="bad_reference", points=points)


def _name_in(labels: _Labels) -> str:
    """Return the name of a series: the first label that is called so."""
    return next((value for name, value in labels if name == _NAME), "")


class _Found:
    """Collects what the series of a message come to.

    Args:
        bytes_max: How large names and labels may become, in all.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes_left = bytes_max
        self._batch = MetricsBatch()
        self._histograms = _Kind()
        self._exemplars = _Kind()
        self._stale = 0
        self._nan = 0
        self._refused: list[Refused] = []

    def see(self, carried: _Carried, read: _Read) -> None:
        """Take a series; its labels are read when there is something that needs them."""
        self._histograms.add(len(carried.histograms), read)
        self._exemplars.add(len(carried.exemplars), read)
        points = self._points_of(carried.samples)
        if not points:
            return
        labels = read(len(points))
        if isinstance(labels, Refused):
            self._refused.append(labels)
            return
        self._spend(labels)
        series = self._batch.series.add(name=_name_in(labels))
        for name, text in labels:
            if text and name != _NAME:
                series.labels.add(name=name, value=text)
        for ts_ms, value in points:
            series.points.add(ts_ms=ts_ms, value=value)

    def translated(self) -> Translated:
        """Return what was found."""
        passed_over = (
            Refused(reason="the mark of a series' end", code="stale_marker", points=self._stale),
            Refused(reason="no value", code="not_a_number", points=self._nan),
        )
        return Translated(
            batch=self._batch,
            refused=(
                *self._refused,
                *self._histograms.refused(
                    "native_histogram", "native histograms are not stored: send classic buckets"
                ),
                *self._exemplars.refused(
                    "exemplar", "exemplars are not stored: set send_exemplars to false"
                ),
            ),
            passed_over=tuple(one for one in passed_over if one.points),
        )

    def _spend(self, labels: _Labels) -> None:
        """Note what a series comes to, before it is copied."""
        self._bytes_left -= sum(
            _LABEL_BYTES + len(text if text.isascii() else text.encode())
            for pair in labels
            for text in pair
        )
        if self._bytes_left < 0:
            raise _too_large(f"comes to over {self._bytes_max} bytes of names and labels")

    def _points_of(self, samples: Iterable[Sample]) -> list[tuple[int, float]]:
        points: list[tuple[int, float]] = []
        for sample in samples:
            value = sample.value
            # Only a NaN is unequal to itself, and only one of all NaN is the mark.
            if value == value:
                points.append((sample.timestamp, value))
            elif _DOUBLE.pack(value) == _STALE_BITS:
                self._stale += 1
            else:
                self._nan += 1
        return points


class _Kind:
    """Counts one kind of what is not stored, and keeps a series' name as an example."""

    def __init__(self) -> None:
        self._count = 0
        self._looked = False
        self._example = ""

    def add(self, count: int, read: _Read) -> None:
        if not count:
            return
        self._count += count
        if not self._looked:
            self._looked = True
            labels = read(count)
            self._example = "" if isinstance(labels, Refused) else _name_in(labels)

    def refused(self, code: str, why: str) -> tuple[Refused, ...]:
        if not self._count:
            return ()
        example = f" (series {self._example[:NAME_CHARS_SHOWN]!r})" if self._example else ""
        return (Refused(reason=f"{why}{example}", code=code, points=self._count),)
