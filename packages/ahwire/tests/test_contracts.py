"""The JSON contracts: what they take, and what they refuse with which words."""

import copy
import json
import pickle
import string
from datetime import UTC, datetime, timedelta, timezone

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahwire import hub, limits, notification
from ahwire.errors import DecodeError, WireError

AT = datetime(2026, 6, 15, 10, 20, 30, tzinfo=UTC)
UUID7 = "0190163d-8694-739b-aea5-966c26f8ad90"
HASH = "0123456789abcdef" * 4
DROP = object()


def encode(document):
    return json.dumps(document).encode()


def changed(value, path, new):
    """The value's document with one place set to something else, or dropped."""
    document = json.loads(value.to_json())
    place = document
    for step in path[:-1]:
        place = place[step]
    if new is DROP:
        del place[path[-1]]
    else:
        place[path[-1]] = new
    return encode(document)


def refusal(kind, data):
    with pytest.raises(DecodeError) as caught:
        kind.from_json(data)
    return caught.value


# What every contract does


def test_round_trip(contract):
    _, value = contract
    assert type(value).from_json(value.to_json()) == value


def test_unknown_fields_are_ignored(contract):
    _, value = contract
    document = {**json.loads(value.to_json()), "unknown_field": {"deep": [1]}}
    assert type(value).from_json(encode(document)) == value


def test_unknown_fields_are_ignored_inside_too(values):
    value = values["notification_digest"]
    for path in (["digest"], ["retry"], ["recipient"], ["channel"], ["incident", 0]):
        assert type(value).from_json(changed(value, [*path, "unknown_field"], [1])) == value
    page = values["agent_page"]
    assert hub.AgentPage.from_json(changed(page, ["agents", 0, "unknown_field"], None)) == page


def test_each_required_field_is_asked_for_by_name(contract):
    _, value = contract
    for field in attrs.fields(type(value)):
        if field.default is attrs.NOTHING:
            error = refusal(type(value), changed(value, [field.name], DROP))
            assert (error.field, error.reason) == (field.name, "is missing")


def outcome(kind, data):
    try:
        kind.from_json(data)
    except DecodeError as error:
        return error
    return None


def test_value_of_a_wrong_type_is_refused_under_its_field_s_name(contract):
    _, value = contract
    for field in json.loads(value.to_json()):
        for wrong in ([[]], {"x": {}}, 1.5, True, 10**400):
            error = outcome(type(value), changed(value, [field], wrong))
            assert error is None or error.field.split(".")[0].split("[")[0] == field
        assert any(outcome(type(value), changed(value, [field], wrong)) for wrong in ([[]], True))


def test_null_is_absent_for_optional_fields_and_refused_for_others(contract):
    _, value = contract
    for field in attrs.fields(type(value)):
        data = changed(value, [field.name], None)
        if field.default is None and field.name not in {"token_hash", "server_id", "digest"}:
            assert getattr(type(value).from_json(data), field.name) is None
        elif field.default is attrs.NOTHING:
            assert refusal(type(value), data).field == field.name


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no JSON in UTF-8"),
        (b"{", "no JSON in UTF-8"),
        (b"\xff\xfe{}", "no JSON in UTF-8 (byte 0)"),
        (b'{"a":"\xc3"}', "no JSON in UTF-8 (byte 6)"),
        (b"\xef\xbb\xbf{}", "no JSON in UTF-8"),
        ("{}".encode("utf-16"), "no JSON in UTF-8"),
        (b"{} {}", "no JSON in UTF-8"),
        (b'{"a":NaN}', "holds NaN"),
        (b'{"a":-Infinity}', "holds -Infinity"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"9" * 5000, "no JSON in UTF-8"),
        (b"[]", "expected an object, got an array"),
        (b"null", "expected an object, got null"),
        (b'"x"', "expected an object, got a string"),
        (b"1", "expected an object, got an integer"),
    ],
)
def test_what_is_no_json_object_is_refused(contract, data, reason):
    _, value = contract
    error = refusal(type(value), data)
    assert error.field == ""
    assert reason in error.reason
    assert str(error) == error.reason


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (hub.AgentPage, limits.MAX_HUB_BYTES),
        (notification.NotificationMessage, limits.MAX_MESSAGE_BYTES),
        (notification.IncidentEvent, limits.MAX_MESSAGE_BYTES),
        (notification.RuleChangedEvent, limits.MAX_MESSAGE_BYTES),
    ],
)
def test_oversized_document_is_refused_before_it_is_parsed(kind, most):
    error = refusal(kind, b"{" * (most + 1))
    assert error.reason == f"the document has {most + 1} bytes; at most {most} are taken"


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_junk_raises_nothing_but_wire_errors(data):
    for kind in (hub.AgentPage, hub.Event, notification.NotificationMessage):
        with pytest.raises(WireError):
            kind.from_json(data)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


