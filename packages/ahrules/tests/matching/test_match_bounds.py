"""What a rule set keeps, takes and survives, whatever rules and events come."""

import random
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from match_reference import random_event, random_rule

from ahrules import NotificationRule, RuleValidationError, compile_rules, explain
from ahrules._limits import FAULTS_MAX, PATTERN_BYTES_MAX, PATTERN_BYTES_USUAL
from ahrules._patterns import AskedPattern, PatternCache, compile_glob, compile_pattern
from ahrules._postings import as_mask, changed, positions
from ahrules._reading import shown


def an_event(**fields):
    values = {"severity": "low", "event_type": "x", "ip_address": None, "host": None, "payload": {}}
    return SimpleNamespace(**{"tenant_id": "t1", **values, **fields})


def a_rule(rule_id="r", **fields):
    return {"rule_id": rule_id, "tenant_id": "t1", **fields}


def faults(**fields):
    with pytest.raises(RuleValidationError) as caught:
        NotificationRule.from_dict(a_rule(**fields))
    return {error.path: error.message for error in caught.value.errors}


def test_the_two_ends_of_a_glob_do_not_overlap():
    rule_set = compile_rules([a_rule(filters={"host": ["web-*-1", "*.eu"]})])
    assert rule_set.match(an_event(host="web--1"))
    assert rule_set.match(an_event(host="web-7-1"))
    assert not rule_set.match(an_event(host="web-1"))
    assert rule_set.match(an_event(host=".eu"))
    assert not rule_set.match(an_event(host="eu"))


def test_what_an_index_keeps_of_events_is_bounded():
    index = compile_rules([a_rule(filters={"host": ["a"], "event_type": ["b*"]})])._tenants["t1"]
    for number in range(3_000):
        index.match(an_event(event_type=f"b{number}", host=f"h{number}"))
        index.match(an_event(event_type="b" * 100 + str(number), host="h" * 100 + str(number)))
    for kept in (index._type_masks, index._host_masks):
        assert len(kept) <= index._memo_items_max < 1_000
        assert not any(len(str(key)) > 100 for key in kept)
    assert index.match(an_event(event_type="bb", host="a"))
    assert not index.match(an_event(event_type="bb", host=None))


def test_the_compiled_patterns_that_are_kept_are_bounded():
    large = "((a?){60}b?){9}c|"
    patterns = PatternCache(bytes_max=10 * PATTERN_BYTES_USUAL + PATTERN_BYTES_MAX)
    asked = [AskedPattern(f"{large if number == 5 else ''}^{number}$", patterns)
             for number in range(100)]  # fmt: skip
    for _ in range(3):
        assert all(each.search(str(number)) for number, each in enumerate(asked))
        assert len(patterns) == 11
    # Those that are kept stay, whatever comes after them: no order of asking compiles all anew.
    assert patterns.compiled_total == 11 + 3 * 89
    del asked[:50]
    assert len(patterns) == 0
    assert asked[0].search("50")
    assert asked[0].search("50")
    assert patterns.compiled_total == 11 + 3 * 89 + 1


@pytest.mark.parametrize("kind", ["globs", "patterns"])
def test_many_rules_compile_what_their_authors_wrote_once_however_many_events_come(kind):
    count = 2_000

    def written(number):
        if kind == "globs":
            return {"filters": {"host": [f"?{number}-*"]}}
        return {"predicates": [{"field": "a", "op": "matches", "value": f"^{number}-"}]}

    rule_set = compile_rules([a_rule(f"r{number}", **written(number)) for number in range(count)])
    patterns = rule_set._patterns
    assert patterns.compiled_total == 0
    for number in range(30):
        event = an_event(host=f"w{number}-1", payload={"a": f"{number}-1"})
        assert [match.rule_id for match in rule_set.match(event)] == [f"r{number}"]
    assert patterns.compiled_total == count
    # A set made from this one compiles what is new in it.
    again = rule_set.replace([a_rule("r7", **written(count)), a_rule("r8", **written(8))])
    assert again._patterns is patterns
    for number in (7, 8, 9, count):
        again.match(an_event(host=f"w{number}-2", payload={"a": f"{number}-2"}))
    assert patterns.compiled_total <= count + 2


