"""Time series in memory, bounded by age and number, for the demo, tests and small deployments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ahcollector import metrics as names
from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.metrics import Metrics, NullMetrics
from ahcollector.store._refusals import check_range, check_tenant
from ahcollector.store._series import MemorySeries
from ahcollector.store.base import Aggregate, LatestSample, RangeSeries, SeriesInfo
from ahwire.clock import Clock
from ahwire.names import metric_name

__all__ = ["MemoryStore"]

_LATEST_MS: Final = 600_000
_SWEEP_SECONDS: Final = 60.0
_KEEP_RATIO: Final = 0.9

Labels = tuple[tuple[str, str], ...]


class MemoryStore:
    """`Store` in memory: gone with the process unless it is saved (`ahcollector.store.snapshot`).

    A sample written again replaces the one of its timestamp. Samples older than the retention go;
    when there are more than `points_max`, the oldest tenth of all goes; a new series beyond
    `series_max` is not taken. What goes for another cause than age is counted by reason in
    `dropped`: ``non_finite``, ``too_old``, ``points_max``, ``series_max``.

    Args:
        clock: Tells the age of samples.
        retention_seconds: How long samples are kept.
        points_max: Points in all series, 16 bytes each.
        series_max: Series of all tenants.
        metrics: Where to count.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        retention_seconds: float = 7 * 86_400.0,
        points_max: int = 5_000_000,
        series_max: int = 100_000,
        metrics: Metrics | None = None,
    ) -> None:
        self._clock = clock
        self._retention_seconds = retention_seconds
        self._points_max = points_max
        self._series_max = series_max
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._tenants: dict[str, dict[str, dict[Labels, MemorySeries]]] = {}
        self._points = 0
        self._series = 0
        self._swept_at = clock.monotonic()
        self.dropped: Counter[str] = Counter()
        self.changes = 0

    @property
    def points(self) -> int:
        """Points held."""
        return self._points

    async def write(self, batches: Sequence[SampleBatch]) -> None:
        """Store samples."""
        for batch in batches:
            check_tenant(batch)
        oldest_ms = self._oldest_ms()
        before, dropped = self._points, self.dropped.total()
        for batch in batches:
            server = self._tenants.setdefault(batch.company_id, {}).setdefault(batch.server_id, {})
            for series in batch.series:
                self._store(server, series, oldest_ms)
        taken = sum(batch.samples for batch in batches) - (self.dropped.total() - dropped)
        self._metrics.inc(names.TSDB_SAMPLES_WRITTEN, taken)
        self.changes += self._points != before
        if self._points > self._points_max:
            self._shrink()
        if self._clock.monotonic() - self._swept_at >= _SWEEP_SECONDS:
            self._swept_at = self._clock.monotonic()
            self._cut(oldest_ms)

    def _store(
        self, server: dict[Labels, MemorySeries], series: StoredSeries, oldest_ms: int
    ) -> None:
        good = [
            (timestamp_ms, value)
            for timestamp_ms, value in series.points
            if math.isfinite(value) and timestamp_ms >= oldest_ms
        ]
        if len(good) < len(series.points):
            old = sum(timestamp_ms < oldest_ms for timestamp_ms, _ in series.points)
            self._drop("too_old", old)
            self._drop("non_finite", len(series.points) - len(good) - old)
        if not good:
            return
        held = server.get(series.labels)
        if held is None:
            if self._series >= self._series_max:
                self._drop("series_max", len(good))
                return
            held = server[series.labels] = MemorySeries()
            self._series += 1
        self._points += sum(held.put(timestamp_ms, value) for timestamp_ms, value in good)

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self.dropped[reason] += count
            self._metrics.inc(names.TSDB_SAMPLES_DROPPED, count, reason=reason)

    def _oldest_ms(self) -> int:
        return round((self._clock.time() - self._retention_seconds) * 1000)

    def _shrink(self) -> None:
        """Drop the oldest points of all, so that the next write does not have to."""
        keep = round(self._points_max * _KEEP_RATIO)
        every = [series for _, _, _, series in self._every()]
        low = min(series.first_ms for series in every)
        high = max(series.last_ms for series in every) + 1
        while low < high:
            middle = (low + high) // 2
            if sum(series.count_from(middle) for series in every) > keep:
                low = middle + 1
            else:
                high = middle
        self._drop("points_max", self._cut(low))

    def _cut(self, oldest_ms: int) -> int:
        """Drop points before an instant; return how many there were."""
        count = 0
        for company_id, server_id, labels, series in self._every():
            count += series.cut(oldest_ms)
            if not len(series):
                del self._tenants[company_id][server_id][labels]
                self._series -= 1
        self._points -= count
        self.changes += count > 0
        self._forget_empty()
        return count

    def _forget_empty(self) -> None:
        for company_id, servers in list(self._tenants.items()):
            for server_id in [server_id for server_id, held in servers.items() if not held]:
                del servers[server_id]
            if not servers:
                del self._tenants[company_id]

    def _every(self) -> list[tuple[str, str, Labels, MemorySeries]]:
        return [
            (company_id, server_id, labels, series)
            for company_id, servers in self._tenants.items()
            for server_id, held in servers.items()
            for labels, series in held.items()
        ]

    # --- queries

    async def range(
        self,
        company_id: str,
        server_id: str,
        metric: str,
        *,
        start_ms: int,
        end_ms: int,
        step_ms: int,
        aggregate: Aggregate = Aggregate.AVG,
    ) -> list[RangeSeries]:
        """Aggregate a metric."""
        check_range(start_ms, end_ms, step_ms)
        name = ("__name__", metric_name(metric))
        oldest_ms = self._oldest_ms()
        result = []
        for labels, series in sorted(self._server(company_id, server_id).items()):
            if name in labels:
                points = series.range(
                    start_ms, end_ms, step_ms, aggregate=aggregate, oldest_ms=oldest_ms
                )
                if points:
                    result.append(RangeSeries(labels=labels, points=points))
        return result

    async def latest(
        self, company_id: str, server_id: str, *, since_ms: int | None = None
    ) -> list[LatestSample]:
        """Return the newest samples."""
        if since_ms is None:
            since_ms = round(self._clock.time() * 1000) - _LATEST_MS
        return [
            LatestSample(labels=labels, timestamp_ms=series.last_ms, value=series.last_value)
            for labels, series in sorted(self._server(company_id, server_id).items())
            if series.last_ms >= since_ms
        ]

    async def series(self, company_id: str, server_id: str | None = None) -> list[SeriesInfo]:
        """List series."""
        servers = self._tenants.get(company_id, {})
        chosen = servers.values() if server_id is None else [servers.get(server_id, {})]
        return [
            SeriesInfo(labels=labels, first_ms=series.first_ms, last_ms=series.last_ms)
            for labels, series in sorted(item for held in chosen for item in held.items())
        ]

    def _server(self, company_id: str, server_id: str) -> dict[Labels, MemorySeries]:
        return self._tenants.get(company_id, {}).get(server_id, {})

    # --- deletion

    async def delete_server(self, company_id: str, server_id: str) -> int:
        """Delete a server's series."""
        held = self._tenants.get(company_id, {}).pop(server_id, {})
        self._points -= sum(len(series) for series in held.values())
        self._series -= len(held)
        self.changes += 1
        self._forget_empty()
        return len(held)

    async def delete_company(self, company_id: str) -> int:
        """Delete a company's series."""
        servers = list(self._tenants.get(company_id, {}))
        return sum([await self.delete_server(company_id, server_id) for server_id in servers])

    async def ping(self) -> None:
        """Answer."""

    # --- the content as a whole

    def image(self) -> list[tuple[Labels, MemorySeries]]:
        """Return all series; those of each tenant carry it in their labels. Do not change them."""
        return [(labels, series) for _, _, labels, series in self._every()]

    def restore(self, labels: Labels, points: Sequence[tuple[int, float]]) -> None:
        """Take a series of an earlier image back; what is too old by now is left out."""
        tenant = dict(labels)
        server = self._tenants.setdefault(tenant["company_id"], {}).setdefault(
            tenant["server_id"], {}
        )
        self._store(server, StoredSeries(labels=labels, points=tuple(points)), self._oldest_ms())
        self._forget_empty()
