"""Incidents that are accepted at once are those that the long way accepts, and the same values."""

import json
import pickle

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahwire.errors import DecodeError
from ahwire.notification import IncidentEvent


@attrs.frozen(kw_only=True)
class LongWay(IncidentEvent):
    """An incident that nothing accepts at once: only its own class is."""


DOCUMENT = {
    "event_id": "incident-456",
    "event_type": "suspicious_login",
    "host": "auth-node-01",
    "ip_address": "10.10.1.5",
    "occurred_at": "2026-06-15T10:20:30Z",
    "payload": {"geo": "RU", "scores": [0.5, None, True]},
    "severity": "high",
    "tenant_id": "company-a",
}
# What differs between the two ways, if anything does.
TEXTS = [
    "",
    "x" * 256,
    "x" * 257,
    "ж",
    "\ud800",
    "\udfff\ud800",
    "\U0001f600",
    "\0",
    "low",
    "LOW",
    "middle",
    "10.0.0.1",
    "10.0.0.01",
    "256.0.0.1",
    "10.0.0.1 ",
    "10.0.0",
    "１0.0.0.1",
    "::1",
    "fe80::1%eth0",
    "::ffff:1.2.3.4",
    "2026-06-15T10:20:30Z",
    "2026-06-15t10:20:30.5z",
    "2026-06-15T12:20:30.123456789+02:00",
    "2026-06-15 10:20:30Z",
    "2026-06-15T10:20:30",
    "2026-02-30T10:20:30Z",
    "2026-06-15T10:20:60Z",
    "2026-W25-1T10:20:30Z",
    "20260615T102030Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "2026-06-15T10:20:30+24:00",
    "2026-06-15T10:20:30Z\n",
]


def deep(depth, kind):
    value = "leaf"
    for _ in range(depth):
        value = [value] if kind is list else {"k": value}
    return value


LEAVES = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from([None, True, False, 0, -0.0, 1.5, 2**63, 10**3600, 10**4000]),
    st.text(max_size=3),
    st.builds(deep, st.integers(29, 34), st.sampled_from([list, dict])),
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(TEXTS) | st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)


def outcome(kind, data):
    try:
        found = kind.from_json(data)
    except DecodeError as error:
        return error.field, error.reason
    fields = attrs.asdict(found)
    assert found.occurred_at.tzinfo is not None
    return repr(fields), hash(tuple(attrs.astuple(found)[:-1])), found.to_json()


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from([*DOCUMENT, "unknown", "data"]), JSON, max_size=2),
    st.sets(st.sampled_from(sorted(DOCUMENT)), max_size=1),
    st.booleans(),
)
def test_both_ways_say_the_same(changes, dropped, is_escaped):
    document = {key: item for key, item in DOCUMENT.items() if key not in dropped} | changes
    text = json.dumps(document, ensure_ascii=is_escaped)
    data = text.encode("utf-8", "surrogatepass")
    assert outcome(IncidentEvent, data) == outcome(LongWay, data)


@pytest.mark.parametrize("field", sorted(DOCUMENT))
@pytest.mark.parametrize("item", [*TEXTS, None, 1, {}, [], {"a": "\ud800"}, {"\ud800": 1}])
def test_both_ways_say_the_same_of_every_field(field, item):
    data = json.dumps({**DOCUMENT, field: item}).encode()
    assert outcome(IncidentEvent, data) == outcome(LongWay, data)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" + "0" * 400 + ".0", "1e308", "9" * 4200])
def test_numbers_that_grow_beyond_all_bounds_are_refused_by_both(number):
    data = json.dumps({**DOCUMENT, "payload": {"n": [0]}}).replace("[0]", f"[{number}]").encode()
    assert outcome(IncidentEvent, data) == outcome(LongWay, data)


def test_what_was_accepted_at_once_is_a_value_like_any_other():
    found = IncidentEvent.from_json(json.dumps(DOCUMENT).encode())
    made = attrs.evolve(found)
    assert found == made
    assert hash(found) == hash(made)
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        found.host = "x"
