"""Fields that nobody reads are found where they stand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import NotificationRule, unknown_fields
from ahrules.errors import FieldError
from ahwire.hub import Silence, ThresholdRule

SILENCE = {
    "silence_id": "s",
    "company_id": "c1",
    "matchers": [{"label": "server_id", "op": "eq", "value": "a"}],
    "starts_at": "2026-06-15T20:00:00Z",
    "ends_at": "2026-06-15T22:00:00Z",
    "recurrence": {"weekdays": ["mon"], "from": "01:00", "to": "02:00", "timezone": "UTC"},
    "reason": "x",
    "created_by": "x",
    "all": True,
}
THRESHOLD = {
    "rule_id": "r",
    "version": 1,
    "company_id": "c1",
    "servers": ["a"],
    "matchers": [{"label": "disk", "op": "eq", "value": "a"}],
    "metric": "cpu",
    "agg": "avg",
    "agg_seconds": 60,
    "op": "gt",
    "threshold": 90,
    "resolve_threshold": 80,
    "for_seconds": 10,
    "keep_firing_seconds": 10,
    "severity": "warning",
    "reminder_seconds": 60,
    "no_data": "keep",
    "no_data_after_seconds": 60,
    "labels": {"any": "name"},
    "enabled": False,
}
NOTIFICATION = {
    "rule_id": "r",
    "tenant_id": "t",
    "name": "n",
    "enabled": True,
    "owner_id": "o",
    "filters": {"severity": ["low"], "ip_address": ["10.1.2.3"], "event_type": ["a"],
                "host": ["a"]},
    "predicates": [
        {"field": "a", "op": "eq", "value": 1},
        {"not": {"any": [{"all": [{"field": "a", "op": "exists", "value": True}]}]}},
        {"lookup": "x", "carries": {"any": 1}, "field": 2},
    ],
    "recipients": [{"recipient_type": "team", "recipient_id": "t"}],
    "channels": ["email"],
    "schedule": {"mode": "digest", "interval": 1, "unit": "days"},
    "timezone": "UTC",
    "template_policy": "default",
    "rate_limit": {"count": 1, "per_seconds": 60},
    "created_at": "2026-06-15T20:00:00Z",
    "updated_at": "2026-06-15T20:00:00Z",
}  # fmt: skip
WHOLE = [(SILENCE, Silence), (THRESHOLD, ThresholdRule), (NOTIFICATION, NotificationRule)]


@pytest.mark.parametrize(("written", "contract"), WHOLE)
def test_every_field_that_is_read_is_known_and_no_other(written, contract):
    assert unknown_fields(written, contract) == ()
    if contract is NotificationRule:
        read = NotificationRule.from_dict(written).to_dict()
    else:
        read = json.loads(contract.from_json(json.dumps(written).encode()).to_json())
    assert set(read) == set(written), "so that the test names all of them"
    assert unknown_fields(read, contract) == ()


def places(value, path=()):
    """The objects whose names are told apart."""
    if isinstance(value, dict):
        if "lookup" not in value and path[-1:] != ("labels",):
            yield path
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def free(path):
    return any(isinstance(step, str) and step in ("carries", "labels") for step in path)


CASES = [
    (written, contract, path)
    for written, contract in WHOLE
    for path in places(written)
    if not free(path)
]


@pytest.mark.parametrize(("written", "contract", "path"), CASES)
def test_a_misspelt_name_is_found_in_every_object(written, contract, path):
    changed = json.loads(json.dumps(written))
    place = changed
    for step in path:
        place = place[step]
    name = next(iter(place))
    place[f"{name}x"] = place[name]
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    (fault,) = unknown_fields(changed, contract)
    assert fault.path == f"{shown}.{name}x".lstrip(".")
    assert f"did you mean {name!r}?" in fault.message


def test_a_name_without_its_end_is_near_to_the_whole():
    (fault,) = unknown_fields(THRESHOLD | {"for": 60}, ThresholdRule)
    assert str(fault) == "for: there is no such field; did you mean 'for_seconds'?"
    (fault,) = unknown_fields({"filters": {"ip": []}}, NotificationRule)
    assert "did you mean 'ip_address'?" in fault.message


def test_a_name_that_is_near_to_none_gets_those_that_are_known():
    expected = "there is no such field; known are label, op, value"
    found = unknown_fields({"matchers": [{"quite_another": 1}]}, Silence)
    assert found == (FieldError("matchers[0].quite_another", expected),)


def test_what_is_no_object_or_of_no_known_contract_is_refused():
    with pytest.raises(TypeError, match="give the object that json"):
        unknown_fields(b"{}", Silence)
    with pytest.raises(TypeError, match="give Silence, ThresholdRule or NotificationRule"):
        unknown_fields({}, dict)


def test_what_is_told_is_bounded():
    assert len(unknown_fields({f"x{number}": 1 for number in range(5_000)}, Silence)) == 100
    many = {"matchers": [{"lable": 1}] * 5_000}
    assert len(unknown_fields(many, Silence)) == 100
    deep = {"field": "a"}
    for _ in range(50_000):
        deep = {"not": deep}
    assert unknown_fields({"predicates": [deep]}, NotificationRule) == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["matchers", "not", "all", "lookup", "field", "filters", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3) | st.sampled_from(sorted(NOTIFICATION)), json_values))
def test_no_json_makes_it_raise(written):
    for _, contract in WHOLE:
        assert all(fault.message for fault in unknown_fields(written, contract))
