"""Every number of the ingest door that is a setting."""

from __future__ import annotations

import attrs

from ahwire import limits as wire

__all__ = ["IngestLimits"]


@attrs.frozen(kw_only=True)
class IngestLimits:
    """What requests are held to; the defaults are the protocol's.

    Attributes:
        compressed_bytes_max: A body as it arrives.
        plain_bytes_max: A body when inflated.
        small_body_bytes_max: Both, for bodies other than batches.
        body_timeout_seconds: How long a whole body may take.
        batch: What one batch may hold.
        metrics_burst: Batches that may come at once after a pause.
        metrics_per_minute_min: Batches a minute that an agent of a long cycle may send; one of a
            short cycle may send two a cycle.
        points_per_minute: Points of an agent at the doors of other protocols, where nothing else
            holds its rate. A minute's worth may come at once after a pause, or one full batch
            where that is more, so that every body that is no more than a batch is taken some time.
            A body costs at least a point for each KiB; a refused one up to four, and one that does
            not end or cannot be inflated a point for each 16 KiB of `plain_bytes_max`.
        config_per_minute: Questions for the configuration, and renewals, and inventories, each.
        enroll_per_minute: Enrolments from one IP address (IPv6: one /64).
        interval_seconds: The cycle of an agent that told none and whose company has none.
        interval_seconds_min: Shorter cycles count as this one.
        interval_seconds_max: Longer cycles count as this one.
        known_series_bytes_max: How much memory the series take that are known by their bytes, at
            each process; a series of 5 labels takes 1.5 KB, one of 27 takes 6, and equal series of
            several agents take it once. An agent fills at most a quarter of it. Batches of more
            series than fit are judged the long way.
        series_per_hour: New series an agent may begin in an hour.
        series_first_hour: The same in its first hour.
        bus_full_retry_seconds: What an agent is told to wait when the bus is full.
        renew_before_seconds: A token that ends within this time should be renewed.
        renew_advice_seconds: How often an agent is told so.
        backoff_seconds_max: The longest wait of agents that were told to come later: so much longer
            they may be silent.
    """

    compressed_bytes_max: int = wire.MAX_COMPRESSED_BYTES
    plain_bytes_max: int = wire.MAX_PLAIN_BYTES
    small_body_bytes_max: int = 256 * 1024
    body_timeout_seconds: float = 15.0
    batch: wire.Limits = wire.DEFAULT
    metrics_burst: int = wire.METRICS_BURST
    metrics_per_minute_min: float = 4.0
    points_per_minute: float = wire.POINTS_PER_MINUTE
    config_per_minute: float = wire.CONFIG_PER_MINUTE
    enroll_per_minute: float = wire.ENROLL_PER_MINUTE
    interval_seconds: float = 30.0
    interval_seconds_min: float = wire.MIN_INTERVAL_SECONDS
    interval_seconds_max: float = wire.MAX_INTERVAL_SECONDS
    known_series_bytes_max: int = 128 << 20
    series_per_hour: int = wire.MAX_NEW_SERIES_PER_HOUR
    series_first_hour: int = wire.MAX_NEW_SERIES_FIRST_HOUR
    bus_full_retry_seconds: float = 5.0
    renew_before_seconds: float = 24 * 3600.0
    renew_advice_seconds: float = 600.0
    backoff_seconds_max: float = 300.0

    @property
    def points_burst(self) -> float:
        """How many points may come at once after a pause."""
        return max(self.points_per_minute, float(self.batch.points_per_batch))

    def clamp_interval(self, seconds: float) -> float:
        """Return a cycle as it counts."""
        return min(max(seconds, self.interval_seconds_min), self.interval_seconds_max)
