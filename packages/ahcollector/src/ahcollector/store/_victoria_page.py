"""What VictoriaMetrics tells about itself on its metrics page: flags, and what it dropped.

It answers that all is well to samples that it drops, cuts or changes; only counters on this page
tell. What they count may be anybody's samples: it has no tenants, and says no more of them.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import attrs

from ahcollector import metrics as names
from ahcollector.clock import AsyncClock
from ahcollector.errors import StoreError
from ahcollector.metrics import Metrics

__all__ = ["DropWatch", "StorePage", "dropped_text", "read_page"]

_log = logging.getLogger("ahcollector.store")

_SERIES = re.compile(r"([a-zA-Z_]\w*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

# Counters of one reason each.
_PLAIN: Final = {
    "vm_metrics_with_dropped_labels_total": "labels_dropped",
    "vm_too_long_label_names_total": "label_cut",
    "vm_too_long_label_values_total": "label_cut",
    "vm_hourly_series_limit_rows_dropped_total": "hourly_limit",
    "vm_daily_series_limit_rows_dropped_total": "daily_limit",
    "vm_relabel_metrics_dropped_total": "relabeled",
    "vm_rows_invalid_total": "invalid",
}
# Reasons of `vm_rows_ignored_total`; newer versions count more of what they drop here.
_IGNORED: Final = {
    "small_timestamp": "too_old",
    "big_timestamp": "in_future",
    "nan_value": "non_finite",
    "too_many_labels": "labels_dropped",
    "too_long_label_name": "label_cut",
    "too_long_label_value": "label_cut",
    "hourly_limit_exceeded": "hourly_limit",
    "daily_limit_exceeded": "daily_limit",
}
_OTHER: Final = "other"
_CAUSES: Final = {
    "too_old": "older than -retentionPeriod",
    "in_future": "over two days ahead of its clock",
    "non_finite": "no numbers",
    "labels_dropped": "over -maxLabelsPerTimeseries",
    "label_cut": "over -maxLabelValueLen or -maxLabelNameLen",
    "hourly_limit": "new series over -storage.maxHourlySeries",
    "daily_limit": "new series over -storage.maxDailySeries",
    "relabeled": "by -relabelConfig",
    "invalid": "lines that it could not read",
    _OTHER: "for reasons that its page tells",
}


@attrs.frozen(kw_only=True)
class StorePage:
    """What the page says.

    Attributes:
        flags: All flags by name, without the dash, as texts; secrets are not shown there.
        dropped: Rows dropped or changed in silence since its start, by reason.
        started: When it was started, as it says.
    """

    flags: Mapping[str, str]
    dropped: Mapping[str, int]
    started: str

    def dropped_since(self, before: StorePage) -> dict[str, int]:
        """Return by how much the counts rose; after a restart they began anew."""
        base = before.dropped if before.started == self.started else {}
        rises = {reason: count - base.get(reason, 0) for reason, count in self.dropped.items()}
        return {reason: rise for reason, rise in sorted(rises.items()) if rise > 0}


def read_page(page: bytes) -> StorePage:
    """Read the page.

    Raises:
        ValueError: It is not VictoriaMetrics'.
    """
    flags: dict[str, str] = {}
    plain: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    started = ""
    for name, labels, value in _series(page):
        if name == "flag":
            flags[labels.get("name", "")] = labels.get("value", "")
        elif name == "vm_app_start_timestamp":
            started = value
        elif name == "vm_rows_ignored_total":
            ignored[_IGNORED.get(labels.get("reason", ""), _OTHER)] += _count(value)
        elif name in _PLAIN:
            plain[_PLAIN[name]] += _count(value)
    if not started:
        raise ValueError("its metrics page does not tell when it was started")
    # The greater of both: a version that has both counts the same rows in each.
    return StorePage(flags=flags, dropped=plain | ignored, started=started)


def _series(page: bytes) -> Iterator[tuple[str, dict[str, str], str]]:
    for line in page.decode(errors="replace").splitlines():
        found = _SERIES.fullmatch(line)
        if found is not None:
            name, labels, value = found.groups()
            yield name, dict(_LABEL.findall(labels or "")), value


def _count(value: str) -> int:
    try:
        return int(float(value))
    except (ValueError, OverflowError):
        return 0


def dropped_text(dropped: Mapping[str, int]) -> str:
    """Return counts by reason for people, with their causes."""
    return ", ".join(f"{count} {reason} ({_CAUSES[reason]})" for reason, count in dropped.items())


class DropWatch:
    """Turns what VictoriaMetrics drops in silence into a counter and a line in the log.

    Every process that watches one VictoriaMetrics counts all of it: do not add theirs up.

    Args:
        page: Asks for the page.
        clock: Waits between two looks.
        metrics: Where to count (`ahc_tsdb_silent_drops_total`).
    """

    def __init__(
        self, *, page: Callable[[], Awaitable[StorePage]], clock: AsyncClock, metrics: Metrics
    ) -> None:
        self._page = page
        self._clock = clock
        self._metrics = metrics
        self._before: StorePage | None = None
        self._failing = False

    async def look(self) -> dict[str, int]:
        """Return what was dropped since the last look, by reason; the first finds nothing.

        Raises:
            StoreError: The page cannot be had.
        """
        page = await self._page()
        before, self._before = self._before, page
        if before is None:
            return {}
        dropped = page.dropped_since(before)
        for reason, count in dropped.items():
            self._metrics.inc(names.TSDB_SILENT_DROPS, count, reason=reason)
        if dropped:
            _log.warning(
                "VictoriaMetrics dropped or changed samples and told nobody who wrote them: %s",
                dropped_text(dropped),
            )
        return dropped

    async def run(self, *, interval_seconds: float) -> None:
        """Look again and again until cancelled; a page that cannot be had is logged once."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                if not self._failing:
                    _log.warning(
                        "what VictoriaMetrics drops in silence cannot be seen, because its metrics "
                        "page cannot be had",
                        extra={"error": str(error)},
                    )
                self._failing = True
            else:
                self._failing = False
            await self._clock.sleep(interval_seconds)
