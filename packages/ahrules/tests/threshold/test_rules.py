"""Which series a rule meets, which rules are refused, and what a change does to open alerts."""

import json

import pytest

from ahrules.threshold import Series, read_threshold_rules
from ahwire.errors import DecodeError

OPENED = ("opened", "condition")


@pytest.mark.parametrize(
    ("matcher", "labels", "meets"),
    [
        (("disk", "eq", "sda"), {"disk": "sda"}, True),
        (("disk", "eq", "sda"), {"disk": "sdb"}, False),
        (("disk", "eq", ""), {}, True),
        (("disk", "eq", ""), {"disk": ""}, True),
        (("disk", "ne", "sda"), {}, True),
        (("disk", "ne", ""), {}, False),
        (("disk", "re", "sd"), {"disk": "sda"}, False),
        (("disk", "re", "sd."), {"disk": "sda"}, True),
        (("disk", "re", "a|b"), {"disk": "ab"}, False),
        (("disk", "re", "a.b"), {"disk": "a\nb"}, True),
        (("disk", "re", ""), {}, True),
        (("disk", "re", ".+"), {}, False),
        (("disk", "nre", "sd"), {"disk": "sda"}, True),
        (("disk", "nre", "sd.*"), {"disk": "sda"}, False),
        (("disk", "nre", ".*"), {}, False),
    ],
)
def test_matchers_are_anchored_and_an_absent_label_is_empty(bench, rule, matcher, labels, meets):
    label, op, value = matcher
    one = bench(rule(matchers=[{"label": label, "op": op, "value": value}]))
    found = one.point(0, 95, series=Series(name="cpu", labels=labels))
    assert found == ([OPENED] if meets else [])


def test_all_matchers_must_hold(bench, rule):
    matchers = [
        {"label": "a", "op": "eq", "value": "1"},
        {"label": "b", "op": "eq", "value": "2"},
    ]
    one = bench(rule(matchers=matchers))
    assert one.point(0, 95, series=Series(name="cpu", labels={"a": "1"})) == []
    assert one.point(0, 95, series=Series(name="cpu", labels={"a": "1", "b": "2"})) == [OPENED]


@pytest.mark.parametrize(
    ("servers", "server", "meets"),
    [
        (["web-1"], "web-1", True),
        (["web-1"], "web-10", False),
        (["db-1", "web-*"], "web-10", True),
        (["web-?"], "web-10", False),
        (["web-[12]"], "web-2", True),
        (None, "anything", True),
    ],
)
def test_servers_are_ids_or_globs(bench, rule, servers, server, meets):
    one = bench(rule(servers=servers))
    assert one.point(0, 95, server=server) == ([OPENED] if meets else [])


def test_the_steps_of_a_rules_patterns_are_bounded_together(bench, rule):
    costly = {"label": "a", "op": "re", "value": "((a?){60}b?){9}c"}
    one = bench(rule(matchers=[costly] * 11), rule(rule_id="r2", matchers=[costly] * 12))
    (error,) = one.evaluator.refused
    assert (error.rule_id, error.errors[0].path) == ("r2", "matchers[11].value")
    assert "25000 are the most" in error.errors[0].message


def test_a_company_s_evaluator_has_its_own_rules_and_those_of_all(bench, rule):
    one = bench(
        rule(company_id="acme"), rule(rule_id="r2"), rule(rule_id="r3", company_id="globex")
    )
    one.point(0, 95)
    assert [told.rule_id for told in one.told] == ["r", "r2"]
    assert {told.company_id for told in one.told} == {"acme"}


def test_a_rule_that_cannot_be_used_is_refused_by_field_and_the_others_work(bench, rule):
    bad = [
        rule(rule_id="pattern", matchers=[{"label": "a", "op": "re", "value": "(?=x)"}]),
        rule(
            rule_id="two",
            servers=["web-*", "[x"],
            matchers=[
                {"label": "a", "op": "eq", "value": "1"},
                {"label": "a", "op": "nre", "value": "("},
            ],
        ),
        rule(rule_id="side", op="gt", threshold=90, resolve_threshold=91),
        rule(rule_id="other side", op="lte", threshold=90, resolve_threshold=89),
        rule(rule_id="no side", op="eq", resolve_threshold=90),
        rule(rule_id="good", op="lt", threshold=96, resolve_threshold=97),
        rule(rule_id="good", version=7),
    ]
    one = bench(*bad)
    found = {
        error.rule_id: [fault.path for fault in error.errors] for error in one.evaluator.refused
    }
    assert found == {
        "pattern": ["matchers[0].value"],
        "two": ["servers[1]", "matchers[1].value"],
        "side": ["resolve_threshold"],
        "other side": ["resolve_threshold"],
        "no side": ["resolve_threshold"],
        "good": ["rule_id"],
    }
    text = " ".join(str(error) for error in one.evaluator.refused)
    assert "with gt it is at or below the threshold, 90.0" in text
    assert "with lte it is at or above" in text
    assert "no look-around" in text
    one.point(0, 95)
    assert [(told.rule_id, told.rule_version) for told in one.told] == [("good", 1)]
    one.rules(rule(), at=0)
    assert one.evaluator.refused == ()


