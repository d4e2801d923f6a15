"""A rule set finds what a naive reading of the rules finds, and stays what it is."""

import fnmatch
import ipaddress
import re
from datetime import UTC, datetime
from types import SimpleNamespace

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahrules import (
    AmbiguousRuleError,
    Lookup,
    NotificationRule,
    RuleKey,
    RuleSet,
    compile_rules,
    explain,
)
from ahwire import IncidentEvent
from ahwire.notification import Severity

TENANTS = ["t1", "t2"]
TYPES = ["login", "login_failed", "agent_down", "x"]
ADDRESSES = ["10.1.2.3", "10.200.0.1", "::ffff:10.1.2.3", "192.168.7.7", "2001:db8::1", "::1"]
HOSTS = ["web1", "web-2", "db", "WEB1", "a.b"]
SCALARS = ["RU", "", "admin", 0, 1, 2.5, -1, True, False]
FIELDS = ["geo", "n", "who.name", "gone"]

scalars = st.sampled_from(SCALARS)


def lists(values, max_size=3):
    return st.lists(st.sampled_from(values), min_size=1, max_size=max_size)


def optional(**strategies):
    return st.fixed_dictionaries({}, optional=strategies)


filters = optional(
    severity=lists(["low", "middle", "high"]),
    ip_address=lists(
        ["10.0.0.0/8", "10.1.2.3", "::ffff:10.0.0.0/104", "192.168.0.0/16", "2001:db8::/32", "::/0"]
    ),
    event_type=lists([*TYPES, "login*", "agent_*", "*"]),
    host=lists([*HOSTS, "web*", "*b*", "web?", "[wd]*", "[!w]*"]),
)
conditions = st.one_of(
    st.builds(
        lambda field, op, value: {"field": field, "op": op, "value": value},
        st.sampled_from(FIELDS),
        st.sampled_from(["eq", "ne", "contains"]),
        scalars,
    ),
    st.builds(
        lambda field, op, value: {"field": field, "op": op, "value": value},
        st.sampled_from(FIELDS),
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        st.sampled_from([v for v in SCALARS if not isinstance(v, bool)]),
    ),
    st.builds(
        lambda field, op, value: {"field": field, "op": op, "value": value},
        st.sampled_from(FIELDS),
        st.sampled_from(["in", "not_in"]),
        lists(SCALARS),
    ),
    st.builds(
        lambda field, op, value: {"field": field, "op": op, "value": value},
        st.sampled_from(FIELDS),
        st.sampled_from(["starts_with", "matches"]),
        st.sampled_from(["R", "adm", "^a.*n$", "U$"]),
    ),
    st.builds(
        lambda field, value: {"field": field, "op": "exists", "value": value},
        st.sampled_from(FIELDS),
        st.booleans(),
    ),
    st.builds(
        lambda value: {"field": "addr", "op": "cidr", "value": value},
        st.sampled_from(["10.0.0.0/8", ["::/0", "192.168.0.0/16"]]),
    ),
    st.builds(lambda name: {"lookup": name}, st.sampled_from(["l1", "l2"])),
)
predicates = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds(lambda p: {"not": p}, inner),
        st.builds(lambda ps: {"all": ps}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda ps: {"any": ps}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)
rules = st.fixed_dictionaries(
    {
        "rule_id": st.sampled_from([f"r{number}" for number in range(12)]),
        "tenant_id": st.sampled_from(TENANTS),
    },
    optional={
        "enabled": st.booleans(),
        "filters": filters,
        "predicates": st.lists(predicates, max_size=2),
    },
)
rule_lists = st.lists(
    rules, max_size=12, unique_by=lambda rule: (rule["tenant_id"], rule["rule_id"])
)
payloads = optional(
    geo=scalars | st.none() | st.lists(scalars, max_size=2),
    n=scalars,
    who=st.fixed_dictionaries({"name": scalars}) | scalars,
    addr=st.sampled_from([*ADDRESSES, "nothing", 7]),
)
events = st.builds(
    lambda **fields: IncidentEvent(
        event_id="e", occurred_at=datetime(2026, 6, 15, tzinfo=UTC), **fields
    ),
    tenant_id=st.sampled_from([*TENANTS, "t3"]),
    severity=st.sampled_from(Severity),
    event_type=st.sampled_from([*TYPES, "login_ok"]),
    ip_address=st.none() | st.sampled_from(ADDRESSES),
    host=st.none() | st.sampled_from(HOSTS),
    payload=payloads,
)


def examples(factor):
    """So many times the examples of the profile in force."""
    return settings(max_examples=factor * settings().max_examples, deadline=None)


def naive_address(text):
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def naive_network(text):
    if text.startswith("::ffff:"):
        inner, _, prefix = text[7:].partition("/")
        text = f"{inner}/{int(prefix or 128) - 96}"
    return ipaddress.ip_network(text)


def naive_in_networks(text, networks):
    address = naive_address(text) if isinstance(text, str) else None
    found = [naive_network(each) for each in networks]
    return address is not None and any(address in network for network in found)


def naive_filters(mapping, event):
    wanted = mapping.get("filters", {})
    if "severity" in wanted and event.severity not in wanted["severity"]:
        return False
    if "event_type" in wanted and not any(
        event.event_type.startswith(w[:-1]) if w.endswith("*") else event.event_type == w
        for w in wanted["event_type"]
    ):
        return False
    if "host" in wanted and not any(
        event.host is not None and fnmatch.fnmatchcase(event.host, w) for w in wanted["host"]
    ):
        return False
    return "ip_address" not in wanted or naive_in_networks(event.ip_address, wanted["ip_address"])


