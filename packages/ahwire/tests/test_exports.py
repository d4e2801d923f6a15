"""The public names: a change of this list is a change of the package's interface."""

import importlib

import pytest

import ahwire

EXPORTS = {
    "ahwire": [
        "AgentRecord",
        "AgentState",
        "Backoff",
        "BadBodyError",
        "Clock",
        "DecodeError",
        "Event",
        "EventType",
        "IncidentEvent",
        "NotificationMessage",
        "Rng",
        "TooLargeError",
        "UUID7Generator",
        "UnsupportedEncodingError",
        "WireError",
        "next_seq",
        "now_ms",
        "parse_retry_after",
        "phase_offset",
    ],
    "ahwire.backoff": ["Backoff", "parse_retry_after", "phase_offset"],
    "ahwire.batch": [
        "BAD_LABEL",
        "BAD_NAME",
        "IN_FUTURE",
        "NOT_FINITE",
        "SERIES_LIMIT",
        "TOO_LONG",
        "TOO_MANY_LABELS",
        "TOO_OLD",
        "CleanSeries",
        "Judged",
        "RawBatch",
        "SeriesKey",
        "Validated",
        "Validator",
        "count_points",
        "drop_old_points",
        "merge",
        "split",
        "take_apart",
        "validate",
    ],
    "ahwire.clock": ["Clock", "Rng", "now_ms"],
    "ahwire.codec": ["GZIP", "ZSTD", "Decompressor", "compress", "decompress"],
    "ahwire.errors": [
        "BadBodyError",
        "DecodeError",
        "TooLargeError",
        "UnsupportedEncodingError",
        "WireError",
    ],
    "ahwire.hub": [
        "AgentPage",
        "AgentRecord",
        "AgentSettings",
        "AgentState",
        "Aggregation",
        "CompanySettings",
        "EnrollGrant",
        "Event",
        "EventSeverity",
        "EventType",
        "EventsReply",
        "EventsRequest",
        "Fenced",
        "GroupDownSettings",
        "Heartbeat",
        "InventoryReport",
        "JsonValue",
        "LabelMatcher",
        "MatchOp",
        "NoData",
        "Recurrence",
        "RejectedEvent",
        "RenewGrant",
        "RenewRequest",
        "Seen",
        "SeenReport",
        "Silence",
        "Silences",
        "ThresholdOp",
        "ThresholdRule",
        "ThresholdRules",
        "Weekday",
    ],
    "ahwire.ids": ["UUID7Generator", "is_uuid7", "next_seq"],
    "ahwire.limits": [
        "CONFIG_PER_MINUTE",
        "DEFAULT",
        "ENROLL_PER_MINUTE",
        "MAX_AGENTS_PER_PAGE",
        "MAX_COMPRESSED_BYTES",
        "MAX_ERROR_MESSAGE_CHARS",
        "MAX_EVENTS_PER_REQUEST",
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
    ],
    "ahwire.names": [
        "RESERVED_LABELS",
        "is_id",
        "is_reserved_label",
        "metric_name",
        "normalise_name",
    ],
    "ahwire.notification": [
        "Channel",
        "ChannelType",
        "DeliveryMode",
        "Digest",
        "EventRef",
        "IncidentEvent",
        "JsonValue",
        "NotificationMessage",
        "Recipient",
        "RecipientType",
        "Retry",
        "RuleChange",
        "RuleChangedEvent",
        "ScheduleMode",
        "Severity",
    ],
    "ahwire.status": ["HTTP_STATUS", "Action", "Code", "classify"],
}


@pytest.mark.parametrize("module", sorted(EXPORTS))
def test_module_offers_exactly_these_names(module):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(EXPORTS[module])
    for name in found.__all__:
        assert getattr(found, name) is not None


def test_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ahwire.nothing  # noqa: B018


def test_late_names_are_listed():
    assert "AgentRecord" in dir(ahwire)
