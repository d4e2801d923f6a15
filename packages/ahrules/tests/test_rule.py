"""Reading and writing rules, and what is said about the faults in them."""

from datetime import UTC, datetime

import attrs
import pytest

from ahrules import (
    Condition,
    FieldError,
    NotificationRule,
    RateLimit,
    RuleValidationError,
    Schedule,
    ScheduleError,
    UnknownZoneError,
    compile_rules,
)
from ahwire import IncidentEvent, NotificationMessage
from ahwire.notification import Channel, ChannelType, DeliveryMode, Severity

FULL = {
    "rule_id": "rule-123",
    "tenant_id": "company-a",
    "name": "Logins from afar",
    "enabled": False,
    "owner_id": "user-7",
    "filters": {
        "severity": ["high", "middle"],
        "ip_address": ["185.10.0.0/16", "10.1.2.3", "2001:db8::/32"],
        "event_type": ["suspicious_login", "audit_*"],
        "host": ["auth-node-01", "web-*"],
    },
    "predicates": [
        {"field": "geo", "op": "in", "value": ["RU", 7, True]},
        {"not": {"all": [{"field": "a.b", "op": "exists", "value": False}]}},
        {"any": [{"lookup": "on_leave", "user": "x", "days": [1, 2]}]},
    ],
    "recipients": [{"recipient_type": "team", "recipient_id": "soc-team"}],
    "channels": ["email", "telegram"],
    "schedule": {"mode": "digest", "interval": 1, "unit": "days"},
    "timezone": "Europe/Berlin",
    "template_policy": "default",
    "rate_limit": {"count": 5, "per_seconds": 30.0},
    "created_at": "2026-06-15T10:00:00Z",
    "updated_at": "2026-06-15T10:00:00.250000Z",
}


def small(**fields):
    return {"rule_id": "r", "tenant_id": "t", **fields}


def faults(mapping):
    with pytest.raises(RuleValidationError) as caught:
        NotificationRule.from_dict(mapping)
    return {error.path: error.message for error in caught.value.errors}


def test_a_rule_is_written_as_it_was_read():
    assert NotificationRule.from_dict(FULL).to_dict() == FULL


def test_a_written_rule_is_read_as_an_equal_one():
    for mapping in (FULL, small()):
        rule = NotificationRule.from_dict(mapping)
        assert NotificationRule.from_dict(rule.to_dict()) == rule
        assert hash(NotificationRule.from_dict(rule.to_dict())) == hash(rule)


def test_a_rule_cannot_be_changed():
    rule = NotificationRule.from_dict(small())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        rule.name = "other"


def test_a_rule_keeps_no_hold_on_what_it_was_read_from():
    mapping = small(predicates=[{"lookup": "x", "ids": [1]}])
    rule = NotificationRule.from_dict(mapping)
    mapping["predicates"][0]["ids"].append(2)
    assert rule.predicates[0].arguments == {"ids": [1]}


def test_only_the_ids_must_be_there():
    rule = NotificationRule.from_dict(small())
    assert rule.name == "r"
    assert rule.enabled
    assert rule.schedule.mode is DeliveryMode.INSTANT
    assert rule.timezone is None
    assert rule.recipients == rule.channels == rule.predicates == ()


def test_null_counts_as_absent():
    absent = dict.fromkeys(set(FULL) - {"rule_id", "tenant_id"})
    assert NotificationRule.from_dict(small(**absent)) == NotificationRule.from_dict(small())
    assert "rule_id" in faults({"rule_id": None, "tenant_id": "t"})


def test_all_faults_are_told_at_once_by_their_field():
    found = faults(
        {
            "rule_id": 7,
            "enabled": "yes",
            "filters": {"ip_address": ["10.0.0.0/8", "1.2.3.4", "999.1.1.1"], "severity": []},
            "timezone": "europe/berlin",
            "schedule": {"mode": "digest", "interval": 0, "unit": "hour"},
            "recipients": [{"recipient_type": "robot"}],
            "channels": ["email", "pigeon"],
            "rate_limit": {"count": 0},
            "created_at": "yesterday",
        }
    )
    assert set(found) == {
        "rule_id",
        "tenant_id",
        "enabled",
        "filters.severity",
        "filters.ip_address[2]",
        "timezone",
        "schedule.interval",
        "schedule.unit",
        "recipients[0].recipient_type",
        "recipients[0].recipient_id",
        "channels[1]",
        "rate_limit.count",
        "created_at",
    }
    assert "Europe/Berlin" in found["timezone"]
    assert "leave the field out" in found["filters.severity"]