def test_a_replaced_set_shares_what_did_not_change():
    rules = [a_rule(f"r{n}", filters={"host": [f"h{n}"], "severity": ["low"]}) for n in range(50)]
    before = compile_rules([*rules, {"rule_id": "other", "tenant_id": "t2"}])
    after = before.replace([a_rule("r7", filters={"host": ["new"], "severity": ["low"]})])
    old, new = before._tenants["t1"], after._tenants["t1"]
    assert after._tenants["t2"] is before._tenants["t2"]
    assert new._hosts["h8"] is old._hosts["h8"]
    assert [a is b for a, b in zip(new._entries, old._entries, strict=True)].count(False) == 1
    assert after.rules["t1", "r8"] is before.rules["t1", "r8"]
    assert [match.rule_id for match in before.match(an_event(host="h7"))] == ["r7"]
    assert [match.rule_id for match in after.match(an_event(host="new"))] == ["r7"]
    assert after.match(an_event(host="h7")) == []


def test_a_rule_that_was_read_is_not_read_again():
    rule = NotificationRule.from_dict(a_rule())
    assert compile_rules([rule]).rules["t1", "r"] is rule


def test_matches_stay_sorted_when_ids_come_in_any_order():
    rule_set = compile_rules([a_rule("m"), a_rule("c"), a_rule("x")])
    assert rule_set._tenants["t1"]._is_ordered
    kept = rule_set.replace([a_rule("m"), a_rule("z")])
    assert kept._tenants["t1"]._is_ordered
    mixed = kept.replace([a_rule("d")]).replace(removed=["c"]).replace([a_rule("y"), a_rule("a")])
    assert not mixed._tenants["t1"]._is_ordered
    assert [match.rule_id for match in mixed.match(an_event())] == ["a", "d", "m", "x", "y", "z"]


def test_two_threads_get_the_answers_of_one():
    rng = random.Random(3)
    rules = [random_rule(rng, f"r{number}")[0] for number in range(100)]
    events = [random_event(rng) for _ in range(40)]
    one = compile_rules(rules)
    alone = [one.match(event) for event in events]
    shared = compile_rules(rules)
    found = {}

    def work(name):
        found[name] = [shared.match(event) for event in events]
        shared.replace([a_rule(f"new-{name}")])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: alone, 1: alone}


@given(st.sets(st.integers(0, 5_000), max_size=60), st.sets(st.integers(0, 5_000), max_size=60))
def test_a_posting_is_the_set_of_its_positions(first, second):
    for size in (5_001, 100_000):
        table = changed({}, {"k": list(first)} if first else {}, {}, size)
        table = changed(table, {"k": list(second)} if second else {}, {}, size)
        assert set(positions(as_mask(table.get("k", 0)))) == first | second
        gone = {"k": list(first)} if first else {}
        table = changed(table, {}, gone, size)
        assert list(positions(as_mask(table.get("k", 0)))) == sorted(second - first, reverse=True)
        assert ("k" in table) is bool(second - first)


# What is asked of each pattern below, a backtracking engine does not finish for.
EVIL = [
    "^(a+)+$",
    "(a|aa)+$",
    "(.*)*b",
    "(?s).*a.*a.*a.*a.*a.*a.*b",
    "(a?){500}b",
    "[ab]*a[ab]{30}c",
]


@pytest.mark.parametrize("pattern", EVIL)
def test_no_pattern_takes_more_than_linear_time(pattern):
    assert not compile_pattern(pattern).search("a" * 20_000 + "!")


@pytest.mark.parametrize(
    "glob", ["*a" * 400 + "b", "*?a" * 300 + "[!a]", "*[a-z]?" * 100 + "!!", "a*" * 400 + "b"]
)
def test_no_glob_takes_more_than_linear_time(glob):
    assert not compile_glob(glob).matches_whole("a" * 20_000)


@given(
    st.text("ab*?[]!-", max_size=12).filter(lambda text: "[" not in text),
    st.text("ab]!-", max_size=12),
)
def test_a_glob_equals_one_read_character_by_character(glob, text):
    assert compile_glob(glob).matches_whole(text) is reads(glob, text)


def reads(glob, text):
    if not glob:
        return not text
    if glob[0] == "*":
        return reads(glob[1:], text) or (bool(text) and reads(glob, text[1:]))
    return bool(text) and glob[0] in ("?", text[0]) and reads(glob[1:], text[1:])


