"""How a batch is judged. Public as names of `ahwire.batch`."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Self

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
_FINGERPRINT_BYTES = 16

Labels = tuple[tuple[str, str], ...]
Points = tuple[tuple[int, float], ...]


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
    labels: Labels
    points: Points


@attrs.frozen(kw_only=True)
class SeriesKey:
    """What makes a series the one it is, before it has a tenant.

    Attributes:
        name: normalised, beginning `ah_`.
        labels: (name, value) pairs sorted by name; names are normalised, unique and not reserved.
        fingerprint: 16 bytes of BLAKE2b that stand for both, in every process and version: where
            two are equal, name and labels are.
        name_label: the name as the label that stores know it by, `__name__`.
    """

    name: str
    labels: Labels
    fingerprint: bytes
    name_label: tuple[str, str]

    @classmethod
    def of(cls, name: str, labels: Labels) -> Self:
        """The key of a name and labels."""
        texts = [name, *(text for pair in labels for text in pair)]
        # The lengths come first, so that no two rows of texts are written alike.
        said = f"{','.join([str(len(text)) for text in texts])};{''.join(texts)}"
        digest = hashlib.blake2b(
            said.encode("utf-8", "surrogatepass"), digest_size=_FINGERPRINT_BYTES
        )
        return cls(
            name=name,
            labels=labels,
            fingerprint=digest.digest(),
            name_label=("__name__", name),
        )


@attrs.frozen(kw_only=True)
class Judged:
    """What became of a batch, for those to whom a microsecond a series matters.

    What may be stored is in three rows, in the batch's order: an object of each series would cost
    its making, and its part of every garbage collection.

    Attributes:
        indexes: the place of each series in the batch.
        keys: its name and labels.
        points: its points, never none.
        rejected: one entry for each (index, code), ready for the acknowledgement.
        accepted_points: points in `points`.
        dropped_points: points in `rejected`.
        warnings: sentences for the agent's log, a handful at most.
        fresh: for `Validator.remember`, when it was asked to remember nothing by itself: the place
            in the rows of each series that can be known again, and what it is known by.
    """

    indexes: Sequence[int]
    keys: Sequence[SeriesKey]
    points: Sequence[Points]
    rejected: list[RejectedSeries]
    accepted_points: int
    dropped_points: int
    warnings: list[str]
    fresh: Sequence[tuple[int, bytes]] = ()


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
    judge = Judge(len(batch.series), now_ms, limits, whole=lambda: batch)
    clean: list[CleanSeries] = []
    for index, series in enumerate(batch.series):
        seen = judge.see(index, series)
        if seen is not None:
            clean.append(
                CleanSeries(index=index, name=seen.name, labels=seen.labels, points=seen.points)
            )
    return Validated(
        series=tuple(clean),
        rejected=judge.rejected,
        accepted_points=sum(len(series.points) for series in clean),
        dropped_points=judge.dropped_points(),
        warnings=judge.warnings(),
    )


def count_points(batch: MetricsBatch) -> int:
    """How many points the batch carries, over all of its series."""
    return sum(len(series.points) for series in batch.series)


def _too_large(what: str, count: int, most: int) -> TooLargeError:
    return TooLargeError(f"the batch has {count} {what}; at most {most} are taken, split it")


def _first_over(counts: Sequence[int], most: int) -> int:
    """Where the sum of the counts comes to more; behind the last when it does not."""
    return next((at for at, sum_ in enumerate(accumulate(counts)) if sum_ > most), len(counts))


def _is_longer(text: str, bytes_max: int) -> bool:
    """Whether the UTF-8 form has more bytes; a character has at most four."""
    return len(text) * 4 > bytes_max and len(text.encode()) > bytes_max


@attrs.frozen(kw_only=True)
class Seen:
    """What may be stored of a series.

    Attributes:
        lasting: whether it has all of its labels, so that its name and labels come to the same
            whenever they come again.
    """

    name: str
    labels: Labels
    points: Points
    lasting: bool


class Judge:
    """Judges the series of one batch and keeps what the agent is told of them."""

    def __init__(
        self,
        series_count: int,
        now_ms: int,
        limits: Limits,
        *,
        whole: Callable[[], MetricsBatch],
    ) -> None:
        """Begin a batch.

        Args:
            series_count: how many series it has.
            now_ms: the collector's wall clock in Unix milliseconds.
            limits: what it is held to.
            whole: gives the batch, to count what is in it when it has too much.

        Raises:
            TooLargeError: it has too many series; none is looked into.
        """
        if series_count > limits.points_per_batch:
            # Counted in the whole, for what cannot be read is not too large.
            raise _too_large("series", len(whole().series), limits.points_per_batch)
        self.oldest_ms = now_ms - round(limits.point_age_seconds * 1000)
        self.newest_ms = now_ms + round(limits.point_future_seconds * 1000)
        self.rejected: list[RejectedSeries] = []
        self._whole = whole
        self._now_ms = now_ms
        self._limits = limits
        self._labels_left = _LABELS_OVER * limits.labels_per_series * limits.points_per_batch
        self._points_left = limits.points_per_batch
        self._duplicates: list[tuple[int, str]] = []
        self._units: Counter[str] = Counter()

    def see(self, index: int, series: Series) -> Seen | None:
        """Judge a series.

        Returns:
            What may be stored of it; None: nothing.

        Raises:
            TooLargeError: the batch has too many points or labels.
        """
        points_sent, labels_sent = len(series.points), len(series.labels)
        self.spend(points_sent, labels_sent)
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
        return Seen(
            name=metric_name(series.name),
            labels=tuple(sorted(labels.items())),
            points=points,
            lasting=len(labels) == labels_sent,
        )

    def spend(self, points: int, labels: int) -> None:
        """Note what a series has.

        Raises:
            TooLargeError: the batch has too many points or labels.
        """
        self._points_left -= points
        self._labels_left -= labels
        if self._points_left < 0 or self._labels_left < 0:
            raise self._over()

    def dropped_points(self) -> int:
        """Points in `rejected`."""
        return sum(entry.points for entry in self.rejected)

    def warnings(self) -> list[str]:
        """Sentences for the agent's log."""
        return [*self._duplicate_warnings(), *self._unit_warnings()]

    def _over(self) -> TooLargeError:
        """What the batch has too much of: the first that is over, in the order of its series."""
        points = [len(series.points) for series in self._whole().series]
        labels = [len(series.labels) for series in self._whole().series]
        most_points = self._limits.points_per_batch
        most_labels = _LABELS_OVER * self._limits.labels_per_series * most_points
        if _first_over(points, most_points) <= _first_over(labels, most_labels):
            return _too_large("points", sum(points), most_points)
        return _too_large("labels", sum(labels), most_labels)

    def _reject(self, index: int, code: str, points: int) -> None:
        self.rejected.append(RejectedSeries(index=index, code=code, points=points))

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
