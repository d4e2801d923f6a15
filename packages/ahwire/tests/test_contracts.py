"""What every JSON contract does: it round-trips, ignores the unknown, and refuses the rest."""

import copy
import json
import pickle
import re
import string
from datetime import UTC, datetime

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ahwire import hub, limits, notification
from ahwire.errors import DecodeError, WireError

AT = datetime(2026, 6, 15, 10, 20, 30, tzinfo=UTC)
UUID7 = "0190163d-8694-739b-aea5-966c26f8ad90"
HASH = "0123456789abcdef" * 4
DROP = "<dropped>"


def encode(document):
    return json.dumps(document).encode()


def test_round_trip(contract):
    _, value = contract
    assert type(value).from_json(value.to_json()) == value


def shuffled(item):
    """The same document with its keys the other way round."""
    if isinstance(item, dict):
        return {key: shuffled(item[key]) for key in reversed(item)}
    return [shuffled(each) for each in item] if isinstance(item, list) else item


def test_equal_values_give_equal_bytes_however_they_were_written(contract):
    _, value = contract
    document = json.loads(value.to_json())
    for text in (
        json.dumps(shuffled(document), indent=3),
        json.dumps(document, ensure_ascii=True),
        json.dumps({"later": None, **document}),
        re.sub(r'"([-0-9]+)T10:20:30(\.\d+)?Z"', r'"\1T12:50:30\2+02:30"', json.dumps(document)),
        re.sub(r"(:)(\d+)\.0\b", r"\1\2", value.to_json().decode()),
    ):
        found = type(value).from_json(text.encode())
        assert found == value
        assert found.to_json() == value.to_json()


def test_zero_has_one_form(values):
    zero, minus = (attrs.evolve(values["event"], value=value) for value in (0.0, -0.0))
    assert zero == minus
    assert zero.to_json() == minus.to_json()
    assert b'"value":0.0' in minus.to_json()


def test_unknown_fields_are_ignored(contract):
    _, value = contract
    document = {**json.loads(value.to_json()), "unknown_field": {"deep": [1]}}
    assert type(value).from_json(encode(document)) == value


def test_unknown_fields_are_ignored_inside_too(values, changed):
    value = values["notification_digest"]
    for path in (["digest"], ["retry"], ["recipient"], ["channel"], ["incident", 0]):
        assert type(value).from_json(changed(value, [*path, "unknown_field"], [1])) == value
    page = values["agent_page"]
    assert hub.AgentPage.from_json(changed(page, ["agents", 0, "unknown_field"], None)) == page


def test_each_required_field_is_asked_for_by_name(contract, changed, refusal):
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


def test_value_of_a_wrong_type_is_refused_under_its_field_s_name(contract, changed):
    _, value = contract
    for field in json.loads(value.to_json()):
        for wrong in ([[]], {"x": {}}, 1.5, True, 10**400):
            error = outcome(type(value), changed(value, [field], wrong))
            assert error is None or error.field.split(".")[0].split("[")[0] == field
        assert any(outcome(type(value), changed(value, [field], wrong)) for wrong in ([[]], True))


def test_null_is_absent_for_optional_fields_and_refused_for_others(contract, changed, refusal):
    _, value = contract
    for field in attrs.fields(type(value)):
        data = changed(value, [field.name], None)
        if field.default is attrs.NOTHING:
            assert refusal(type(value), data).field == field.name
        else:
            found = outcome(type(value), data)
            absent = json.loads(value.to_json())
            absent.pop(field.name, None)
            expected = outcome(type(value), encode(absent))
            assert str(found) == str(expected)
            if expected is None:
                assert type(value).from_json(data) == type(value).from_json(encode(absent))


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
def test_what_is_no_json_object_is_refused(contract, data, reason, refusal):
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
def test_oversized_document_is_refused_before_it_is_parsed(kind, most, refusal):
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