@pytest.mark.parametrize(
    ("glob", "text", "holds"),
    [
        ("[]a]", "]", True),
        ("[!]a]", "]", False),
        ("[!]a]", "b", True),
        ("[a-]", "-", True),
        ("[-a]", "-", True),
        ("[--0]", ".", True),
        ("[a-c-e]", "-", True),
        ("[a-c-e]", "d", False),
        ("[[]", "[", True),
        ("[^a]", "^", True),
        (r"[\]", "\\", True),
        ("[&&~~||]", "|", True),
        ("a.c", "abc", False),
        ("?", "\n", True),
        ("*", "", True),
    ],
)
def test_a_set_of_characters_is_what_it_says(glob, text, holds):
    assert compile_glob(glob).matches_whole(text) is holds


@pytest.mark.parametrize("sign", ["?", "*", "ü", "*ü?", "𝄞", "[é-ü]"])
def test_the_longest_globs_can_be_asked(sign):
    glob = (sign * 1_000)[: 1_000 // len(sign) * len(sign)]
    rule_set = compile_rules([a_rule(filters={"host": [glob]})])
    assert rule_set.errors == ()
    rule_set.match(an_event(host="ü" * 1_000))


def test_a_pattern_that_needs_too_much_memory_is_refused_by_its_field():
    predicate = {"field": "a", "op": "matches", "value": r"\pL{200}"}
    assert "262144 bytes" in faults(predicates=[predicate])["predicates[0].value"]


def test_the_patterns_of_a_rule_are_bounded_together():
    predicate = {"field": "a", "op": "matches", "value": "a" * 1_000}
    found = faults(predicates=[predicate] * 21)
    assert list(found) == ["predicates[20].value"]
    assert "20000 are the most" in found["predicates[20].value"]
    found = faults(filters={"host": [f"[a]{'b' * 900}{number}" for number in range(23)]})
    assert list(found) == ["filters.host[22]"]


def test_a_rule_asks_at_most_a_hundred_patterns():
    predicate = {"field": "a", "op": "matches", "value": "a"}
    assert compile_rules([a_rule(predicates=[predicate] * 100)]).errors == ()
    assert list(faults(predicates=[predicate] * 101)) == ["predicates[100].value"]


def test_a_pattern_sees_the_beginning_of_a_long_text():
    rule_set = compile_rules([a_rule(predicates=[{"field": "a", "op": "matches", "value": "b$"}])])
    assert rule_set.match(an_event(payload={"a": "a" * 4_095 + "b"}))
    assert rule_set.match(an_event(payload={"a": "a" * 4_095 + "b" + "c" * 65_536}))
    assert not rule_set.match(an_event(payload={"a": "a" * 4_096 + "b"}))


def test_the_steps_of_a_rules_patterns_are_bounded_together():
    costly = [
        {"field": "a", "op": "matches", "value": f"(?:((a?){{60}}b?){{9}}c|z{number})"}
        for number in range(12)
    ]
    assert compile_rules([a_rule(predicates=costly[:11])]).errors == ()
    found = faults(predicates=[{"any": costly}])
    assert list(found) == ["predicates[0].any[11].value"]
    assert "25000 are the most" in found["predicates[0].any[11].value"]


@pytest.mark.parametrize("between", ["*", "?"])
def test_the_globs_without_brackets_of_a_rule_are_bounded_together(between):
    globs = [f"*{number}{between}" + f"a{between}" * 490 for number in range(1_500)]
    found = faults(filters={"host": globs})
    assert next(iter(found)) == "filters.host[20]"
    assert "20000 are the most" in found["filters.host[20]"]
    # A rule's short globs are all kept compiled.
    short = [f"{number}{between}{between}" for number in range(1_001)]
    assert list(faults(filters={"host": short})) == ["filters.host[1000]"]


def test_hosts_and_globs_of_one_star_count_as_no_patterns():
    hosts = [f"{'h' * 900}{number}{'*' * (number % 2)}" for number in range(2_000)]
    assert compile_rules([a_rule(filters={"host": hosts})]).errors == ()


class Compared(int):
    """A number that counts how often it is compared."""

    times = 0

    def __eq__(self, other):
        Compared.times += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_contains_compares_the_first_items_of_a_long_list_once():
    Compared.times = 0
    asked = [{"field": "a", "op": "contains", "value": number} for number in range(1_000, 1_020)]
    rule_set = compile_rules([a_rule(predicates=[{"any": asked}])])
    items = [Compared(1)] * 100_000
    assert not rule_set.match(an_event(payload={"a": items}))
    assert 0 < Compared.times <= 20 * 4_096
    assert rule_set.match(an_event(payload={"a": [1] * 4_095 + [1_000]}))
    assert not rule_set.match(an_event(payload={"a": [1] * 4_096 + [1_000]}))


def test_contains_tells_a_flag_from_a_number():
    rule_set = compile_rules([a_rule(predicates=[{"field": "a", "op": "contains", "value": 1}])])
    assert not rule_set.match(an_event(payload={"a": [True]}))
    assert rule_set.match(an_event(payload={"a": [True, 1.0]}))


def test_the_values_of_a_rule_are_bounded_together():
    predicate = {"field": "a", "op": "in", "value": list(range(10_000))}
    found = faults(predicates=[predicate] * 6)
    assert list(found) == ["predicates[5].value"]


def test_the_faults_that_are_told_are_bounded():
    assert len(faults(filters={"severity": [str(number) for number in range(9_999)]})) == FAULTS_MAX
    assert len(faults(**{f"field{number}": 1 for number in range(5_000)})) == FAULTS_MAX
    assert len(faults(predicates=[7] * 5_000)) == FAULTS_MAX
    many = {f"field{number}": 1 for number in range(FAULTS_MAX - 1)}
    assert len(faults(**many, name=5, enabled=5)) == FAULTS_MAX


def test_half_a_surrogate_pair_is_no_whole_text_of_a_pattern():
    assert compile_pattern("a.").matches_whole("ab")
    assert not compile_pattern("a.").matches_whole("a\ud800")


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [deep(50_000), 10**10_000, -(10**10_000), {10**5_000: 1}, "x" * 10**6, [0] * 10**6],
    ids=shown,
)
def test_a_value_is_shown_in_a_line_however_large_it_is(value):
    assert len(shown(value)) <= 80


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": deep(50_000)}, "name"),
        ({"enabled": 10**10_000}, "enabled"),
        ({"filters": {"host": deep(50_000)}}, "filters.host[0]"),
        ({"predicates": [{"field": "a", "op": "gt", "value": 10**100}]}, "predicates[0].value"),
        ({"predicates": [{"lookup": "x", "deep": deep(33)}]}, "predicates[0]"),
        ({"predicates": [{"lookup": "x", "deep": deep(50_000)}]}, "predicates[0]"),
        ({"predicates": [{"lookup": "x", "long": "y" * 17_000}]}, "predicates[0]"),
        ({"predicates": [{"lookup": "x", "big": 10**5_000}]}, "predicates[0]"),
        ({"rate_limit": {"count": 10**9}}, "rate_limit.count"),
        ({"rate_limit": {"count": 1, "per_seconds": 1e-300}}, "rate_limit.per_seconds"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "created_at"),
        ({"filters": {"ip_address": ["1" * 10_000]}}, "filters.ip_address[0]"),
    ],
    ids=shown,
)
def test_what_is_too_large_is_refused_by_its_field(fields, path):
    assert list(faults(**fields)) == [path]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["filters", "predicates", "field", "op", "value", "not", "all", "any", "lookup",
                 "severity", "host", "ip_address", "event_type", "schedule", "mode"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*NotificationRule.__slots__[:16], "x"]), json_values))
def test_junk_is_a_rule_or_a_list_of_faults(mapping):
    rule_set = compile_rules([mapping])
    assert len(rule_set) + len(rule_set.errors) == 1
    for error in rule_set.errors:
        assert error.errors
    for rule in rule_set.rules.values():
        explain(rule, an_event(tenant_id=rule.tenant_id))
        rule_set.match(an_event(tenant_id=rule.tenant_id))


@pytest.mark.parametrize(
    "found", [10**400, -(10**400), float("nan"), float("inf"), deep(5_000)], ids=shown
)
@pytest.mark.parametrize("op", ["eq", "gt", "lte", "in", "contains", "exists", "cidr", "matches"])
def test_an_odd_payload_never_raises(op, found):
    value = {"in": [1.5, 2], "exists": True, "cidr": "::/0", "matches": "1"}.get(op, 1.5)
    rule = NotificationRule.from_dict(a_rule(predicates=[{"field": "a", "op": op, "value": value}]))
    event = an_event(payload={"a": found})
    assert bool(compile_rules([rule]).match(event)) is bool(explain(rule, event).matches)
