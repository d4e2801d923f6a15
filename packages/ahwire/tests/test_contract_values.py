"""What the JSON contracts take, and what values built by hand promise."""

import json
from datetime import UTC, datetime, timedelta, timezone

import attrs
import pytest

from ahwire import hub, notification
from ahwire.errors import DecodeError

AT = datetime(2026, 6, 15, 10, 20, 30, tzinfo=UTC)
UUID7 = "0190163d-8694-739b-aea5-966c26f8ad90"
HASH = "0123456789abcdef" * 4
DROP = "<dropped>"


def encode(document):
    return json.dumps(document).encode()


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
def test_times_of_every_writer_are_read(values, text, expected, changed):
    found = hub.AgentRecord.from_json(changed(values["agent_record"], ["expires_at"], text))
    assert found.expires_at == expected
    assert found.expires_at.tzinfo is UTC


def test_hub_answers_may_be_wrapped(values):
    for name in (
        "agent_record",
        "agent_page",
        "events_reply",
        "enroll_grant",
        "renew_grant",
        "threshold_rules",
        "silences",
        "fenced",
    ):
        value = values[name]
        assert type(value).from_json(b'{"data":' + value.to_json() + b"}") == value
    settings_ = values["company_settings"]
    assert hub.CompanySettings.from_json(b'{"data":' + settings_.to_json() + b"}") == settings_


def test_an_attribute_s_own_name_is_unknown_to_json(values, changed):
    value = values["silence"]
    data = changed(value, ["recurrence", "from_"], "00:00")
    assert type(value).from_json(data) == value
    assert b'"from":"22:30"' in value.to_json()


def test_an_unknown_field_named_data_does_not_hide_the_answer(values):
    value = values["agent_record"]
    document = json.loads(value.to_json())
    assert hub.AgentRecord.from_json(encode({**document, "data": {"x": 1}})) == value


def test_requests_are_not_unwrapped(values, refusal):
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


def test_unknown_incident_types_are_valid(values, changed):
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
        ({"a": 10**5000}, "holds an integer of thousands of digits"),
        ({10**5000: "a"}, "has the key <an integer>; keys are strings"),
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


def test_deepest_payload_round_trips(values, changed):
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