# The fixture's values are frozen.
@settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_any_json_in_any_place_raises_nothing_but_wire_errors(values, data):
    contract = values[data.draw(st.sampled_from(sorted(values)))]
    document = json.loads(contract.to_json())
    place, key = None, None
    node = document
    while isinstance(node, dict | list) and node and (place is None or data.draw(st.booleans())):
        place = node
        key = data.draw(
            st.sampled_from(sorted(node))
            if isinstance(node, dict)
            else st.integers(0, len(node) - 1)
        )
        node = node[key]
    if place is not None:
        place[key] = data.draw(JSON)
    try:
        found = type(contract).from_json(encode(document))
    except WireError:
        return
    assert type(contract).from_json(found.to_json()) == found
    assert type(contract).from_json(found.to_json()).to_json() == found.to_json()


@settings(deadline=None)
@given(
    st.builds(
        notification.IncidentEvent,
        event_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        tenant_id=st.text(string.ascii_letters, min_size=1, max_size=20),
        occurred_at=st.datetimes(
            datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.timezones() | st.just(UTC)
        ),
        severity=st.sampled_from(notification.Severity),
        event_type=st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        ip_address=st.none() | st.ip_addresses().map(str),
        host=st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
        payload=st.dictionaries(
            st.text(st.characters(codec="utf-8"), max_size=5), JSON, max_size=3
        ),
    ).filter(lambda event: True)
    | st.nothing()
)
def test_incidents_round_trip(event):
    again = notification.IncidentEvent.from_json(event.to_json())
    assert again == event
    assert again.to_json() == event.to_json()
    assert hash(again) == hash(event)


def test_values_can_be_hashed_pickled_and_copied(contract):
    _, value = contract
    assert hash(value) == hash(copy.deepcopy(value))
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        value.version = 5


def test_errors_can_be_pickled():
    error = DecodeError(field="a[3].b", reason="is missing")
    again = pickle.loads(pickle.dumps(error))
    assert (again.field, again.reason, str(again)) == ("a[3].b", "is missing", "a[3].b: is missing")
    assert isinstance(again, ValueError)


# Single refusals

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
    (RECORD, ["expires_at"], "2026-06-15T24:00:00Z", "expires_at", "is no time"),
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
    ("rule_changed", ["event_type"], "rule.updated", "event_type", "notification_rule.created"),
]


@pytest.mark.parametrize(("name", "path", "new", "field", "reason"), CASES)
def test_refusal_names_the_field_and_the_reason(values, name, path, new, field, reason):
    value = values[name]
    error = refusal(type(value), changed(value, path, new))
    assert error.field == field
    assert reason in error.reason
    assert len(error.reason) < 300


def test_digest_carries_no_whole_events(values):
    document = json.loads(values["notification_digest"].to_json())
    document["incident"] = [json.loads(values["incident_event"].to_json())]
    error = refusal(notification.NotificationMessage, encode(document))
    assert error.field == "incident[0]"
    assert "a digest message names its events by event_id" in error.reason


def test_no_refusal_shows_a_secret(values):
    for name, field in [("enroll_grant", "agent_token"), ("agent_record", "token_hash")]:
        error = refusal(type(values[name]), changed(values[name], [field], "canary é secret"))
        assert "canary" not in str(error)
    for name in ("enroll_grant", "renew_grant"):
        assert "canary" not in repr(values[name])
        assert HASH not in repr(values[name])


