"""Rule sets against the reference: thousands of pairs at each run, a million at night."""

import random

import pytest
from match_reference import random_event, random_rule, verdict

from ahrules import Lookup, NotificationRule, RuleKey, compile_rules, explain

ANSWERS = [{}, {"l1": True}, {"l1": False, "l2": True}, {"l1": False, "l2": False}]


def compare(seed, rules_count, events_count):
    """Ask both about every pair; return how many pairs there were, and how many matched."""
    rng = random.Random(seed)
    made = [random_rule(rng, f"r{number:04d}") for number in range(rules_count)]
    rule_set = compile_rules(rule for rule, _ in made)
    broken = {rule["rule_id"] for rule, is_good in made if not is_good}
    assert {error.rule_id for error in rule_set.errors} == broken
    paths = [fault.path for error in rule_set.errors for fault in error.errors]
    assert all(path.startswith("filters.ip_address[") for path in paths)
    rules = [rule for rule, is_good in made if is_good]
    matched = 0
    for _ in range(events_count):
        event, answers = random_event(rng), rng.choice(ANSWERS)
        expected = {rule["rule_id"]: verdict(rule, event, answers) for rule in rules}
        found = rule_set.match(event)
        told = {Lookup(name=name): answer for name, answer in answers.items()}
        decided = {match.rule_id: match.decide(told) for match in found}
        assert list(decided) == sorted(decided)
        for rule_id, held in expected.items():
            assert decided.get(rule_id, False) is held, (rule_id, event)
        matched += len(found)
    return rules_count * events_count, matched


@pytest.mark.parametrize("seed", range(4))
def test_match_equals_the_reference_over_some_thousand_pairs(seed):
    pairs, matched = compare(seed, 60, 40)
    assert pairs == 2_400
    assert matched > pairs / 100


def test_match_equals_the_reference_in_a_large_tenant():
    # Large enough for postings that are lists of positions, and for masks taken apart by bytes.
    compare(5, 5_000, 3)


@pytest.mark.nightly
def test_match_equals_the_reference_over_a_million_pairs():
    counts = [compare(seed, 200, 100) for seed in range(1_000, 1_050)]
    assert sum(pairs for pairs, _ in counts) == 1_000_000


def test_n19_what_is_no_network_keeps_its_rule_alone_out():
    made = [random_rule(random.Random(seed), f"r{seed}") for seed in range(300)]
    assert sum(not is_good for _, is_good in made) > 2
    rule_set = compile_rules(rule for rule, _ in made)
    assert len(rule_set) == sum(is_good for _, is_good in made)


def test_explain_says_what_match_says_and_the_reference_too():
    rng = random.Random(7)
    for number in range(300):
        mapping, is_good = random_rule(rng, f"r{number}")
        if not is_good:
            continue
        rule, event = NotificationRule.from_dict(mapping), random_event(rng)
        found = explain(rule, event)
        assert found.matches is verdict(mapping, event, {})
        matches = compile_rules([rule]).match(event)
        assert bool(matches) is (found.matches is not False)
        assert not matches or bool(matches[0].lookups) is (found.matches is None)


@pytest.mark.parametrize("seed", range(3))
def test_a_set_changed_a_hundred_times_equals_one_compiled_anew(seed):
    rng = random.Random(seed)
    rules = {f"r{n:03d}": random_rule(rng, f"r{n:03d}")[0] for n in range(0, 80, 2)}
    rule_set = compile_rules(rules.values())
    events = [random_event(rng) for _ in range(30)]
    history = []
    for _ in range(100):
        names = rng.sample(range(80), 2)
        changed = [random_rule(rng, f"r{n:03d}")[0] for n in names[:1]]
        gone = [f"r{n:03d}" for n in names[1:]]
        keys = [RuleKey(tenant, rule_id) for tenant in ("t1", "t2") for rule_id in gone]
        # A rule that moves to another tenant leaves the first one.
        moved = [RuleKey(t, each["rule_id"]) for each in changed for t in ("t1", "t2")]
        keys += [key for key in moved if key.tenant_id != changed[0]["tenant_id"]]
        rules |= {each["rule_id"]: each for each in changed}
        for rule_id in gone:
            rules.pop(rule_id, None)
        rule_set = rule_set.replace(changed, keys)
        history.append((rule_set, [rule_set.match(event) for event in events[:3]]))
    anew = compile_rules(rules.values())
    assert dict(rule_set.rules) == dict(anew.rules)
    for event in events:
        assert rule_set.match(event) == anew.match(event)
    # The sets on the way still say what they said.
    for earlier, answers in history:
        assert [earlier.match(event) for event in events[:3]] == answers
