"""What each JSON contract refuses, under which field's name and with which words."""

import json
from datetime import UTC, datetime

import pytest

from ahwire import notification

AT = datetime(2026, 6, 15, 10, 20, 30, tzinfo=UTC)
UUID7 = "0190163d-8694-739b-aea5-966c26f8ad90"
HASH = "0123456789abcdef" * 4
DROP = "<dropped>"


def encode(document):
    return json.dumps(document).encode()


RECORD = "agent_record"
CASES = [
    (RECORD, ["agent_id"], "-x", "agent_id", "'-x' is no id"),
    (RECORD, ["agent_id"], "a" * 129, "agent_id", "is no id"),
    (RECORD, ["agent_id"], "a" * 2000, "agent_id", "has 2000 characters"),
    (RECORD, ["company_id"], True, "company_id", "expected a string, got a boolean"),
    (RECORD, ["server_id"], 5, "server_id", "expected a string, got an integer"),
    (RECORD, ["server_id"], "\ud800", "server_id", "surrogate"),
    (RECORD, ["state"], "Active", "state", "'Active' is not one of: pending, active, revoked"),
    (RECORD, ["state"], [], "state", "is not one of"),
    (RECORD, ["state"], True, "state", "is not one of"),
    (RECORD, ["token_hash"], DROP, "token_hash", "is missing; an active agent has one"),
    (RECORD, ["token_hash"], None, "token_hash", "is missing; an active agent has one"),
    (RECORD, ["token_hash"], HASH.upper(), "token_hash", "64 lower-case hex digits"),
    (RECORD, ["token_hash"], HASH[1:], "token_hash", "64 lower-case hex digits"),
    (RECORD, ["token_hash"], HASH + "\n", "token_hash", "64 lower-case hex digits"),
    (RECORD, ["version"], -1, "version", "-1 is outside 0 to 9223372036854775807"),
    (RECORD, ["version"], 2**63, "version", "is outside"),
    (RECORD, ["version"], True, "version", "expected an integer, got a boolean"),
    (RECORD, ["version"], 1.0, "version", "expected an integer, got a number"),
    (RECORD, ["version"], "1", "version", "expected an integer, got a string"),
    (RECORD, ["expires_at"], "2026-06-15T10:20:30", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-06-15 10:20:30Z", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-06-15", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-W25-1T10:20:30Z", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-06-15T10:20Z", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-06-15T10:20:30.Z", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-06-15T10:20:30+0200", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "２026-06-15T10:20:30Z", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-02-30T10:20:30Z", "expires_at", "is no time"),
    (RECORD, ["expires_at"], "2026-06-15T24:00:00Z", "expires_at", "no RFC 3339 time"),
    (RECORD, ["expires_at"], "2026-06-15T10:20:60Z", "expires_at", "is no time"),
    (RECORD, ["expires_at"], "2026-06-15T10:20:30+24:00", "expires_at", "is no time"),
    (RECORD, ["expires_at"], "0000-01-01T00:00:00Z", "expires_at", "is no time"),
    (RECORD, ["expires_at"], "0001-01-01T00:00:00+01:00", "expires_at", "is no time"),
    (RECORD, ["expires_at"], "9999-12-31T23:59:59-01:00", "expires_at", "is no time"),
    (RECORD, ["expires_at"], 1781518830, "expires_at", "expected a time as a string"),
    ("agent_page", ["agents", 0, "version"], None, "agents[0].version", "got null"),
    ("agent_page", ["agents", 0], [], "agents[0]", "expected an object, got an array"),
    ("agent_page", ["agents"], {}, "agents", "expected an array, got an object"),
    ("agent_page", ["more"], 1, "more", "expected a boolean, got an integer"),
    ("agent_page", ["next_since"], DROP, "next_since", "names where they begin"),
    ("event", ["event_id"], UUID7.upper(), "event_id", "is no UUIDv7"),
    ("event", ["event_id"], UUID7.replace("-7", "-4", 1), "event_id", "is no UUIDv7"),
    ("event", ["type"], "agent.sideways", "type", "is not one of: agent.down, agent.up"),
    ("event", ["seq"], 2**63, "seq", "is outside"),
    ("event", ["seq"], 1.5, "seq", "expected an integer"),
    ("event", ["server_id"], DROP, "server_id", "only group events have none"),
    ("event", ["server_id"], None, "server_id", "this is alert.resolved"),
    ("event", ["rule_id"], "", "rule_id", "is empty"),
    ("event", ["value"], True, "value", "expected a number, got a boolean"),
    ("event", ["value"], "1", "value", "expected a number, got a string"),
    ("event", ["value"], 10**400, "value", "inf is not finite"),
    ("event", ["duration_seconds"], -1, "duration_seconds", "-1.0 is outside 0 to inf"),
    ("event", ["suppressed"], 0, "suppressed", "expected a boolean"),
    ("event", ["severity"], "high", "severity", "info, warning, critical"),
    ("event", ["labels"], [], "labels", "expected an object, got an array"),
    ("event", ["labels"], {"\ud800": 1}, "labels", "surrogate"),
    ("event_group_down", ["labels", "members"], ["a"] * 1001, "labels.members", "1001 items"),
    ("events_request", ["events"], [], "events", "has 0 items; 1 to 200 are taken"),
    ("events_request", ["events", 1, "seq"], "x", "events[1].seq", "expected an integer"),
    ("events_reply", ["accepted", 0], 5, "accepted[0]", "expected a string"),
    ("events_reply", ["accepted"], ["a"] * 201, "accepted", "has 201 items; 0 to 200"),
    ("events_reply", ["rejected", 0, "event_id"], DROP, "rejected[0].event_id", "is missing"),
    ("enroll_grant", ["agent_token"], "a b", "agent_token", "visible ASCII"),
    ("enroll_grant", ["agent_token"], "a\r\nX: y", "agent_token", "visible ASCII"),
    ("enroll_grant", ["config", "interval_seconds"], 0, "config.interval_seconds", "0 is outside"),
    ("enroll_grant", ["config", "labels"], {"a": 1}, "config.labels.a", "expected a string"),
    ("enroll_grant", ["config", "labels"], {"": "a"}, "config.labels", "is empty"),
    ("enroll_grant", ["config", "labels"], [], "config.labels", "expected an object"),
    (
        "enroll_grant",
        ["config", "labels"],
        {str(number): "" for number in range(65)},
        "config.labels",
        "has 65 keys; at most 64",
    ),
    ("renew_grant", ["prev_token_expires_at"], "x", "prev_token_expires_at", "no RFC 3339 time"),
    ("seen_report", ["seen", 0, "last_seen_at"], None, "seen[0].last_seen_at", "expected a time"),
    ("heartbeat", ["companies"], {"-": 1}, "companies", "'-' is no id"),
    ("heartbeat", ["companies"], {"a": -1}, "companies.a", "is outside"),
    ("heartbeat", ["batches_per_second"], None, "batches_per_second", "expected a number"),
    ("company_settings", ["group_down", "ratio"], 1.5, "group_down.ratio", "outside 0 to 1"),
    ("company_settings", ["group_down", "min"], 0, "group_down.min", "0 is outside"),
    ("company_settings", ["agent"], 5, "agent", "expected an object, got an integer"),
    (
        "company_settings",
        ["agent", "disabled_collectors"],
        "mounts",
        "agent.disabled_collectors",
        "expected an array, got a string",
    ),
    ("incident_event", ["severity"], "critical", "severity", "low, middle, high"),
    ("incident_event", ["ip_address"], "010.1.2.3", "ip_address", "no IPv4 or IPv6 address"),
    ("incident_event", ["ip_address"], "10.0.0.0/8", "ip_address", "no IPv4 or IPv6 address"),
    ("incident_event", ["ip_address"], "", "ip_address", "no IPv4 or IPv6 address"),
    ("incident_event", ["ip_address"], True, "ip_address", "expected a string"),
    ("incident_event", ["payload"], "x", "payload", "expected an object"),
    ("incident_event", ["payload", "x"], {"y": ["\udfff"]}, "payload", "surrogate"),
    ("incident_event", ["occurred_at"], "2026-06-15T10:20:30", "occurred_at", "no RFC 3339"),
    ("notification_instant", ["incident"], [], "incident", "exactly one"),
    ("notification_instant", ["incident", 0, "severity"], DROP, "incident[0]", "no whole event"),
    ("notification_instant", ["incident", 0], 5, "incident[0]", "expected an object"),
    (
        "notification_instant",
        ["incident", 0, "tenant_id"],
        "company-b",
        "incident[0].tenant_id",
        "nothing of another tenant",
    ),
    ("notification_instant", ["delivery_mode"], "digest", "digest", "is missing"),
    ("notification_instant", ["notification_uuid"], "uuid", "notification_uuid", "no UUID"),
    ("notification_instant", ["channel", "channel"], "fax", "channel.channel", "'fax' is not one"),
    (
        "notification_instant",
        ["recipient", "recipient_type"],
        "robot",
        "recipient.recipient_type",
        "user, team, group",
    ),
    ("notification_instant", ["retry", "max_attempts"], 0, "retry.max_attempts", "outside 1"),
    ("notification_digest", ["retry", "next_delay"], "1m", "retry.next_delay", "ISO 8601"),
    ("notification_digest", ["digest", "events_count"], 1, "digest.events_count", "2 events"),
    ("notification_digest", ["digest", "generation"], -1, "digest.generation", "outside 0"),
    (
        "notification_digest",
        ["digest", "period_end"],
        "2026-06-15T10:20:30Z",
        "digest.period_end",
        "not after period_start",
    ),
    ("notification_digest", ["digest"], DROP, "digest", "a digest message has one"),
    (
        "notification_digest",
        ["incident"],
        [{"event_id": "x"}] * 1001,
        "incident",
        "has 1001 items; 0 to 1000",
    ),
    ("threshold_rule", ["servers"], [], "servers", "has 0 items; 1 to 1000"),
    ("threshold_rule", ["servers", 1], 5, "servers[1]", "expected a string"),
    ("threshold_rule", ["matchers", 0, "op"], "like", "matchers[0].op", "eq, ne, re, nre"),
    ("threshold_rule", ["matchers", 0, "label"], "", "matchers[0].label", "is empty"),
    ("threshold_rule", ["metric"], DROP, "metric", "is missing"),
    ("threshold_rule", ["agg_seconds"], DROP, "agg_seconds", "avg is taken over a window"),
    ("threshold_rule", ["agg_seconds"], 0, "agg_seconds", "outside 1"),
    ("threshold_rule", ["agg_seconds"], 1e-300, "agg_seconds", "1e-300 is outside 1 to 31622400"),
    ("threshold_rule", ["agg_seconds"], 5e-324, "agg_seconds", "outside 1"),
    ("threshold_rule", ["agg_seconds"], 1e300, "agg_seconds", "outside 1"),
    ("threshold_rule", ["reminder_seconds"], 1e-300, "reminder_seconds", "outside 1"),
    ("threshold_rule", ["no_data_after_seconds"], 1e-300, "no_data_after_seconds", "outside 1"),
    ("threshold_rule", ["keep_firing_seconds"], 4e7, "keep_firing_seconds", "outside 0"),
    ("threshold_rule", ["resolve_threshold"], 10**400, "resolve_threshold", "is not finite"),
    ("threshold_rule", ["agg"], "p99", "agg", "last, avg, min, max, sum"),
    ("threshold_rule", ["op"], ">", "op", "gt, gte, lt, lte, eq, ne"),
    ("threshold_rule", ["threshold"], 10**400, "threshold", "inf is not finite"),
    ("threshold_rule", ["for_seconds"], -1, "for_seconds", "outside 0"),
    ("threshold_rule", ["reminder_seconds"], 0, "reminder_seconds", "outside 1"),
    ("threshold_rule", ["severity"], "high", "severity", "info, warning, critical"),
    ("threshold_rule", ["no_data"], "error", "no_data", "ok, keep, alert"),
    ("threshold_rule", ["labels"], {"a": 1}, "labels.a", "expected a string"),
    ("threshold_rule", ["enabled"], "yes", "enabled", "expected a boolean"),
    ("threshold_rules", ["rules", 1, "version"], -1, "rules[1].version", "outside 0"),
    ("silence", ["matchers"], [], "matchers", "says so with all: true"),
    ("silence", ["ends_at"], "2026-06-15T10:20:30Z", "ends_at", "is not after starts_at"),
    ("silence", ["recurrence", "weekdays"], [], "recurrence.weekdays", "1 to 7"),
    ("silence", ["recurrence", "weekdays", 0], "so", "recurrence.weekdays[0]", "mon, tue"),
    ("silence", ["recurrence", "from"], "24:00", "recurrence.from", "no time of the day"),
    ("silence", ["recurrence", "from"], DROP, "recurrence.from", "is missing"),
    ("silence", ["recurrence", "to"], "9:00", "recurrence.to", "no time of the day"),
    ("silences", ["silences", 0, "recurrence", "from"], 5, "silences[0].recurrence.from", "string"),
    ("fenced", ["newest"], "7", "newest", "expected an integer, got a string"),
    ("fenced", ["newest"], -1, "newest", "-1 is outside 0 to 9007199254740991"),
    ("fenced", ["newest"], 2**53, "newest", "9007199254740992 is outside 0 to 9007199254740991"),
    ("inventory_report", ["inventory"], [], "inventory", "expected an object"),
    ("rule_changed", ["event_type"], "rule.updated", "event_type", "notification_rule.created"),
]


@pytest.mark.parametrize(("name", "path", "new", "field", "reason"), CASES)
def test_refusal_names_the_field_and_the_reason(
    values, name, path, new, field, reason, changed, refusal
):
    value = values[name]
    error = refusal(type(value), changed(value, path, new))
    assert error.field == field
    assert reason in error.reason
    assert len(error.reason) < 300


def test_digest_carries_no_whole_events(values, refusal):
    document = json.loads(values["notification_digest"].to_json())
    document["incident"] = [json.loads(values["incident_event"].to_json())]
    error = refusal(notification.NotificationMessage, encode(document))
    assert error.field == "incident[0]"
    assert "a digest message names its events by event_id" in error.reason


def test_no_refusal_shows_a_secret(values, changed, refusal):
    for name, field in [("enroll_grant", "agent_token"), ("agent_record", "token_hash")]:
        error = refusal(type(values[name]), changed(values[name], [field], "canary é secret"))
        assert "canary" not in str(error)
    for name in ("enroll_grant", "renew_grant"):
        assert "canary" not in repr(values[name])
        assert HASH not in repr(values[name])
