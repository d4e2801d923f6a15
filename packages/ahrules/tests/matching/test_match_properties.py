"""A rule set finds what a naive reading of the rules finds, whatever hypothesis thinks of."""

from datetime import UTC, datetime
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from match_reference import verdict

from ahrules import Lookup, NotificationRule, compile_rules, explain
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


ANSWERS = [{"l1": a, "l2": b} for a in (True, False) for b in (True, False)]
PARTIAL = [*ANSWERS, {}, {"l1": True}, {"l1": False}, {"l2": True}, {"l2": False}]


def naive_match(mappings, event, answers):
    """The ids of the rules that match, and whether each already does, with these answers."""
    verdicts = {each["rule_id"]: verdict(each, event, answers) for each in mappings}
    return {rule_id: held for rule_id, held in sorted(verdicts.items()) if held is not False}


def told(answers):
    return {Lookup(name=name): answer for name, answer in answers.items()}


@given(rule_lists, st.lists(events, min_size=1, max_size=4))
def test_match_equals_the_naive_matcher(mappings, batch):
    rule_set = compile_rules(mappings)
    assert rule_set.errors == ()
    for event in batch:
        own = [each for each in mappings if each["tenant_id"] == event.tenant_id]
        for answers in PARTIAL:
            decided = {m.rule_id: m.decide(told(answers)) for m in rule_set.match(event)}
            found = {rule_id: held for rule_id, held in decided.items() if held is not False}
            assert found == naive_match(own, event, answers)
            assert list(found) == sorted(found)


@given(rule_lists, events)
def test_lookups_left_out_of_a_match_could_change_nothing(mappings, event):
    for match in compile_rules(mappings).match(event):
        asked = {lookup.name for lookup in match.lookups}
        for name in {"l1", "l2"} - asked:
            for answers in ANSWERS:
                told = {Lookup(name=key): answer for key, answer in answers.items()}
                without = {key: answer for key, answer in told.items() if key.name != name}
                assert match.decide(told) == match.decide(without)


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