def test_the_text_of_the_error_names_field_and_way_out():
    with pytest.raises(RuleValidationError) as caught:
        NotificationRule.from_dict(small(filters={"ip_address": ["10.1.2.3/8"]}))
    assert str(caught.value) == (
        "filters.ip_address[0]: '10.1.2.3/8' has bits behind its prefix;"
        " write 10.0.0.0/8 for the network or the bare address for the host"
    )
    assert str(FieldError("", "is not an object")) == "is not an object"


@pytest.mark.parametrize("whole", [None, [], "rule", 1])
def test_what_is_no_object_is_no_rule(whole):
    assert "write an object, {…}" in faults(whole)[""]


@pytest.mark.parametrize(
    ("mapping", "path", "hint"),
    [
        (small(filter={}), "filter", "'filters'"),
        (small(filters={"severty": ["high"]}), "filters.severty", "'severity'"),
        (small(schedule={"mode": "instant", "every": 1}), "schedule.every", "known are"),
        (small(predicates=[{"field": "a", "opp": "eq", "op": "eq", "value": 1}]),
         "predicates[0].opp", "'op'"),
        (small(recipients=[{"recipient_type": "user", "recipient_id": "u", "id": 1}]),
         "recipients[0].id", "known are"),
        (small(rate_limit={"count": 1, "second": 1}), "rate_limit.second", "'per_seconds'"),
        (small(predicates=[{"not": {"lookup": "x"}, "any": []}]), "predicates[0]", "exactly one"),
    ],
)  # fmt: skip
def test_a_field_that_nobody_reads_is_refused(mapping, path, hint):
    assert hint in faults(mapping)[path]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.1.2.3/32", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("2001:DB8:0::/32", "2001:db8::/32"),
        ("::/0", "::/0"),
        ("10.0.0.0/255.0.0.0", "10.0.0.0/8"),
    ],
)
def test_an_address_has_one_spelling(value, written):
    rule = NotificationRule.from_dict(small(filters={"ip_address": [value, written]}))
    assert rule.filters.ip_address == (written,)


@pytest.mark.parametrize(
    "value", ["010.1.2.3", True, 167837955, "", "10.1.2.3/8", "fe80::1%eth0", "10.0.0.0/33", None]
)
def test_n19_what_is_no_address_is_refused(value):
    assert "filters.ip_address[0]" in faults(small(filters={"ip_address": [value]}))


@pytest.mark.parametrize("zone", ["Europe", "", "../x", "europe/berlin", 1])
def test_n8_a_rule_with_an_unknown_zone_is_refused(zone):
    assert "not a time zone" in faults(small(timezone=zone))["timezone"]


@pytest.mark.parametrize(
    ("filters", "path"),
    [
        ({"severity": ["urgent"]}, "filters.severity[0]"),
        ({"severity": "high"}, "filters.severity"),
        ({"event_type": ["*_login"]}, "filters.event_type[0]"),
        ({"event_type": [""]}, "filters.event_type[0]"),
        ({"event_type": ["\ud800"]}, "filters.event_type[0]"),
        ({"host": ["web-[0-9"]}, "filters.host[0]"),
        ({"host": ["web-[9-0]"]}, "filters.host[0]"),
        ({"host": ["h" * 1_001]}, "filters.host[0]"),
        ({"host": ["h"] * 10_001}, "filters.host"),
        ([], "filters"),
    ],
)
def test_a_filter_that_could_not_be_meant_is_refused(filters, path):
    assert path in faults(small(filters=filters))


@pytest.mark.parametrize(
    ("schedule", "path"),
    [
        ({}, "schedule.mode"),
        ({"mode": "sometimes"}, "schedule.mode"),
        ({"mode": "digest"}, "schedule.interval"),
        ({"mode": "digest", "interval": True, "unit": "days"}, "schedule.interval"),
        ({"mode": "instant", "interval": 1}, "schedule.interval"),
        ("instant", "schedule"),
    ],
)
def test_a_schedule_that_says_nothing_clear_is_refused(schedule, path):
    assert path in faults(small(schedule=schedule))


