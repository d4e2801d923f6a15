"""How a batch is judged. Public as names of `ahwire.batch`."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from ahwire.agent_pb2 import Label, MetricsBatch, RejectedSeries, Series
from ahwire.errors import TooLargeError
from ahwire.limits import DEFAULT, Limits
from ahwire.names import is_reserved_name, metric_name, normalise_name

BAD_NAME = "bad_name"
BAD_LABEL = "bad_label"
TOO_LONG = "too_long"
TOO_MANY_LABELS = "too_many_labels"
TOO_OLD = "too_old"
IN_FUTURE = "in_future"
NOT_FINITE = "not_finite"
SERIES_LIMIT = "series_limit"

_LABELS_OVER = 2
"""Labels that a batch may send for each that it may keep: the others are reserved or double."""

_PLAUSIBLE_MS = 366 * 24 * 3600 * 1000
# What a time stamp must be multiplied with to be milliseconds, by the unit that it seems to be in.
_WRONG_UNITS: Sequence[tuple[str, float]] = (
    ("seconds", 1e3),
    ("microseconds", 1e-3),
    ("nanoseconds", 1e-6),
)
_NAME_CHARS_SHOWN = 40


@attrs.frozen(kw_only=True)
class CleanSeries:
    """A series that may be stored, its tenant's labels still to come.

    Attributes:
        index: its place in `MetricsBatch.series`.
        name: normalised, beginning `ah_`.
        labels: (name, value) pairs sorted by name; names are normalised, unique and not reserved.
        points: (Unix milliseconds, finite value) pairs in the order they were sent; never empty.
    """

    index: int
    name: str
    labels: tuple[tuple[str, str], ...]
    points: tuple[tuple[int, float], ...]


@attrs.frozen(kw_only=True)
class Validated:
    """What became of a batch; every point is either in `series` or counted in `dropped_points`.

    Attributes:
        series: what may be stored, in the batch's order.
        rejected: one entry for each (index, code), ready for the acknowledgement.
        accepted_points: points in `series`.
        dropped_points: points in `rejected`.
        warnings: sentences for the agent's log, a handful at most.
    """

    series: tuple[CleanSeries, ...]
    rejected: list[RejectedSeries]
    accepted_points: int
    dropped_points: int
    warnings: list[str]


def validate(batch: MetricsBatch, *, now_ms: int, limits: Limits = DEFAULT) -> Validated:
    """Judges every series and point of a batch by the rules of the ingest door.

    A fault of a series refuses all of its points under the first code found: `bad_name` (empty or
    blank), `too_long` (a name or a label's value), `bad_label` (a value with NUL in it),
    `too_many_labels`. A fault of a point (`not_finite`, `too_old`, `in_future`, in
    this order) refuses that point. Points exactly at an edge of the time window are in. Lengths are
    those of the names as sent; labels are counted after reserved ones and duplicates are gone.
    Series without points are passed over.

    Args:
        batch: stays as it is.
        now_ms: the collector's wall clock in Unix milliseconds.
        limits: what the batch is held to.

    Raises:
        TooLargeError: more points or series than a batch may have, or more than twice the labels
            that so many series may keep. Millions of empty series or labels fit into a body; the
            work stops where their number is over.
    """
    judge = Judge(batch, now_ms, limits)
    for index, series in enumerate(batch.series):
        judge.see(index, series)
    return judge.result()


def count_points(batch: MetricsBatch) -> int:
    """How many points the batch carries, over all of its series."""
    return sum(len(series.points) for series in batch.series)


def _too_large(what: str, count: int, most: int) -> TooLargeError:
    return TooLargeError(f"the batch has {count} {what}; at most {most} are taken, split it")


def _is_longer(text: str, bytes_max: int) -> bool:
    """Whether the UTF-8 form has more bytes; a character has at most four."""
    return len(text) * 4 > bytes_max and len(text.encode()) > bytes_max


class Judge:
    """Collects what is found in a batch, series by series."""

    def __init__(self, batch: MetricsBatch, now_ms: int, limits: Limits) -> None:
        """Begin a batch.

        Raises:
            TooLargeError: it has too many series; none is looked into.
        """
        if len(batch.series) > limits.points_per_batch:
            raise _too_large("series", len(batch.series), limits.points_per_batch)
        self.oldest_ms = now_ms - round(limits.point_age_seconds * 1000)
        self.newest_ms = now_ms + round(limits.point_future_seconds * 1000)
        self._batch = batch
        self._now_ms = now_ms
        self._limits = limits
        self._labels_left = _LABELS_OVER * limits.labels_per_series * limits.points_per_batch
        self._points_left = limits.points_per_batch
        self._series: list[CleanSeries] = []
        self._rejected: list[RejectedSeries] = []
        self._duplicates: list[tuple[int, str]] = []
        self._units: Counter[str] = Counter()

    def see(self, index: int, series: Series) -> CleanSeries | None:
        """Judge a series.

        Returns:
            What may be stored of it, when that has all of its labels, so that its name and labels
            come to the same whenever they come again.

        Raises:
            TooLargeError: the batch has too many points or labels.
        """
        points_sent, labels_sent = len(series.points), len(series.labels)
        self._points_left -= points_sent
        self._labels_left -= labels_sent
        if self._points_left < 0 or self._labels_left < 0:
            raise self._over()
        if not points_sent:
            return None
        fault = self._name_fault(series.name)
        labels: dict[str, str] = {}
        if fault is None:
            labels, fault = self._clean_labels(index, series.labels)
        if fault is not None:
            self._reject(index, fault, points_sent)
            return None
        points = self._clean_points(index, series)
        if not points:
            return None
        clean = CleanSeries(
            index=index,
            name=metric_name(series.name),
            labels=tuple(sorted(labels.items())),
            points=points,
        )
        self._series.append(clean)
        return clean if len(labels) == labels_sent else None

    def accept(self, clean: CleanSeries) -> None:
        """Take a series that was judged elsewhere, all of whose labels stay.

        Raises:
            TooLargeError: the batch has too many points or labels.
        """
        self._points_left -= len(clean.points)
        self._labels_left -= len(clean.labels)
        if self._points_left < 0 or self._labels_left < 0:
            raise self._over()
        self._series.append(clean)

    def result(self) -> Validated:
        """What became of the batch."""
        return Validated(
            series=tuple(self._series),
            rejected=self._rejected,
            accepted_points=sum(len(series.points) for series in self._series),
            dropped_points=sum(entry.points for entry in self._rejected),
            warnings=[*self._duplicate_warnings(), *self._unit_warnings()],
        )

    def _over(self) -> TooLargeError:
        """The batch has more than it may have."""
        if self._points_left < 0:
            return _too_large("points", count_points(self._batch), self._limits.points_per_batch)
        most = _LABELS_OVER * self._limits.labels_per_series * self._limits.points_per_batch
        return _too_large("labels", sum(len(one.labels) for one in self._batch.series), most)

    def _reject(self, index: int, code: str, points: int) -> None:
        self._rejected.append(RejectedSeries(index=index, code=code, points=points))

    def _name_fault(self, name: str) -> str | None:
        if not name.strip():
            return BAD_NAME
        if _is_longer(name, self._limits.name_bytes):
            return TOO_LONG
        return None

    def _clean_labels(
        self, index: int, labels: Iterable[Label]
    ) -> tuple[dict[str, str], str | None]:
        """The labels that stay, and the code of the first fault among them."""
        clean: dict[str, str] = {}
        for label in labels:
            sent, value = label.name, label.value
            name = normalise_name(sent)
            if is_reserved_name(name):
                continue
            if name in clean:
                self._duplicates.append((index, name))
                continue
            if _is_longer(sent, self._limits.name_bytes):
                return clean, TOO_LONG
            if _is_longer(value, self._limits.label_value_bytes):
                return clean, TOO_LONG
            if "\0" in value:
                return clean, BAD_LABEL
            clean[name] = value
        too_many = len(clean) > self._limits.labels_per_series
        return clean, TOO_MANY_LABELS if too_many else None

    def _clean_points(self, index: int, series: Series) -> tuple[tuple[int, float], ...]:
        clean: list[tuple[int, float]] = []
        faults: Counter[str] = Counter()
        for point in series.points:
            ts_ms, value = point.ts_ms, point.value
            if not math.isfinite(value):
                faults[NOT_FINITE] += 1
            elif ts_ms < self.oldest_ms:
                faults[TOO_OLD] += 1
                self._guess_unit(ts_ms)
            elif ts_ms > self.newest_ms:
                faults[IN_FUTURE] += 1
                self._guess_unit(ts_ms)
            else:
                clean.append((ts_ms, value))
        for code, count in sorted(faults.items()):
            self._reject(index, code, count)
        return tuple(clean)

    def _guess_unit(self, ts: int) -> None:
        for unit, factor in _WRONG_UNITS:
            if abs(ts * factor - self._now_ms) <= _PLAUSIBLE_MS:
                self._units[unit] += 1

    def _duplicate_warnings(self) -> list[str]:
        if not self._duplicates:
            return []
        index, name = self._duplicates[0]
        warning = (
            f"{len(self._duplicates)} duplicate labels dropped, the first of each name kept "
            f"(series {index}, label {name:.{_NAME_CHARS_SHOWN}})"
        )
        return [warning]

    def _unit_warnings(self) -> list[str]:
        return [
            f"{count} points refused: their ts_ms looks like {unit}; send Unix milliseconds"
            for unit, count in sorted(self._units.items())
        ]
