"""What a caller gives wrongly is refused with one error that names it and the way out."""

from datetime import UTC, datetime

import pytest

import ahrules
from ahrules import (
    FlapDetector,
    NotificationRule,
    RuleSchedule,
    Schedule,
    SuppressionTracker,
    bucket,
    check_silence,
    compile_rules,
    compile_silences,
    explain,
)
from ahwire.hub import LabelMatcher, MatchOp, Silence
from ahwire.notification import DeliveryMode

WHEN = datetime(2026, 11, 30, tzinfo=UTC)
GOOD = {"rule_id": "good", "tenant_id": "acme"}
DIGEST = RuleSchedule(mode=DeliveryMode.DIGEST, interval=1, unit=ahrules.Unit.HOURS)


def silence(**matcher):
    return Silence(
        silence_id="s",
        company_id="acme",
        matchers=(LabelMatcher(**matcher),),
        starts_at=WHEN,
        created_by="me",
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: compile_silences([{}]), r"silences\[0\] is a dict; give a Silence"),
        (lambda: compile_silences({}), r"silences is a dict; give a list"),
        (lambda: check_silence({}), r"silence is a dict; give a Silence"),
        (lambda: compile_rules([]).match({}), r"event is a dict; give an IncidentEvent"),
        (lambda: explain(GOOD, None), r"rule is a dict; give what NotificationRule\.from_dict"),
        (
            lambda: explain(NotificationRule.from_dict(GOOD), {}),
            r"event is a dict; give an IncidentEvent",
        ),
        (lambda: SuppressionTracker([]), r"silences is a list; give what compile_silences"),
        (lambda: SuppressionTracker().replace([]), r"silences is a list; give what compile_silen"),
        (lambda: FlapDetector(5), r"settings is a int; give FlapSettings"),
        (lambda: bucket("2026-11-30", Schedule(1, "hours")), r"the instant is a str; give an aw"),
        (lambda: bucket(WHEN, DIGEST), r"schedule is a RuleSchedule; give a Schedule"),
        (lambda: compile_rules(GOOD), r"rules is a dict; give a list of rules"),
        (
            lambda: compile_rules(NotificationRule.from_dict(GOOD)),
            r"rules is a NotificationRule; give a list of rules",
        ),
    ],
)
def test_the_argument_and_the_way_out_are_named(call, told):
    with pytest.raises(TypeError, match=f"^{told}"):
        call()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"channels": ("mail",)}, "channels[0]: 'mail' is none of"),
        ({"recipients": ("me",)}, "a value is not of its field's type"),
        ({"predicates": ({},)}, "a value is not of its field's type"),
        ({"timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus' is not a time zone"),
        ({"timezone": 5}, "timezone: 5 is not a time zone"),
        ({"schedule": {"mode": "digest"}}, "a value is not of its field's type"),
        ({"filters": 5}, "a value is not of its field's type"),
        ({"rule_id": ""}, "at position 0: rule_id: is empty"),
    ],
)
def test_a_rule_made_by_hand_with_wrong_values_costs_no_other(fields, told):
    made = NotificationRule(**{"rule_id": "r", "tenant_id": "acme", "name": "n"} | fields)
    rules = compile_rules([made, GOOD])
    (error,) = rules.errors
    assert told in str(error)
    assert error.rule_id == made.rule_id
    assert [key.rule_id for key in rules.rules] == ["good"]


@pytest.mark.parametrize("wrong", [5, None, "good", [], {"tenant_id": "acme"}])
def test_an_entry_that_is_no_rule_is_told_by_its_position(wrong):
    (error,) = compile_rules([GOOD, wrong]).errors
    assert str(error).startswith("rule at position 1: ")


def test_both_faults_of_a_rate_limit_are_told():
    given = GOOD | {"rate_limit": {"count": 0, "per_seconds": -1}}
    (error,) = compile_rules([given]).errors
    assert [fault.path for fault in error.errors] == ["rate_limit.count", "rate_limit.per_seconds"]


@pytest.mark.parametrize(
    ("label", "op", "value", "told"),
    [
        ("severity", "eq", "high", "'high' with eq holds for no severity; known are"),
        ("severity", "eq", "critcal", "near names: critical"),
        ("type", "eq", "agent_down", "near names: agent.down"),
        ("type", "eq", "", "holds for no type"),
        ("severity", "re", "hi.*", "holds for no severity"),
        ("type", "nre", ".*", "holds for no type"),
    ],
)
def test_a_matcher_that_can_never_hold_is_a_fault(label, op, value, told):
    faults = check_silence(silence(label=label, op=MatchOp(op), value=value))
    assert [fault.path for fault in faults] == ["matchers[0].value"]
    assert told in faults[0].message


@pytest.mark.parametrize(
    ("label", "op", "value"),
    [
        ("severity", "eq", "critical"),
        ("severity", "eq", ""),
        ("type", "re", r"agent\..*"),
        ("team", "eq", "high"),
    ],
)
def test_a_matcher_that_can_hold_is_none(label, op, value):
    assert not any(
        fault.path == "matchers[0].value"
        for fault in check_silence(silence(label=label, op=MatchOp(op), value=value))
    )


def test_what_is_due_at_no_instant_is_refused():
    with pytest.raises(ahrules.InstantError):
        SuppressionTracker().due(datetime(2026, 11, 30))


class Stubborn(datetime):
    """An aware time that will not be reckoned with."""

    def __sub__(self, other):
        raise TypeError("this time has no differences")


def test_what_is_wrong_with_a_time_or_schedule_of_the_right_kind_is_told_as_it_is():
    odd = Stubborn(2026, 11, 30, tzinfo=UTC)
    with pytest.raises(TypeError, match="no differences"):
        bucket(odd, Schedule(1, "hours"))
    schedule = Schedule(1, "hours")
    object.__setattr__(schedule, "timezone", [])
    with pytest.raises(TypeError, match="unhashable"):
        bucket(WHEN, schedule)