def naive_same_type(left, right):
    for types in (bool, str, (int, float)):
        if isinstance(left, types) or isinstance(right, types):
            both = isinstance(left, types) and isinstance(right, types)
            return both and isinstance(left, bool) == isinstance(right, bool)
    return False


def naive_condition(predicate, payload):
    op, value, found = predicate["op"], predicate["value"], payload
    for part in predicate["field"].split("."):
        if not isinstance(found, dict) or part not in found:
            return op == "exists" and value is False
        found = found[part]
    if op == "exists":
        return value
    if op == "cidr":
        return naive_in_networks(found, [value] if isinstance(value, str) else value)
    if op in ("in", "not_in"):
        alike = [each for each in value if naive_same_type(found, each)]
        return bool(alike) and (found in alike) == (op == "in")
    if op == "contains" and isinstance(found, list):
        return any(naive_same_type(value, each) and value == each for each in found)
    if not naive_same_type(found, value):
        return False
    if op in ("contains", "starts_with", "matches"):
        if not isinstance(found, str):
            return False
        if op == "contains":
            return value in found
        return found.startswith(value) if op == "starts_with" else bool(re.search(value, found))
    return {
        "eq": found == value,
        "ne": found != value,
        "gt": found > value,
        "gte": found >= value,
        "lt": found < value,
        "lte": found <= value,
    }[op]


def naive_predicate(predicate, payload, answers):
    if "not" in predicate:
        return not naive_predicate(predicate["not"], payload, answers)
    if "all" in predicate:
        return all(naive_predicate(each, payload, answers) for each in predicate["all"])
    if "any" in predicate:
        return any(naive_predicate(each, payload, answers) for each in predicate["any"])
    if "lookup" in predicate:
        return answers[predicate["lookup"]]
    return naive_condition(predicate, payload)


def naive_match(mappings, event, answers):
    """The ids of the rules that match when lookups are answered so."""
    return sorted(
        each["rule_id"]
        for each in mappings
        if each["tenant_id"] == event.tenant_id
        and each.get("enabled", True)
        and naive_filters(each, event)
        and all(naive_predicate(p, event.payload, answers) for p in each.get("predicates", ()))
    )


ANSWERS = [{"l1": a, "l2": b} for a in (True, False) for b in (True, False)]


def decided(rule_set, event, answers):
    told = {Lookup(name=name): answer for name, answer in answers.items()}
    return [match.rule_id for match in rule_set.match(event) if match.decide(told)]


@examples(5)
@given(rule_lists, st.lists(events, min_size=1, max_size=4))
def test_match_equals_the_naive_matcher(mappings, batch):
    rule_set = compile_rules(mappings)
    assert rule_set.errors == ()
    for event in batch:
        for answers in ANSWERS:
            assert decided(rule_set, event, answers) == naive_match(mappings, event, answers)


@examples(3)
@given(rule_lists, events)
def test_lookups_left_out_of_a_match_could_change_nothing(mappings, event):
    for match in compile_rules(mappings).match(event):
        asked = {lookup.name for lookup in match.lookups}
        for name in {"l1", "l2"} - asked:
            for answers in ANSWERS:
                told = {Lookup(name=key): answer for key, answer in answers.items()}
                without = {key: answer for key, answer in told.items() if key.name != name}
                assert match.decide(told) == match.decide(without)


@examples(3)
@given(rule_lists, rule_lists, st.lists(st.sampled_from([f"r{n}" for n in range(12)])), events)
def test_replace_equals_compiling_anew(before, changed, removed_ids, event):
    changed_keys = {(each["tenant_id"], each["rule_id"]) for each in changed}
    removed = {(tenant, rule_id) for rule_id in removed_ids for tenant in TENANTS} - changed_keys
    rule_set = compile_rules(before)
    matched_before = rule_set.match(event)

    replaced = rule_set.replace(changed=changed, removed=removed)

    kept = [
        each
        for each in before
        if (each["tenant_id"], each["rule_id"]) not in changed_keys | removed
    ]
    anew = compile_rules([*kept, *changed])
    assert replaced.match(event) == anew.match(event)
    assert dict(replaced.rules) == dict(anew.rules)
    assert rule_set.match(event) == matched_before


@examples(3)
@given(rules, events)
def test_explain_agrees_with_match(mapping, event):
    rule = NotificationRule.from_dict(mapping)
    found = explain(rule, event)
    matched = compile_rules([rule]).match(event)
    assert (found.matches is not False) == bool(matched)
    assert bool(found.failed) == (found.matches is False)
    if matched:
        assert (found.matches is None) == bool(matched[0].lookups)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@examples(3)
@given(
    rule_lists,
    st.dictionaries(st.sampled_from(["geo", "n", "who", "addr"]), json_values),
    st.none() | st.text(),
    st.none() | st.text(),
)
def test_matching_never_raises_whatever_the_event_holds(mappings, payload, address, host):
    event = SimpleNamespace(
        tenant_id="t1",
        severity="high",
        event_type="login",
        ip_address=address,
        host=host,
        payload=payload,
    )
    compile_rules(mappings).match(event)
    for mapping in mappings:
        explain(NotificationRule.from_dict(mapping), event)


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