@pytest.mark.parametrize("wrapped", [False, True])
def test_rules_are_read_one_by_one(wrapped):
    good = {"rule_id": "r", "version": 1, "metric": "cpu", "op": "gt", "threshold": 1}
    items = [
        good | {"severity": "info"},
        good | {"severity": "info", "rule_id": "r2", "company_id": "acme", "op": "roughly"},
        good,
        "rule",
        good | {"severity": "info", "matchers": [{"label": "", "op": "eq", "value": ""}]},
    ]
    document = {"rules": items}
    data = json.dumps({"data": document} if wrapped else document).encode()
    rules, faults = read_threshold_rules(data)
    assert [rule.rule_id for rule in rules] == ["r"]
    assert [(fault.tenant_id, fault.rule_id, fault.errors[0].path) for fault in faults] == [
        ("acme", "r2", "rules[1].op"),
        ("", "r", "rules[2].severity"),
        ("", "", "rules[3]"),
        ("", "r", "rules[4].matchers[0].label"),
    ]


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("threshold", ".threshold"),
        ("version", ".version"),
        ("for_seconds", ".for_seconds"),
        ("rule_id", ".rule_id"),
    ],
)
def test_a_number_of_more_digits_than_python_reads_spoils_its_own_rule(sign, name, path):
    good = {"version": 1, "metric": "cpu", "op": "gt", "threshold": 1, "severity": "info"}
    items = [{"rule_id": "a"} | good, {"rule_id": "bad"} | good | {name: "HUGE"}]
    items += [{"rule_id": "c", "not_known": "HUGE", "labels": {"n": "1" * 1_000}} | good]
    text = json.dumps({"rules": items}).replace('"HUGE"', sign + "9" * 5_000)
    rules, faults = read_threshold_rules(text.encode())
    assert [rule.rule_id for rule in rules] == ["a", "c"]
    assert [fault.errors[0].path for fault in faults] == [f"rules[1]{path}"]


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"{}", b'{"rules":1}', b'{"data":[]}', b"[" * 99_999]
)
def test_what_is_no_list_of_rules_is_refused_whole(data):
    with pytest.raises(DecodeError):
        read_threshold_rules(data)


def firing(bench, rule, **fields):
    one = bench(rule(no_data="keep", **fields))
    one.tick(0)
    one.points([95, 96])
    assert one.state == "FIRING"
    one.told.clear()
    return one


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"threshold": 95.5},
        {"threshold": 97, "resolve_threshold": 95},
        {"op": "ne"},
        {"for_seconds": 3_600},
        {"agg": "avg", "agg_seconds": 60, "threshold": 95.9},
        {"servers": ["web-*"], "labels": {"team": "ops"}},
    ],
)
def test_a_changed_rule_keeps_an_alert_whose_condition_holds(bench, rule, fields):
    one = firing(bench, rule)
    assert one.rules(rule(version=2, **fields), at=15) == []
    assert one.state == "FIRING"
    one.point(20, 3 if fields.get("op") != "ne" else 90)
    resolved = one.told[-1]
    assert (resolved.kind, resolved.rule_version) == ("resolved", 2)
    assert resolved.duration_seconds == 20


@pytest.mark.parametrize(
    "fields",
    [
        {"threshold": 96},
        {"op": "lt"},
        {"servers": ["db-*"]},
        {"metric": "mem"},
        {"matchers": [{"label": "core", "op": "ne", "value": "0"}]},
    ],
)
def test_a_changed_rule_resolves_an_alert_whose_condition_does_not_hold(bench, rule, fields):
    one = firing(bench, rule)
    assert one.rules(rule(version=2, **fields), at=15) == [("resolved", "rule_changed")]
    resolved = one.told[-1]
    assert (resolved.rule_version, resolved.value, resolved.peak_value is None) == (2, 96, False)
    assert one.state in ("OK", None)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([], "rule_removed"),
        ([{"rule_id": "other"}], "rule_removed"),
        ([{"enabled": False}], "rule_disabled"),
        ([{"version": 2, "op": "eq", "resolve_threshold": 1}], "rule_refused"),
        ([{"company_id": "globex"}], "rule_removed"),
    ],
)
def test_a_rule_that_is_gone_resolves_its_alerts_and_says_why(bench, rule, rules, reason):
    one = firing(bench, rule)
    assert one.rules(*(rule(**fields) for fields in rules), at=15) == [("resolved", reason)]
    assert one.state is None
    assert one.rules(rule(no_data="keep"), at=16) == []
    assert one.point(20, 95) == [OPENED]  # a new alert


