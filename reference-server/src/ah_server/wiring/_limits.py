"""What is taken at the ingest door, and so has to fit into the store."""

from ah_server.settings import ServerSettings
from ahcollector.ingest import IngestLimits
from ahwire.limits import Limits as BatchLimits


def batch_limits(settings: ServerSettings) -> BatchLimits:
    """What a batch may hold."""
    ingest = settings.ingest
    return BatchLimits(
        points_per_batch=ingest.points_per_batch_max,
        labels_per_series=ingest.labels_per_series_max,
        name_bytes=ingest.name_bytes_max,
        label_value_bytes=ingest.label_value_bytes_max,
        point_age_seconds=ingest.point_age_hours_max * 3600,
        point_future_seconds=ingest.point_future_seconds_max,
    )


def ingest_limits(settings: ServerSettings) -> IngestLimits:
    """What the ingest door takes."""
    ingest = settings.ingest
    return IngestLimits(
        compressed_bytes_max=ingest.compressed_bytes_max,
        plain_bytes_max=ingest.plain_bytes_max,
        small_body_bytes_max=ingest.small_body_bytes_max,
        body_timeout_seconds=ingest.body_timeout_seconds,
        batch=batch_limits(settings),
        # Two uses of one fact: how long an agent may wait that was told to come later.
        backoff_seconds_max=settings.alerting.blind_grace_max_seconds,
        metrics_burst=ingest.metrics_burst,
        metrics_per_minute_min=ingest.metrics_per_minute_min,
        points_per_minute=ingest.points_per_minute,
        config_per_minute=ingest.config_per_minute,
        enroll_per_minute=ingest.enroll_per_minute,
        interval_seconds=settings.alerting.agent_interval_seconds,
        interval_seconds_min=ingest.interval_min_seconds,
        interval_seconds_max=ingest.interval_max_seconds,
        known_series_bytes_max=ingest.known_series_bytes_max,
        series_per_hour=ingest.series_per_hour,
        series_first_hour=ingest.series_first_hour,
    )
