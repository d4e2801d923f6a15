"""What is written at the start to see whether this VictoriaMetrics keeps what it is given.

One series at every limit of the door: the most labels, the longest names and values, the oldest
point and the one furthest ahead. Its company and server begin with ``_``, which no id does, so it
is nobody's. It is the same series at each start with the same limits, with a few more samples.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from ahcollector.bus.base import StoredSeries
from ahcollector.clock import AsyncClock
from ahcollector.errors import PermanentStoreError, StoreError, TemporaryStoreError
from ahcollector.store._lines import (
    LABEL_NAME_BYTES_MAX,
    LABEL_VALUE_BYTES_MAX,
    LABELS_MAX,
    SERIES_BYTES_MAX,
    series_bytes,
)
from ahcollector.store._selectors import selector
from ahcollector.store._store_flags import flag_warnings
from ahcollector.store._victoria_page import StorePage, dropped_text
from ahcollector.store.base import RangeSeries
from ahwire.limits import Limits

__all__ = ["AHEAD_SECONDS_MAX", "PROBE_NAME", "Probe", "StartCheck", "check_limits"]

_log = logging.getLogger("ahcollector.store")

AHEAD_SECONDS_MAX: Final = 2 * 86_400.0
"""VictoriaMetrics drops what is further ahead of its clock."""

PROBE_NAME: Final = "ah_start_check_"
"""What the name of its metric begins with."""

_TENANT: Final = "_ah_start_check_2"
_ID_CHARS: Final = 128
_OWN_LABELS: Final = 3
# Quotes, a backslash, a line's end and characters of two and four bytes.
_AWKWARD: Final = "\"\\\n'{}=,é\U0001f600"
# The longest in its index: a byte that it writes as two.
_FILLER: Final = "\x01"
_POLL_SECONDS: Final = 0.5
# After a flush all is there; what is not by then does not come.
_FLUSHED_SECONDS: Final = 1.0
_MINUTE_MS: Final = 60_000
# The clocks of two machines differ, and it reads its own once a second.
_CLOCKS_SECONDS: Final = 60.0
# So far into a minute three samples are within one interval of any length that divides a minute.
_NEAR_MS: Final = 29_001
# Differences that survive only when all bits of values are kept.
_NEAR_VALUES: Final = (1.0, 123_456_789.0, 3.0)


def check_limits(
    limits: Limits, *, held_seconds: float = 0.0, retention_seconds: float | None = None
) -> None:
    """Compare what the door takes with what VictoriaMetrics keeps.

    Raises:
        PermanentStoreError: The door takes what would be refused or lost later.
    """
    labels = limits.labels_per_series + _OWN_LABELS
    oldest_seconds = limits.point_age_seconds + held_seconds
    size = series_bytes(Probe(limits=limits).labels)
    wrong: str | None = None
    if labels > LABELS_MAX:
        wrong = (
            f"a series of {limits.labels_per_series} labels has {labels} with its name and tenant, "
            f"over {LABELS_MAX}: lower ingest.labels_per_series_max"
        )
    elif limits.name_bytes > LABEL_NAME_BYTES_MAX:
        wrong = (
            f"a label's name of {limits.name_bytes} bytes is over {LABEL_NAME_BYTES_MAX}: lower "
            "ingest.name_bytes_max"
        )
    elif limits.label_value_bytes > LABEL_VALUE_BYTES_MAX:
        wrong = (
            f"a label's value of {limits.label_value_bytes} bytes is over {LABEL_VALUE_BYTES_MAX}: "
            "lower ingest.label_value_bytes_max"
        )
    elif size > SERIES_BYTES_MAX:
        wrong = (
            f"a series of {limits.labels_per_series} labels with values of "
            f"{limits.label_value_bytes} bytes takes up to {size} bytes in its index, over "
            f"{SERIES_BYTES_MAX}: lower ingest.label_value_bytes_max or "
            "ingest.labels_per_series_max"
        )
    elif limits.point_future_seconds > AHEAD_SECONDS_MAX:
        wrong = (
            f"a point {limits.point_future_seconds:g} s ahead is over its two days: lower "
            "ingest.point_future_seconds_max"
        )
    elif retention_seconds is not None and oldest_seconds + _CLOCKS_SECONDS > retention_seconds:
        wrong = (
            f"a point may be {oldest_seconds:g} s old when it is written, and it is kept for "
            f"{retention_seconds:g} s: lower ingest.point_age_hours_max, or raise -retentionPeriod "
            "and tsdb.retention_days"
        )
    if wrong is not None:
        raise PermanentStoreError(f"the door takes what VictoriaMetrics does not keep: {wrong}")


@attrs.frozen(kw_only=True)
class Probe:
    """The series that is written at the start, for a door with these limits."""

    limits: Limits

    @property
    def _tenant(self) -> str:
        limits = self.limits
        sizes = (limits.labels_per_series, limits.name_bytes, limits.label_value_bytes)
        return "_".join((_TENANT, *map(str, sizes)))

    @property
    def company_id(self) -> str:
        """Nobody's id, as long as one may be."""
        return self._tenant.ljust(_ID_CHARS, "c")

    @property
    def server_id(self) -> str:
        """Nobody's id, as long as one may be."""
        return self._tenant.ljust(_ID_CHARS, "s")

    @property
    def selector(self) -> str:
        """Finds it, also when its other labels were lost."""
        return selector(self.company_id, server_id=self.server_id)

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """All its labels, in the stored order."""
        limits = self.limits
        filler = _FILLER * max(0, limits.label_value_bytes - len(_AWKWARD.encode()))
        own = [
            (f"l{number:02d}".ljust(limits.name_bytes, "n"), _AWKWARD + filler)
            for number in range(limits.labels_per_series)
        ]
        return (
            ("__name__", PROBE_NAME.ljust(limits.name_bytes + len("ah_"), "m")),
            ("company_id", self.company_id),
            ("server_id", self.server_id),
            *own,
        )

    def points(self, now_ms: int, *, held_seconds: float) -> tuple[tuple[int, float], ...]:
        """Return its samples: the oldest, three that are near each other, the one furthest ahead.

        The oldest is a minute older than may come, since clocks differ. Those at the ends are at
        whole seconds, so that they never are another start's.
        """
        oldest_seconds = self.limits.point_age_seconds + held_seconds + _CLOCKS_SECONDS
        oldest_ms = now_ms - round(oldest_seconds * 1000)
        newest_ms = now_ms + round(self.limits.point_future_seconds * 1000)
        near_ms = now_ms // _MINUTE_MS * _MINUTE_MS - _MINUTE_MS + _NEAR_MS
        return (
            (oldest_ms // 1000 * 1000, 1.0),
            *((near_ms + n, value) for n, value in enumerate(_NEAR_VALUES)),
            (-(-newest_ms // 1000) * 1000, 1.0),
        )

    def series(self, points: tuple[tuple[int, float], ...]) -> StoredSeries:
        """Return the series with its samples."""
        return StoredSeries(labels=self.labels, points=points)


@attrs.frozen(kw_only=True)
class StartCheck:
    """Writes the probe twice, as a retry does, and reads it back.

    Attributes:
        write: Stores series, and counts them nowhere: no agent sent them.
        flush: Makes what was written visible; may fail.
        samples: Asks for the samples that an expression finds at an instant (Unix ms).
        page: Asks for its metrics page; may fail.
        clock: Tells the time, and waits.
        limits: The door's.
        held_seconds: How long a point may wait between the door and here.
        retention_seconds: How long it is said to keep samples; None: not said.
        line_bytes_max: The longest line of an import that is sent; 0: none is.
        body_bytes_max: The longest body of a remote write that is sent; 0: none is.
    """

    write: Callable[[Sequence[StoredSeries]], Awaitable[object]]
    flush: Callable[[], Awaitable[None]]
    samples: Callable[[str, int], Awaitable[list[RangeSeries]]]
    page: Callable[[], Awaitable[StorePage]]
    clock: AsyncClock
    limits: Limits
    held_seconds: float
    retention_seconds: float | None
    line_bytes_max: int
    body_bytes_max: int

    async def run(self, *, timeout_seconds: float) -> tuple[str, ...]:
        """Return warnings, which are logged too. Raises as `VictoriaMetricsStore.check` says."""
        check_limits(
            self.limits,
            held_seconds=self.held_seconds,
            retention_seconds=self.retention_seconds,
        )
        before = await self._page_or_none()
        probe = Probe(limits=self.limits)
        now_ms = round(self.clock.time() * 1000)
        points = probe.points(now_ms, held_seconds=self.held_seconds)
        for _ in range(2):
            # Two requests, as a retry makes them.
            await self.write([probe.series(points)])
        times = await self._read_back(probe, points, before, timeout_seconds)
        warnings = list(_repeat_warnings(points, times))
        if before is not None:
            warnings += flag_warnings(
                before.flags,
                retention_seconds=self.retention_seconds,
                line_bytes_max=self.line_bytes_max,
                body_bytes_max=self.body_bytes_max,
            )
        for warning in warnings:
            _log.warning("%s", warning)
        return tuple(warnings)

    async def _page_or_none(self) -> StorePage | None:
        # Where the page is locked, what is written and read back still tells most.
        with contextlib.suppress(StoreError):
            return await self.page()
        return None

    async def _read_back(
        self,
        probe: Probe,
        points: tuple[tuple[int, float], ...],
        before: StorePage | None,
        timeout_seconds: float,
    ) -> Counter[int]:
        """Wait until the probe can be read as it was written; return how often each time is."""
        wait_seconds = timeout_seconds
        with contextlib.suppress(StoreError):
            # It saves ten seconds of waiting; where that door is locked, they are waited.
            await self.flush()
            wait_seconds = min(timeout_seconds, _FLUSHED_SECONDS)
        end_seconds = self.clock.monotonic() + wait_seconds
        start_ms, end_ms = points[0][0], points[-1][0]
        window = f"{probe.selector}[{end_ms - start_ms + 1}ms]"
        while True:
            found = await self.samples(window, end_ms)
            error = _fault(probe, points, found, held_seconds=self.held_seconds)
            if error is None:
                [series] = [one for one in found if one.labels == probe.labels]
                return Counter(timestamp_ms for timestamp_ms, _ in series.points)
            if self.clock.monotonic() >= end_seconds:
                break
            await self.clock.sleep(_POLL_SECONDS)
        if found:
            raise error
        after = None if before is None else await self._page_or_none()
        dropped = after.dropped_since(before) if before is not None and after is not None else {}
        seen = f"; meanwhile it dropped {dropped_text(dropped)}" if dropped else ""
        raise TemporaryStoreError(
            f"VictoriaMetrics took a series and did not show it in {wait_seconds:g} s{seen}: see "
            "its log for what it dropped"
        )


def _fault(
    probe: Probe,
    points: tuple[tuple[int, float], ...],
    found: Sequence[RangeSeries],
    *,
    held_seconds: float,
) -> PermanentStoreError | None:
    """Compare what was read back with what was written."""
    expected = probe.labels
    whole = [series for series in found if series.labels == expected]
    if not whole:
        held = dict(found[0].labels) if found else {}
        lost = sum(name not in held for name, _ in expected)
        cut = sum(held.get(name, value) != value for name, value in expected)
        return PermanentStoreError(
            "VictoriaMetrics keeps series otherwise than they are written: of "
            f"{len(expected)} labels it lost {lost} and changed {cut}; start it with "
            "-maxLabelsPerTimeseries=64 or more, and -maxLabelValueLen of "
            f"{probe.limits.label_value_bytes} or more where it has that flag"
        )
    shown = dict(whole[0].points)
    oldest, *near, newest = points
    if oldest[0] not in shown:
        seconds = probe.limits.point_age_seconds + held_seconds
        return PermanentStoreError(
            f"VictoriaMetrics dropped a sample that is over {seconds:g} s old by its clock or by "
            "ours, and samples may be as old when they are written: start it with a longer "
            "-retentionPeriod, or lower ingest.point_age_hours_max"
        )
    if newest[0] not in shown:
        return PermanentStoreError(
            "VictoriaMetrics dropped a sample that is "
            f"{probe.limits.point_future_seconds:g} s ahead, and the door takes such: set its "
            "clock, or lower ingest.point_future_seconds_max"
        )
    if not any(timestamp_ms in shown for timestamp_ms, _ in near):
        return PermanentStoreError("VictoriaMetrics lost the newest samples of a series")
    for timestamp_ms, value in near:
        if shown.get(timestamp_ms, value) != value:
            return PermanentStoreError(
                f"VictoriaMetrics shows {shown[timestamp_ms]:g} where {value:g} was written: start "
                "it without -precisionBits"
            )
    return None


def _repeat_warnings(points: tuple[tuple[int, float], ...], times: Counter[int]) -> Sequence[str]:
    """Return what to tell of samples that were written twice, a millisecond apart."""
    counts = [times[timestamp_ms] for timestamp_ms, _ in points]
    if 0 in counts:
        warning = (
            "VictoriaMetrics keeps only one of several samples that are near each other: start it "
            "with -dedup.minScrapeInterval=1ms and no longer interval"
        )
        return (warning,)
    if max(counts) > 1:
        warning = (
            "VictoriaMetrics counts a sample that is written again once more, so sums, counts and "
            "averages are wrong after a retry: start it with -dedup.minScrapeInterval=1ms"
        )
        return (warning,)
    return ()
