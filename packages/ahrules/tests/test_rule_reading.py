"""What is plainly well formed is read on a shorter way, with the same result."""

from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahrules import NotificationRule, RuleValidationError
from ahrules._rule_reading import FIELDS

BASE = {"rule_id": "r", "tenant_id": "t"}
texts = st.sampled_from(
    ["a", "db-1", "web-*", "w?b", "[a]", "[", "*", "a*b", "", "é", "\ud800", "x" * 300, "y" * 1_001]
)
odd = st.sampled_from([None, 7, True, 1.5, [], {}, ["a"], {"a": 1}])
hosts = st.lists(texts | odd, max_size=4)
networks = st.lists(
    st.sampled_from(["10.1.2.3", "10.0.0.0/8", "10.1.2.3/32", "10.1.2.3/8", "010.1.2.3", "::/0"])
    | odd,
    max_size=4,
)
severities = st.lists(st.sampled_from(["low", "middle", "high", "none"]) | odd, max_size=4)
filters = st.dictionaries(
    st.sampled_from(["severity", "ip_address", "event_type", "host", "hots"]),
    severities | networks | hosts | odd,
    max_size=4,
)
recipients = st.lists(
    st.fixed_dictionaries(
        {"recipient_type": st.sampled_from(["team", "user", "nobody"]) | odd, "recipient_id": texts}
    )
    | odd,
    max_size=3,
)
schedules = st.sampled_from(
    [{"mode": "instant"}, {"mode": "digest", "interval": 1, "unit": "days"}, {"mode": "digest"}]
)
rules = st.fixed_dictionaries(
    {"rule_id": texts | odd, "tenant_id": texts},
    optional={
        "name": texts | odd,
        "enabled": st.booleans() | odd,
        "owner_id": texts,
        "filters": filters | odd,
        "recipients": recipients | odd,
        "channels": st.lists(st.sampled_from(["email", "sms", "mail"]) | odd, max_size=3),
        "schedule": schedules | odd,
        "timezone": st.sampled_from(["UTC", "Europe"]) | odd,
        "template_policy": texts,
        "rate_limit": st.sampled_from([{"count": 1}, {"count": 0}]) | odd,
        "naem": texts,
    },
)


def slowly(value):
    """The same as kinds of objects and lists that no short way takes."""
    if isinstance(value, dict):
        return MappingProxyType({name: slowly(inner) for name, inner in value.items()})
    return tuple(map(slowly, value)) if isinstance(value, list) else value


def outcome(mapping):
    try:
        return NotificationRule.from_dict(mapping)
    except RuleValidationError as error:
        return [each.path for each in error.errors]


@given(rules)
@example({"tenant_id": "t", "rule_id": "r", "filters": {"host": ["a", "b", "a"]}})
@example({"naem": 1, "name": 2, "tenant_id": None, "filters": {"hots": 1}})
def test_the_short_way_reads_as_the_long_one_does(mapping):
    assert outcome(mapping) == outcome(slowly(mapping))


def test_faults_come_in_the_order_of_the_fields_whatever_order_they_are_written_in():
    given = {"timezone": "x", "naem": 1, "channels": ["x"], "name": 7, "enabled": 7} | BASE
    backwards = dict(reversed(given.items()))
    expected = ["naem", "name", "enabled", "channels[0]", "timezone"]
    assert outcome(given) == outcome(backwards) == expected


def test_every_field_of_a_rule_is_read():
    made = {name for name in NotificationRule.__slots__ if not name.startswith("_")}
    assert set(FIELDS) == made - {"__weakref__"}


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"recipients": [{"recipient_id": "a"}]}, "recipients[0].recipient_type", "user, team"),
        ({"recipients": [{"recipient_type": "team"}]}, "recipients[0].recipient_id", "write"),
        ({"schedule": {}}, "schedule.mode", "instant, digest"),
        ({"schedule": {"mode": "digest", "unit": "days"}}, "schedule.interval", "from 1 to"),
        ({"schedule": {"mode": "digest", "interval": 1}}, "schedule.unit", "minutes"),
        ({"rate_limit": {}}, "rate_limit.count", "from 1 to 1000000"),
        ({"rate_limit": {"count": 1, "per_seconds": None}}, "rate_limit.per_seconds", "from 0.001"),
        ({"predicates": [{"field": "a"}]}, "predicates[0].op", "eq, ne"),
        ({"predicates": [{"field": None, "op": "exists", "value": True}]}, "predicates[0].field",
         "write"),
        ({"predicates": [{"field": "a", "op": "exists", "value": None}]}, "predicates[0].value",
         "write"),
        ({"predicates": [{"field": "a", "op": "eq", "value": None}]}, "predicates[0].value",
         "exists"),
        ({"predicates": [{"field": "a", "op": "cidr", "value": None}]}, "predicates[0].value",
         "write"),
        ({"predicates": [{"field": "a", "op": "in", "value": None}]}, "predicates[0].value",
         "write"),
        ({"predicates": [None]}, "predicates[0]", "an object"),
        ({"predicates": [{"not": None}]}, "predicates[0].not", "an object"),
        ({"predicates": [{"all": None}]}, "predicates[0].all", "at least one"),
        ({"predicates": [{"lookup": None}]}, "predicates[0].lookup", "write"),
        ({"filters": {"host": ["a", None]}}, "filters.host[1]", "write"),
        ({"filters": {"ip_address": [None]}}, "filters.ip_address[0]", "10.1.2.3"),
        ({"filters": {"severity": [None]}}, "filters.severity[0]", "low"),
        ({"channels": [None]}, "channels[0]", "email"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_missing_and_no_value_of_pythons(fields, path, message):
    with pytest.raises(RuleValidationError) as caught:
        NotificationRule.from_dict(BASE | fields)
    (fault,) = caught.value.errors
    assert fault.path == path
    assert fault.message.startswith("is missing")
    assert "None" not in fault.message
    assert message in fault.message


def test_a_rule_makes_the_schedule_of_its_digests_once_a_zone():
    schedule = {"mode": "digest", "interval": 1, "unit": "days"}
    rule = NotificationRule.from_dict(BASE | {"schedule": schedule})
    seoul = rule.digest_schedule("Asia/Seoul")
    assert rule.digest_schedule("Asia/Seoul") is seoul
    assert rule.digest_schedule().timezone == "UTC"
    assert rule.digest_schedule("Asia/Seoul") == seoul
    assert rule == NotificationRule.from_dict(BASE | {"schedule": schedule})
