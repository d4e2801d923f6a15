"""What each operator says to each kind of value."""

from datetime import UTC, datetime

import pytest

from ahrules import Lookup, NotificationRule, compile_rules
from ahrules._evaluate import compile_predicate
from ahrules._patterns import PatternCache
from ahwire import IncidentEvent
from ahwire.notification import Severity

MISSING = object()


def event(**fields):
    values = {
        "event_id": "e-1",
        "tenant_id": "t",
        "occurred_at": datetime(2026, 6, 15, 10, tzinfo=UTC),
        "severity": Severity.HIGH,
        "event_type": "suspicious_login",
    }
    return IncidentEvent(**values | fields)


def matches(predicates, payload):
    rule = NotificationRule.from_dict({"rule_id": "r", "tenant_id": "t", "predicates": predicates})
    return compile_rules([rule]).match(event(payload=payload))


def holds(op, value, found):
    payload = {} if found is MISSING else {"f": found}
    return bool(matches([{"field": "f", "op": op, "value": value}], payload))


@pytest.mark.parametrize(
    ("op", "value", "found", "answer"),
    [
        ("eq", "RU", "RU", True),
        ("eq", "RU", "ru", False),
        ("eq", 7, 7, True),
        ("eq", 7, 7.0, True),
        ("eq", 1, True, False),
        ("eq", True, 1, False),
        ("eq", True, True, True),
        ("eq", "7", 7, False),
        ("eq", "", "", True),
        ("ne", "RU", "DE", True),
        ("ne", "RU", "RU", False),
        ("ne", "RU", 7, False),
        ("ne", 1, True, False),
        ("in", ["RU", "BY"], "BY", True),
        ("in", ["RU", "BY"], "DE", False),
        ("in", [1, "x"], True, False),
        ("in", [1, "x"], 1.0, True),
        ("in", ["RU"], ["RU"], False),
        ("not_in", ["RU"], "DE", True),
        ("not_in", ["RU"], "RU", False),
        ("not_in", ["RU"], 7, False),
        ("not_in", ["RU", 8], 7, True),
        ("gt", 5, 6, True),
        ("gt", 5, 5, False),
        ("gt", 5, "6", False),
        ("gte", 5, 5, True),
        ("lt", 5.5, 5, True),
        ("lt", 5, 5, False),
        ("lte", 5, 5, True),
        ("lt", 5, True, False),
        ("gt", "2026-01-01", "2026-06-15", True),
        ("gt", 2**53, 2**53 + 1, True),
        ("contains", "adm", "root, admin", True),
        ("contains", "adm", "root", False),
        ("contains", "adm", ["adm", "x"], True),
        ("contains", "adm", ["admin"], False),
        ("contains", 1, [True, 2], False),
        ("contains", 1, "1", False),
        ("contains", "a", {"a": 1}, False),
        ("starts_with", "adm", "admin", True),
        ("starts_with", "adm", "badmin", False),
        ("starts_with", "adm", ["adm"], False),
        ("matches", "^adm.n$", "admin", True),
        ("matches", "dmi", "admin", True),
        ("matches", "^dmi", "admin", False),
        ("matches", "1", 1, False),
        ("matches", "(?i)ADMIN", "admin", True),
        ("matches", "ü", "grün", True),
        ("exists", True, None, True),
        ("exists", True, 0, True),
        ("exists", False, None, False),
        ("cidr", "10.0.0.0/8", "10.1.2.3", True),
        ("cidr", "10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("cidr", "::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("cidr", "10.0.0.0/8", "11.1.2.3", False),
        ("cidr", ["11.0.0.0/8", "2001:db8::/32"], "2001:db8::1", True),
        ("cidr", "::/0", "10.1.2.3", False),
        ("cidr", "10.0.0.0/8", "010.1.2.3", False),
        ("cidr", "10.0.0.0/8", "10.1.2.3 ", False),
        ("cidr", "0.0.0.0/0", True, False),
        ("cidr", "fe80::/10", "fe80::1%eth0", True),
    ],
)
def test_an_operator_s_answer(op, value, found, answer):
    assert holds(op, value, found) is answer


VALUES = {
    "eq": 1,
    "ne": 1,
    "in": [1, "a", True],
    "not_in": [1, "a", True],
    "gt": 1,
    "gte": "a",
    "lt": 1,
    "lte": "a",
    "contains": "a",
    "starts_with": "a",
    "matches": "a",
    "cidr": "::/0",
}


@pytest.mark.parametrize("op", VALUES)
def test_a_missing_field_answers_no(op):
    assert not holds(op, VALUES[op], MISSING)


def test_only_exists_false_says_yes_to_a_missing_field():
    assert holds("exists", False, MISSING)
    assert not holds("exists", True, MISSING)


@pytest.mark.parametrize("op", VALUES)
@pytest.mark.parametrize("found", [None, {}, {"a": 1}, [[]], [{}]])
def test_a_value_of_another_type_answers_no_and_never_raises(op, found):
    assert not holds(op, VALUES[op], found)


def test_a_dotted_path_goes_through_objects_only():
    condition = [{"field": "login.geo", "op": "eq", "value": "RU"}]
    assert matches(condition, {"login": {"geo": "RU"}})
    assert not matches(condition, {"login": [{"geo": "RU"}]})
    assert not matches(condition, {"login": "geo"})
    assert not matches(condition, {"login.geo": "RU"})
    assert not matches(condition, {})


A, B = ({"field": name, "op": "eq", "value": True} for name in "ab")


@pytest.mark.parametrize("a", [True, False])
@pytest.mark.parametrize("b", [True, False])
def test_groups_are_what_their_names_say(a, b):
    payload = {"a": a, "b": b}
    assert bool(matches([A, B], payload)) is (a and b)
    assert bool(matches([{"all": [A, B]}], payload)) is (a and b)
    assert bool(matches([{"any": [A, B]}], payload)) is (a or b)
    assert bool(matches([{"not": A}], payload)) is (not a)
    assert bool(matches([{"not": {"any": [A, {"not": B}]}}], payload)) is (not a and b)


def test_a_pattern_takes_linear_time():
    evil = "a" * 4_000 + "!"
    assert not holds("matches", "^(a+)+$", evil)
    assert not holds("matches", "(a|aa)+$", evil)


X, Y = {"lookup": "x", "id": 1}, {"lookup": "y"}
LOOK_X, LOOK_Y = Lookup(name="x", arguments={"id": 1}), Lookup(name="y")
NO = {"field": "gone", "op": "exists", "value": True}
YES = {"not": NO}


@pytest.mark.parametrize(
    ("predicates", "lookups"),
    [
        ([X], [LOOK_X]),
        ([X, Y], [LOOK_X, LOOK_Y]),
        ([X, X], [LOOK_X]),
        ([YES, {"all": [Y, YES]}], [LOOK_Y]),
        ([{"any": [NO, X]}], [LOOK_X]),
        ([{"any": [YES, X]}], []),
        ([{"not": X}], [LOOK_X]),
        ([{"any": [{"all": [NO, X]}, Y]}], [LOOK_Y]),
    ],
)
def test_a_match_says_which_lookups_are_to_be_asked(predicates, lookups):
    (match,) = matches(predicates, {})
    assert list(match.lookups) == lookups


@pytest.mark.parametrize("predicates", [[X, NO], [{"all": [X, NO]}], [{"not": {"any": [X, YES]}}]])
def test_what_no_lookup_can_save_is_no_match(predicates):
    assert matches(predicates, {}) == []


def test_the_first_false_decides_lookups_that_stand_side_by_side():
    (match,) = matches([X, Y], {})
    assert match.decide({}) is None
    assert match.decide({LOOK_X: True}) is None
    assert match.decide({LOOK_Y: False}) is False
    assert match.decide({LOOK_X: True, LOOK_Y: True}) is True


def test_an_answer_is_read_through_not_and_any():
    (match,) = matches([{"not": X}, {"any": [X, Y]}], {})
    assert match.decide({LOOK_X: True}) is False
    assert match.decide({LOOK_X: False}) is None
    assert match.decide({LOOK_X: False, LOOK_Y: True}) is True


def test_a_match_without_lookups_holds():
    (match,) = matches([YES], {})
    assert match.lookups == ()
    assert match.decide({}) is True


def test_lookups_are_the_same_question_whatever_order_it_is_written_in():
    left = Lookup(name="x", arguments={"a": 1, "b": [2]})
    right = Lookup(name="x", arguments={"b": [2], "a": 1})
    assert left == right
    assert hash(left) == hash(right)
    assert left != Lookup(name="x", arguments={"a": 1})


def test_a_condition_hangs_on_no_lookup():
    condition = NotificationRule.from_dict(
        {"rule_id": "r", "tenant_id": "t", "predicates": [NO]}
    ).predicates[0]
    assert list(compile_predicate(condition, PatternCache()).open_lookups({}, {})) == []
