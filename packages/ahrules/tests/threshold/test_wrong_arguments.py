"""What a caller gives wrongly is refused whole: one error names it, and nothing has changed."""

from datetime import UTC, datetime
from math import inf, nan

import pytest

from ahrules.threshold import Evaluator, Series

WHEN = datetime(2026, 11, 30, tzinfo=UTC)
WRONG_TIMES = [WHEN, "5", None, nan, inf, -inf, 1 << 2000]


@pytest.fixture(name="firing")
def _firing(bench, rule):
    made = bench(rule(), rule(rule_id="w", agg="avg", agg_seconds=60))
    made.tick(0)
    made.point(10, 95)
    return made


@pytest.mark.parametrize("wrong", WRONG_TIMES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("method", ["set_rules", "forget", "host_seen", "tick", "open_alerts"])
def test_a_wrong_time_is_refused_before_anything_changes(firing, method, wrong):
    evaluator = firing.evaluator
    before, seen_at = evaluator.snapshot(), evaluator._registry.hosts["web-1"].seen_at
    given = {"set_rules": ([],), "forget": ("web-1",), "host_seen": ("web-1",)}.get(method, ())
    name = "ts" if method == "host_seen" else "now"
    with pytest.raises((TypeError, ValueError), match=rf"^{name} is .*; give Unix seconds"):
        list(getattr(evaluator, method)(*given, wrong) or ())
    assert evaluator.snapshot() == before
    assert evaluator._registry.hosts["web-1"].seen_at == seen_at
    assert firing.rules(at=20) == [("resolved", "rule_removed")] * 2


def test_a_datetime_is_told_how_to_become_seconds(firing):
    with pytest.raises(TypeError, match=r"^now is a datetime; .* such as when\.timestamp\(\)$"):
        firing.evaluator.set_rules([], now=WHEN)


@pytest.mark.parametrize("series", ["0", "1"])
@pytest.mark.parametrize("wrong", [WHEN, "5", None])
def test_a_point_with_a_wrong_time_is_refused(firing, wrong, series):
    before = firing.evaluator.snapshot()
    with pytest.raises(TypeError, match=r"^ts is .*; give Unix seconds"):
        firing.evaluator.observe("web-1", Series(name="cpu", labels={"core": series}), wrong, 1.0)
    assert firing.evaluator.snapshot() == before


@pytest.mark.parametrize("wrong", [nan, inf, 1 << 2000])
def test_a_point_whose_time_is_not_finite_is_counted_and_moves_nothing(firing, wrong):
    before = firing.evaluator.snapshot()
    assert firing.evaluator.observe("web-1", firing.series, wrong, 1.0) == []
    assert firing.evaluator.drops["not_finite"] == 1
    assert firing.evaluator.snapshot() == before


@pytest.mark.parametrize(
    ("argument", "wrong"), [("server", 5), ("series", {"name": "cpu"}), ("value", "95")]
)
def test_another_wrong_argument_of_a_point_is_refused(firing, begin, argument, wrong):
    given = {"server": "web-1", "series": firing.series, "ts": begin + 20, "value": 1.0}
    before = firing.evaluator.snapshot()
    with pytest.raises(TypeError, match=f"^{argument} is a {type(wrong).__name__}; give "):
        firing.evaluator.observe(**given | {argument: wrong})
    assert firing.evaluator.snapshot() == before


def test_a_rule_that_is_none_is_named_by_its_place(firing, rule, begin):
    before = firing.evaluator.snapshot()
    with pytest.raises(TypeError, match=r"^rules\[1\] is a dict; give a ThresholdRule"):
        firing.evaluator.set_rules([rule(rule_id="new"), {"rule_id": "r"}], begin)
    assert firing.evaluator.snapshot() == before


@pytest.mark.parametrize("wrong", ["text", None, {}])
@pytest.mark.parametrize("method", ["restore", "merge"])
def test_what_is_no_bytes_is_no_snapshot(firing, method, wrong):
    before = firing.evaluator.snapshot()
    with pytest.raises(TypeError, match=r"^data is .*; give the bytes that snapshot\(\) returned"):
        getattr(firing.evaluator, method)(wrong)
    assert firing.evaluator.snapshot() == before


@pytest.mark.parametrize("labels", [{"a": 1}, {"a": []}, {"a": None}, {1: "a"}])
def test_labels_that_are_no_text_are_refused(labels):
    with pytest.raises(TypeError, match=r"^labels has .*; give names and values as text"):
        Series(name="cpu", labels=labels)


def test_a_late_point_of_another_number_type_can_be_kept(firing, begin):
    from decimal import Decimal

    firing.evaluator.observe("web-1", firing.series, begin + 5, Decimal(7))
    Evaluator(company_id="acme").restore(firing.evaluator.snapshot())
