"""Every number that both sides of the wire must agree on.

The agent checks them before it sends and the collector checks them always. They are the defaults of
the protocol: a collector may set others, which it then gives to `ahwire.batch.validate` as a
`Limits`. Units are in the names; bytes of text are bytes of its UTF-8 form.
"""

import attrs

__all__ = [
    "CONFIG_PER_MINUTE",
    "DEFAULT",
    "ENROLL_PER_MINUTE",
    "MAX_AGENTS_PER_PAGE",
    "MAX_COMPRESSED_BYTES",
    "MAX_ERROR_MESSAGE_CHARS",
    "MAX_EVENTS_PER_REQUEST",
    "MAX_FENCE",
    "MAX_GROUP_MEMBERS",
    "MAX_HUB_BYTES",
    "MAX_INCIDENT_REFS",
    "MAX_INTERVAL_SECONDS",
    "MAX_LABELS_PER_SERIES",
    "MAX_LABEL_VALUE_BYTES",
    "MAX_MESSAGE_BYTES",
    "MAX_NAME_BYTES",
    "MAX_NEW_SERIES_FIRST_HOUR",
    "MAX_NEW_SERIES_PER_HOUR",
    "MAX_PLAIN_BYTES",
    "MAX_POINTS_PER_BATCH",
    "MAX_POINT_AGE_SECONDS",
    "MAX_POINT_FUTURE_SECONDS",
    "MAX_RESPONSE_BYTES",
    "MAX_RETRY_AFTER_SECONDS",
    "MAX_RETRY_AFTER_SENT_SECONDS",
    "MAX_SEEN_PER_REPORT",
    "METRICS_BURST",
    "MIN_INTERVAL_SECONDS",
    "MIN_SHORT_INTERVAL_SECONDS",
    "POINTS_PER_MINUTE",
    "PROTOCOL_VERSION",
    "Limits",
    "metrics_per_minute",
]

PROTOCOL_VERSION = "1"

MAX_COMPRESSED_BYTES = 1 << 20
MAX_PLAIN_BYTES = 8 << 20
MAX_RESPONSE_BYTES = 1 << 20
MAX_HUB_BYTES = 8 << 20
MAX_MESSAGE_BYTES = 1 << 20

MAX_POINTS_PER_BATCH = 20_000
MAX_LABELS_PER_SERIES = 27
MAX_NAME_BYTES = 200
MAX_LABEL_VALUE_BYTES = 1_024
MAX_POINT_AGE_SECONDS = 24 * 3600
MAX_POINT_FUTURE_SECONDS = 300

MAX_NEW_SERIES_PER_HOUR = 500
MAX_NEW_SERIES_FIRST_HOUR = 5_000

METRICS_BURST = 10
CONFIG_PER_MINUTE = 2
ENROLL_PER_MINUTE = 10
POINTS_PER_MINUTE = 100_000  # at the doors of other protocols, which have no cycle to go by

MAX_RETRY_AFTER_SECONDS = 3600
MAX_RETRY_AFTER_SENT_SECONDS = 60
MAX_ERROR_MESSAGE_CHARS = 200

MIN_INTERVAL_SECONDS = 10
MAX_INTERVAL_SECONDS = 300
MIN_SHORT_INTERVAL_SECONDS = 1  # with allow_short_interval only: tests and the demo

MAX_EVENTS_PER_REQUEST = 200
MAX_FENCE = (1 << 53) - 1  # of X-AH-Fence: the largest that a reader with doubles takes exactly
MAX_SEEN_PER_REPORT = 500
MAX_AGENTS_PER_PAGE = 500
MAX_GROUP_MEMBERS = 1_000
MAX_INCIDENT_REFS = 1_000


def metrics_per_minute(interval_seconds: float) -> float:
    """How many `POST /metrics` an agent with this cycle may make a minute: max(4, 2 x 60 / cycle).

    Raises:
        ValueError: the interval is not a positive number.
    """
    if not interval_seconds > 0:
        msg = f"interval_seconds is {interval_seconds!r}; it must be above 0"
        raise ValueError(msg)
    return max(4.0, 2 * 60 / interval_seconds)


@attrs.frozen(kw_only=True)
class Limits:
    """What `ahwire.batch.validate` holds a batch to; the defaults are the protocol's."""

    points_per_batch: int = MAX_POINTS_PER_BATCH
    labels_per_series: int = MAX_LABELS_PER_SERIES
    name_bytes: int = MAX_NAME_BYTES
    label_value_bytes: int = MAX_LABEL_VALUE_BYTES
    point_age_seconds: float = MAX_POINT_AGE_SECONDS
    point_future_seconds: float = MAX_POINT_FUTURE_SECONDS


DEFAULT = Limits()