@pytest.mark.parametrize("moment", [5, "2026-06-15", "2026-06-15T10:00:00", datetime(2026, 1, 1)])
def test_a_time_without_a_zone_is_refused(moment):
    assert "with a zone" in faults(small(updated_at=moment))["updated_at"]


def test_times_are_kept_in_utc():
    rule = NotificationRule.from_dict(
        small(
            created_at="2026-06-15T12:00:00+02:00",
            updated_at=datetime(2026, 6, 15, 10, tzinfo=UTC),
        )
    )
    assert rule.created_at == rule.updated_at
    assert rule.to_dict()["created_at"] == "2026-06-15T10:00:00Z"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (5, "rate_limit"),
        ({"count": 1.5}, "rate_limit.count"),
        ({"count": True}, "rate_limit.count"),
        ({"count": 1, "per_seconds": 0}, "rate_limit.per_seconds"),
        ({"count": 1, "per_seconds": float("inf")}, "rate_limit.per_seconds"),
        ({"count": 1, "per_seconds": "60"}, "rate_limit.per_seconds"),
    ],
)
def test_a_rate_limit_that_is_none_is_refused(value, path):
    assert path in faults(small(rate_limit=value))


@pytest.mark.parametrize(
    ("value", "path"),
    [(["soc"], "recipients[0]"), ("soc", "recipients"), ([{}], "recipients[0].recipient_id")],
)
def test_a_recipient_without_type_and_id_is_refused(value, path):
    assert path in faults(small(recipients=value))


def test_a_rule_may_name_no_recipient_and_no_channel_yet():
    rule = NotificationRule.from_dict(small(recipients=[], channels=[]))
    assert rule.recipients == rule.channels == ()


def test_the_longest_glob_is_taken_however_its_signs_are_escaped():
    NotificationRule.from_dict(small(filters={"host": ["." * 999 + "*"]}))


def test_a_rate_limit_is_a_minute_s_where_nothing_else_is_said():
    rule = NotificationRule.from_dict(small(rate_limit={"count": 1}))
    assert rule.rate_limit == RateLimit(count=1, per_seconds=60)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("x", "predicates"),
        (["x"], "predicates[0]"),
        ([{}], "predicates[0]"),
        ([{"field": "a", "not": {}}], "predicates[0]"),
        ([{"any": []}], "predicates[0].any"),
        ([{"all": {"field": "a"}}], "predicates[0].all"),
        ([{"any": [{"field": "a", "op": "eq", "value": 1}, 5]}], "predicates[0].any[1]"),
        ([{"not": {"field": "a", "op": "like", "value": 1}}], "predicates[0].not.op"),
        ([{"field": "a", "op": ["eq"], "value": 1}], "predicates[0].op"),
        ([{"field": "a", "op": "eq"}], "predicates[0].value"),
        ([{"field": "a", "op": "eq", "value": None}], "predicates[0].value"),
        ([{"field": "a", "op": "eq", "value": float("nan")}], "predicates[0].value"),
        ([{"field": "a", "op": "eq", "value": [1]}], "predicates[0].value"),
        ([{"field": "a", "op": "gt", "value": True}], "predicates[0].value"),
        ([{"field": "a", "op": "in", "value": []}], "predicates[0].value"),
        ([{"field": "a", "op": "in", "value": "RU"}], "predicates[0].value"),
        ([{"field": "a", "op": "in", "value": [{}]}], "predicates[0].value[0]"),
        ([{"field": "a", "op": "exists", "value": "yes"}], "predicates[0].value"),
        ([{"field": "a", "op": "starts_with", "value": 1}], "predicates[0].value"),
        ([{"field": "a", "op": "matches", "value": "("}], "predicates[0].value"),
        ([{"field": "a", "op": "matches", "value": r"(a)\1"}], "predicates[0].value"),
        ([{"field": "a", "op": "matches", "value": "a" * 1_001}], "predicates[0].value"),
        ([{"field": "a", "op": "cidr", "value": "10.1.2.3/8"}], "predicates[0].value"),
        ([{"field": "a", "op": "cidr", "value": ["::/0", "x"]}], "predicates[0].value[1]"),
        ([{"field": "", "op": "eq", "value": 1}], "predicates[0].field"),
        ([{"field": "a..b", "op": "eq", "value": 1}], "predicates[0].field"),
        ([{"field": 1, "op": "eq", "value": 1}], "predicates[0].field"),
        ([{"lookup": ""}], "predicates[0].lookup"),
        ([{"lookup": "x", "at": datetime(2026, 1, 1)}], "predicates[0]"),
        ([{"lookup": "x", "not": {}}], "predicates[0]"),
    ],
)
def test_a_predicate_that_cannot_be_asked_is_refused(value, path):
    assert path in faults(small(predicates=value))


