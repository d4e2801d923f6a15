"""What a rule set says about rules that are replaced, removed, broken, and asked about."""

from datetime import UTC, datetime
from types import SimpleNamespace

import attrs
import pytest

from ahrules import (
    AmbiguousRuleError,
    NotificationRule,
    RuleKey,
    RuleSet,
    compile_rules,
    explain,
)
from ahwire import IncidentEvent
from ahwire.notification import Severity


def test_half_a_surrogate_pair_in_an_event_matches_no_pattern():
    rule = {
        "rule_id": "r",
        "tenant_id": "t1",
        "filters": {"host": ["w*"]},
        "predicates": [{"field": "a", "op": "matches", "value": "w"}],
    }
    fields = {"tenant_id": "t1", "severity": "low", "event_type": "x", "ip_address": None}
    whole = SimpleNamespace(**fields, host="w", payload={"a": "w"})
    assert compile_rules([rule]).match(whole)
    for host, text in [("w\ud800", "w"), ("w", "w\ud800")]:
        event = SimpleNamespace(**fields, host=host, payload={"a": text})
        assert compile_rules([rule]).match(event) == []


def an_event(**fields):
    values = {
        "event_id": "e",
        "tenant_id": "t1",
        "occurred_at": datetime(2026, 6, 15, tzinfo=UTC),
        "severity": Severity.HIGH,
        "event_type": "login",
    }
    return IncidentEvent(**values | fields)


def a_rule(rule_id="r", tenant_id="t1", **fields):
    return {"rule_id": rule_id, "tenant_id": tenant_id, **fields}


def test_n19_a_mapped_address_is_its_ipv4_address():
    rule = a_rule(filters={"ip_address": ["10.0.0.0/8"]})
    assert compile_rules([rule]).match(an_event(ip_address="::ffff:10.1.2.3"))


def test_matches_are_sorted_by_rule_id():
    rule_set = compile_rules([a_rule("b"), a_rule("c"), a_rule("a")])
    assert [match.rule_id for match in rule_set.match(an_event())] == ["a", "b", "c"]
    assert rule_set.match(an_event())[0].rule == NotificationRule.from_dict(a_rule("a"))


def test_a_bad_rule_is_told_and_the_rest_works():
    rule_set = compile_rules(
        [
            a_rule("good"),
            a_rule("bad", filters={"ip_address": ["10.0.0.0/8", "x"]}, timezone="Europe"),
            a_rule("good", name="again"),
            {"tenant_id": 5},
            "rubbish",
        ]
    )
    assert [match.rule_id for match in rule_set.match(an_event())] == ["good"]
    assert [(error.tenant_id, error.rule_id) for error in rule_set.errors] == [
        ("t1", "bad"),
        ("t1", "good"),
        ("", ""),
        ("", ""),
    ]
    paths = [error.path for error in rule_set.errors[0].errors]
    assert paths == ["filters.ip_address[1]", "timezone"]
    assert str(rule_set.errors[0]).startswith("rule 'bad': filters.ip_address[1]: 'x' is no IP")
    assert repr(rule_set) == "<RuleSet of 1 rules, 4 errors>"


def test_a_rule_that_is_changed_into_a_bad_one_leaves_the_set():
    rule_set = compile_rules([a_rule("a"), a_rule("b")])
    broken = rule_set.replace(changed=[a_rule("a", timezone="Europe")])
    assert [match.rule_id for match in broken.match(an_event())] == ["b"]
    assert [error.rule_id for error in broken.errors] == ["a"]
    mended = broken.replace(changed=[a_rule("a")])
    assert [match.rule_id for match in mended.match(an_event())] == ["a", "b"]
    assert mended.errors == ()
    assert broken.replace(removed=["a"]).errors == ()


def test_a_bare_rule_id_removes_the_one_rule_that_has_it():
    rule_set = compile_rules([a_rule("a"), a_rule("b"), a_rule("b", "t2")])
    assert list(rule_set.replace(removed=["a", "unknown"]).rules) == [
        RuleKey("t1", "b"),
        RuleKey("t2", "b"),
    ]
    with pytest.raises(AmbiguousRuleError, match="several tenants"):
        rule_set.replace(removed=["b"])
    assert list(rule_set.replace(removed=[("t2", "b"), ("t9", "z")]).rules) == [
        RuleKey("t1", "a"),
        RuleKey("t1", "b"),
    ]


def test_tenants_without_a_change_are_shared():
    rule_set = compile_rules([a_rule("a"), a_rule("b", "t2")])
    replaced = rule_set.replace(changed=[a_rule("c")])
    assert replaced._tenants["t2"] is rule_set._tenants["t2"]
    assert replaced._tenants["t1"] is not rule_set._tenants["t1"]


def test_a_tenant_whose_last_rule_goes_leaves_nothing_behind():
    rule_set = compile_rules([a_rule("a", filters={"event_type": ["login", "x"]})])
    assert rule_set.replace(removed=["a"])._tenants == {}
    assert rule_set.replace(changed=[a_rule("a", enabled=False)])._tenants == {}


def test_only_candidates_are_asked():
    named = [a_rule(f"n{i}", filters={"event_type": [f"type-{i}"]}) for i in range(100)]
    index = compile_rules([*named, a_rule("any")])._tenants["t1"]
    assert index.candidates(an_event(event_type="type-7")).bit_count() == 2


def test_a_rule_set_cannot_be_changed():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        RuleSet().errors = ()


def test_the_number_of_rules_is_the_length():
    assert len(compile_rules([a_rule("a"), a_rule("b", enabled=False)])) == 2


def test_explain_says_what_the_event_has_and_what_the_rule_wants():
    rule = NotificationRule.from_dict(
        a_rule(
            enabled=False,
            filters={"severity": ["low"], "host": ["web*"], "ip_address": ["10.0.0.0/8"]},
            predicates=[
                {"any": [{"field": "geo", "op": "in", "value": ["RU"]}, {"lookup": "vip"}]},
                {"not": {"all": [{"field": "n", "op": "exists", "value": True}]}},
            ],
        )
    )
    found = explain(rule, an_event(tenant_id="t2", ip_address="10.1.2.3", payload={"n": 1}))
    assert found.matches is False
    assert [(each.path, each.holds) for each in found.conditions] == [
        ("enabled", False),
        ("tenant_id", False),
        ("filters.severity", False),
        ("filters.ip_address", True),
        ("filters.host", False),
        ("predicates[0]", None),
        ("predicates[0].any[0]", False),
        ("predicates[0].any[1]", None),
        ("predicates[1]", False),
        ("predicates[1].not", True),
        ("predicates[1].not.all[0]", True),
    ]
    reasons = {each.path: each.reason for each in found.conditions}
    assert reasons["filters.severity"] == "the event has 'high'; wanted is one of ['low']"
    assert reasons["filters.host"] == "the event has none; wanted is one of ['web*']"
    assert reasons["predicates[0].any[0]"] == "geo is missing; wanted is in ['RU']"
    assert [each.path for each in found.failed] == [
        "enabled",
        "tenant_id",
        "filters.severity",
        "filters.host",
        "predicates[1]",
    ]