def test_the_peak_is_what_was_farthest_by_the_version_that_saw_it(bench, rule):
    """Of `ne 1` 3 is farther than 0; of the `ne 3` that comes later it would be the other way."""
    one = bench(rule(op="ne", threshold=1))
    one.points([0, 3])
    assert one.rules(rule(op="ne", threshold=3, version=2), at=20) == [("resolved", "rule_changed")]
    assert one.told[-1].peak_value == 3


def test_the_same_rules_again_change_nothing(bench, rule):
    one = bench(rule(for_seconds=60), rule(rule_id="r2", agg="avg", agg_seconds=60))
    one.points([95] * 3)
    before = one.evaluator.snapshot()
    assert (
        one.rules(rule(for_seconds=60), rule(rule_id="r2", agg="avg", agg_seconds=60), at=30) == []
    )
    assert one.evaluator.snapshot() == before


def test_pending_stays_where_the_condition_holds_and_goes_where_not(bench, rule):
    one = bench(rule(for_seconds=60))
    one.points([95] * 3)
    one.rules(rule(for_seconds=30, version=2), at=25)
    assert one.point(30, 95) == [OPENED]
    other = bench(rule(for_seconds=60))
    other.points([95] * 3)
    other.rules(rule(for_seconds=60, threshold=99, version=2), at=25)
    assert other.state == "OK"


def test_a_kept_alert_stays_only_where_the_new_condition_holds(bench, rule):
    for threshold, told, state in ((90, [("resolved", "rule_changed")], "OK"), (50, [], "FIRING")):
        one = bench(rule(keep_firing_seconds=600))
        one.points([95, 60])
        assert one.state == "KEPT"
        assert (
            one.rules(rule(keep_firing_seconds=600, threshold=threshold, version=2), at=15) == told
        )
        assert one.state == state


def test_an_alert_of_silence_stays_while_the_rule_calls_silence_an_alert(bench, rule):
    for fields, told in (
        ({"no_data": "alert", "agg": "max", "agg_seconds": 60}, []),
        ({"no_data": "ok"}, [("resolved", "rule_changed")]),
        ({"no_data": "keep"}, [("resolved", "rule_changed")]),
    ):
        one = bench(rule(no_data="alert"))
        one.tick(0)
        one.point(0, 5)
        one.ticks(10, 300)
        assert one.state == "SILENT"
        assert one.rules(rule(version=2, **fields), at=310) == told
        assert one.point(320, 5) == ([] if told else [("resolved", "data_returned")])


def test_a_new_rule_watches_the_series_there_are(bench, rule):
    one = bench(rule())
    one.points([95, 95])
    one.rules(rule(), rule(rule_id="r2", agg="sum", agg_seconds=60), at=20)
    one.told.clear()
    assert one.point(20, 95) == [OPENED]
    assert (one.told[0].rule_id, one.told[0].value) == ("r2", 95)  # its window begins here
    assert one.rules(rule(metric="mem", rule_id="r3"), at=30) != []
    assert one.evaluator.series_count == 0


def test_another_aggregation_begins_with_the_last_point(bench, rule):
    one = bench(rule())
    one.points([50, 60])
    one.rules(rule(agg="sum", agg_seconds=60, version=2), at=15)
    assert one.point(20, 31) == [OPENED]
    assert one.told[0].value == 91
    one.rules(rule(agg="max", agg_seconds=60, version=3), at=25)  # 31, though 60 were greater
    assert one.told[-1].value == 31


def test_a_rule_that_came_after_the_last_point_may_change_before_the_next(bench, rule):
    one = bench(rule(for_seconds=60))
    one.point(0, 95)  # no last point any more once others came that no rule watched
    one.rules(rule(servers=["db-*"]), at=1)
    one.point(5, 95)
    one.rules(rule(), at=10)
    one.rules(rule(agg="sum", agg_seconds=60), at=20)
    assert one.state == "OK"
    assert one.point(30, 50) == []
    assert one.point(40, 50) == [OPENED]


def test_a_server_that_is_taken_away_resolves_its_alerts(bench, rule):
    one = bench(rule(), rule(rule_id="r2", threshold=99))
    one.points([95, 95])
    assert one.evaluator.forget("web-2", 0.0) == []
    (told,) = one.evaluator.forget("web-1", one.told[0].at + 60)
    assert (told.kind, told.reason, told.duration_seconds) == ("resolved", "forgotten", 60)
    assert one.evaluator.series_count == 0
    assert one.state is None


def test_open_alerts_can_be_told_again(bench, rule, begin):
    one = bench(rule(), rule(rule_id="r2", threshold=99))
    one.points([95, 96])
    (told,) = one.evaluator.open_alerts(begin + 600)
    assert (told.kind, told.reason, told.rule_id) == ("opened", "condition", "r")
    assert (told.started_at, told.value, told.duration_seconds) == (begin, 96, 600)