# What is taken


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-15T10:20:30Z", AT),
        ("2026-06-15t10:20:30z", AT),
        ("2026-06-15T12:20:30+02:00", AT),
        ("2026-06-15T10:20:30-00:00", AT),
        ("2026-06-15T10:20:30.5Z", AT + timedelta(microseconds=500_000)),
        ("2026-06-15T10:20:30.123456789Z", AT + timedelta(microseconds=123_456)),
        ("2026-06-15T10:20:30.000000999Z", AT),
    ],
)
def test_times_of_every_writer_are_read(values, text, expected):
    found = hub.AgentRecord.from_json(changed(values["agent_record"], ["expires_at"], text))
    assert found.expires_at == expected
    assert found.expires_at.tzinfo is UTC


def test_hub_answers_may_be_wrapped(values):
    for name in ("agent_record", "agent_page", "events_reply", "enroll_grant", "renew_grant"):
        value = values[name]
        assert type(value).from_json(b'{"data":' + value.to_json() + b"}") == value
    settings_ = values["company_settings"]
    assert hub.CompanySettings.from_json(b'{"data":' + settings_.to_json() + b"}") == settings_


def test_an_unknown_field_named_data_does_not_hide_the_answer(values):
    value = values["agent_record"]
    document = json.loads(value.to_json())
    assert hub.AgentRecord.from_json(encode({**document, "data": {"x": 1}})) == value


def test_requests_are_not_unwrapped(values):
    error = refusal(hub.Event, b'{"data":' + values["event"].to_json() + b"}")
    assert error.reason == "is missing"


def test_agent_settings_are_read_in_both_spellings():
    camel = {
        "intervalSeconds": 30,
        "catchUpBatches": 2,
        "disabledCollectors": ["mounts"],
        "labels": {"env": "prod"},
        "maxPointAgeSeconds": 60,
    }
    found = hub.AgentSettings.from_json(encode(camel))
    assert found == hub.AgentSettings(
        interval_seconds=30,
        catch_up_batches=2,
        disabled_collectors=("mounts",),
        labels={"env": "prod"},
        max_point_age_seconds=60,
    )


def test_agent_settings_become_the_message_that_agents_get():
    from ahwire.agent_pb2 import AgentConfig

    full = hub.AgentSettings(
        interval_seconds=30,
        catch_up_batches=2,
        disabled_collectors=("mounts",),
        labels={"env": "prod"},
        max_point_age_seconds=60,
    )
    assert full.to_proto("e1") == AgentConfig(
        etag="e1",
        interval_seconds=30,
        catch_up_batches=2,
        disabled_collectors=["mounts"],
        labels={"env": "prod"},
        max_point_age_seconds=60,
    )
    assert hub.AgentSettings().to_proto("e2") == AgentConfig(etag="e2")


def test_group_events_name_no_server(values):
    group = values["event_group_down"]
    assert group.server_id is None
    assert [kind for kind in hub.EventType if kind.is_group] == ["group.down", "group.up"]


def test_unknown_incident_types_are_valid(values):
    data = changed(values["incident_event"], ["event_type"], "something_new")
    assert notification.IncidentEvent.from_json(data).event_type == "something_new"


def test_digest_of_more_than_a_thousand_names_none_and_counts_all(values):
    document = json.loads(values["notification_digest"].to_json())
    document["incident"], document["digest"]["events_count"] = [], 1001
    found = notification.NotificationMessage.from_json(encode(document))
    assert (found.incident, found.digest.events_count) == ((), 1001)


def test_retry_always_sends_its_nulls_and_may_come_without_them(values):
    document = json.loads(values["notification_instant"].to_json())
    assert document["retry"] == {
        "attempt": 0,
        "epoch": 0,
        "last_error": None,
        "max_attempts": 4,
        "next_delay": None,
        "not_before": None,
    }
    document["retry"] = {"attempt": 0, "epoch": 0, "max_attempts": 4}
    assert (
        notification.NotificationMessage.from_json(encode(document))
        == values["notification_instant"]
    )