def nested(depth):
    inner = {"field": "a", "op": "exists", "value": True}
    for level in range(depth):
        inner = [{"not": inner}, {"all": [inner]}, {"any": [inner]}][level % 3]
    return inner


def test_predicates_nest_to_a_depth_of_eight():
    NotificationRule.from_dict(small(predicates=[nested(8)]))
    (path,) = faults(small(predicates=[nested(9)]))
    assert path.startswith("predicates[0].")
    assert len(faults(small(predicates=[nested(5_000)]))) == 1


def test_the_number_of_conditions_is_bounded():
    condition = {"field": "a", "op": "exists", "value": True}
    NotificationRule.from_dict(small(predicates=[condition] * 1_000))
    found = faults(small(predicates=[{"any": [condition] * 5_000}]))
    assert list(found) == ["predicates[0].any[999]"]


def test_one_and_true_are_two_values():
    mapping = small(predicates=[{"field": "a", "op": "in", "value": [1, True, 1.0, 1, "1"]}])
    condition = NotificationRule.from_dict(mapping).predicates[0]
    assert isinstance(condition, Condition)
    assert [type(value) for value in condition.value] == [int, bool, float, str]


def test_repeated_values_are_kept_once():
    rule = NotificationRule.from_dict(small(channels=["sms", "email", "sms"]))
    assert rule.channels == (ChannelType.SMS, ChannelType.EMAIL)


def test_a_message_can_carry_the_longest_ids_a_rule_may_have():
    long_id = "i" * 256
    rule = NotificationRule.from_dict(
        {
            "rule_id": long_id,
            "tenant_id": long_id,
            "recipients": [{"recipient_type": "user", "recipient_id": long_id}],
        }
    )
    event = IncidentEvent(
        event_id="e",
        tenant_id=rule.tenant_id,
        occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
        severity=Severity.LOW,
        event_type="x",
    )
    message = NotificationMessage(
        notification_uuid="00000000-0000-4000-8000-000000000000",
        tenant_id=rule.tenant_id,
        incident=(event,),
        rule_id=rule.rule_id,
        recipient=rule.recipients[0],
        channel=Channel(channel=ChannelType.EMAIL),
        delivery_mode=rule.schedule.mode,
    )
    assert NotificationMessage.from_json(message.to_json()) == message
    assert "rule_id" in faults({"rule_id": "i" * 257, "tenant_id": "t"})


def test_the_zone_is_the_rule_s_else_the_tenant_s_else_utc():
    digest = {"mode": "digest", "interval": 2, "unit": "hours"}
    own = NotificationRule.from_dict(small(schedule=digest, timezone="Asia/Seoul"))
    bare = NotificationRule.from_dict(small(schedule=digest))
    assert own.digest_schedule("Europe/Berlin") == Schedule(2, "hours", "Asia/Seoul")
    assert bare.digest_schedule("Europe/Berlin") == Schedule(2, "hours", "Europe/Berlin")
    assert bare.digest_schedule() == Schedule(2, "hours", "UTC")
    with pytest.raises(UnknownZoneError):
        bare.digest_schedule("Europe")


def test_an_instant_rule_has_no_digest_schedule():
    with pytest.raises(ScheduleError, match="at once"):
        NotificationRule.from_dict(small()).digest_schedule()


def test_a_rule_made_by_hand_is_checked_when_it_is_compiled():
    rule = attrs.evolve(NotificationRule.from_dict(small()), timezone="Europe")
    assert [error.errors[0].path for error in compile_rules([rule]).errors] == ["timezone"]
