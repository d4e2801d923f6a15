"""Series by the labels that are stored: to make one costs more than to judge a point."""

from __future__ import annotations

from typing import Final

from ahcollector.bus.base import StoredSeries
from ahrules import Series

__all__ = ["KnownSeries"]

_TENANT_LABELS: Final = frozenset({"__name__", "company_id", "server_id"})


class KnownSeries:
    """Makes series, and keeps so many of them at most."""

    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._series: dict[tuple[tuple[str, str], ...], Series] = {}

    def of(self, stored: StoredSeries) -> Series:
        """Return the series without the labels of its tenant."""
        series = self._series.get(stored.labels)
        if series is None:
            if len(self._series) >= self._series_max:
                self._series.clear()  # a cache: whoever is still there comes again
            labels = {name: text for name, text in stored.labels if name not in _TENANT_LABELS}
            series = self._series[stored.labels] = Series(name=stored.labels[0][1], labels=labels)
        return series