@pytest.mark.parametrize("text", ["PT1M", "PT0S", "P1D", "P1DT2H3M4.5S", "PT30M", "PT1H"])
def test_durations(text):
    assert notification.Retry(attempt=0, max_attempts=1, epoch=0, next_delay=text)


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1M", "P1M", "PT1.5M", "-PT1M", "PT1M\n"])
def test_no_durations(text):
    with pytest.raises(DecodeError, match="ISO 8601"):
        notification.Retry(attempt=0, max_attempts=1, epoch=0, next_delay=text)


def test_errors_of_others_are_cut_not_refused():
    retry = notification.Retry(attempt=0, max_attempts=1, epoch=0, last_error="\ud800" * 2000)
    assert retry.last_error == "\ufffd" * 1024
    assert len(hub.RejectedEvent(event_id="x", reason="y" * 5000).reason) == 1024
    with pytest.raises(DecodeError, match="got null"):
        hub.RejectedEvent(event_id="x", reason=None)


# What is built by hand


def test_payload_is_copied_and_kept_plain():
    payload = {"a": [{"b": (1, 2)}]}
    event = notification.IncidentEvent(
        event_id="e",
        tenant_id="t",
        occurred_at=AT,
        severity=notification.Severity.LOW,
        event_type="x",
        payload=payload,
    )
    payload["a"][0]["b"] = "changed"
    assert event.payload == {"a": [{"b": [1, 2]}]}


def nested(depth):
    value = "leaf"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"a": nested(32)}, "nested deeper than 32"),
        ({"a": float("nan")}, "holds nan, which JSON cannot carry"),
        ({"a": [float("inf")]}, "holds inf"),
        ({"a": {1, 2}}, "holds a value of type set"),
        ({"a": b"x"}, "holds a value of type bytes"),
        ({1: "x"}, "has the key 1; keys are strings"),
    ],
)
def test_payload_that_is_no_json_is_refused(payload, reason):
    with pytest.raises(DecodeError, match="payload") as caught:
        notification.IncidentEvent(
            event_id="e",
            tenant_id="t",
            occurred_at=AT,
            severity=notification.Severity.LOW,
            event_type="x",
            payload=payload,
        )
    assert reason in caught.value.reason


def test_deepest_payload_round_trips(values):
    data = changed(values["incident_event"], ["payload"], {"a": nested(31)})
    found = notification.IncidentEvent.from_json(data)
    assert notification.IncidentEvent.from_json(found.to_json()) == found


def test_times_are_kept_in_utc_and_naive_ones_refused():
    seen = hub.Seen(agent_id="a", last_seen_at=AT.astimezone(timezone(timedelta(hours=7))))
    assert seen.last_seen_at.tzinfo is UTC
    with pytest.raises(DecodeError, match="has no time zone"):
        hub.Seen(agent_id="a", last_seen_at=AT.replace(tzinfo=None))
    with pytest.raises(DecodeError, match="expected a time, got an integer"):
        hub.Seen(agent_id="a", last_seen_at=5)
    with pytest.raises(DecodeError, match="has no time zone"):
        hub.Seen(
            agent_id="a",
            last_seen_at=datetime.max.replace(tzinfo=timezone(timedelta(hours=-7))),
        )


def test_wrong_classes_are_refused(values):
    with pytest.raises(DecodeError, match="state: expected AgentState, got a string"):
        attrs.evolve(values["agent_record"], state="active")
    with pytest.raises(DecodeError, match="agents: expected a tuple, got an array"):
        attrs.evolve(values["agent_page"], agents=[])
    with pytest.raises(DecodeError, match=r"agents\[0\]: expected AgentRecord, got null"):
        attrs.evolve(values["agent_page"], agents=(None,))
    with pytest.raises(DecodeError, match=r"incident\[0\]: expected IncidentEvent or EventRef"):
        attrs.evolve(values["notification_digest"], incident=(5,))


def test_whole_numbers_encode_as_the_floats_they_equal(values):
    event = attrs.evolve(values["event"], value=1)
    assert event.to_json() == attrs.evolve(values["event"], value=1.0).to_json()
