"""State outlives a restart (A4), and what is no snapshot is refused whole."""

import json
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahrules.errors import SnapshotError
from ahrules.threshold import Evaluator, EvaluatorBounds, Series

OPENED = ("opened", "condition")
RESOLVED = ("resolved", "condition")
RULE = {"for_seconds": 30, "keep_firing_seconds": 30, "reminder_seconds": 3_600}
# In which state the restart meets the alert: the values before it, and those after.
LIVES = {
    "OK": ([5, 5], [95, 95, 95, 95]),
    "PENDING": ([5, 95, 95], [95, 95]),
    "FIRING": ([95] * 5, [95, 5, 5, 5, 5]),
    "KEPT": ([95, 95, 95, 95, 5, 5], [5, 5, 5]),
}


@pytest.mark.parametrize("agg", [{}, {"agg": "avg", "agg_seconds": 10}])
@pytest.mark.parametrize("state", list(LIVES))
def test_a4_a_restart_in_each_state_changes_nothing_that_is_told(bench, rule, state, agg):
    before, after = LIVES[state]
    told = []
    for restarts in (False, True):
        one = bench(rule(**RULE, **agg))
        one.tick(0)
        one.points(before)
        assert one.state == state
        if restarts:
            count = len(one.told)
            one.restart()
            assert one.state == state
            assert one.tick(len(before) * 10 - 5) == []
            assert len(one.told) == count
        one.points(after, begin=len(before) * 10)
        told.append(one.told)
    assert told[0] == told[1]
    assert told[0]


def test_a4_a_restart_of_an_alert_of_silence(bench, rule):
    one = bench(rule(no_data="alert"))
    one.tick(0)
    one.point(0, 5)
    one.ticks(10, 300)
    one.restart()
    assert one.state == "SILENT"
    assert one.ticks(310, 900) == []
    assert one.point(910, 5) == [("resolved", "data_returned")]
    assert one.told[-1].duration_seconds == 610


def test_a4_rules_after_a_restart_are_compared_with_those_before_it(bench, rule):
    one = bench(rule(no_data="keep"), rule(rule_id="r2"), rule(rule_id="r3"))
    one.points([95, 95])
    one.restart()
    same, changed = rule(no_data="keep"), rule(rule_id="r2", version=2, threshold=99)
    assert one.rules(same, changed, at=20) == [
        ("resolved", "rule_changed"),
        ("resolved", "rule_removed"),
    ]
    assert one.state == "FIRING"


def filled(bench, rule, count=25):
    one = bench(rule(agg="avg", agg_seconds=60), rule(rule_id="r2", op="lt", for_seconds=60))
    one.tick(0)
    for number in range(count):
        series = Series(name="cpu", labels={"core": str(number), "é": '"\n'})
        for at in range(3):
            one.point(at * 10, 80 + number, series=series, server=f"web-{number % 3}")
    return one


def test_parts_put_together_are_the_snapshot(bench, rule):
    one = filled(bench, rule)
    whole = one.evaluator.snapshot()
    for series_max in (1, 7, 25, 1_000):
        parts = list(one.evaluator.snapshot_chunks(series_max))
        assert b"".join(parts) == whole
        assert max(part.count(b"\n") for part in parts) <= series_max + 2
    with pytest.raises(ValueError, match="at least one series"):
        next(one.evaluator.snapshot_chunks(0))


@given(text=st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()))
@example("plain")
@example("ü \x7f\u2028 \U0001f525")
def test_a_rule_of_any_letters_is_the_same_behind_a_snapshot_of_ascii(rule, text):
    one, other = Evaluator(company_id="acme"), Evaluator(company_id="acme")
    one.set_rules([rule(threshold=1e22, labels={"note": text})], 0)
    data = one.snapshot()
    assert data.isascii()
    assert json.loads(data.splitlines()[0])["rules"][0]["labels"] == {"note": text}
    other.restore(data)
    assert other.snapshot() == data


def test_points_and_ticks_between_the_parts_leave_a_snapshot_that_can_be_read(bench, rule):
    one = filled(bench, rule)
    parts = []
    for number, part in enumerate(one.evaluator.snapshot_chunks(5)):
        parts.append(part)
        one.point(30 + number, 99, series=Series(name="cpu", labels={"new": str(number)}))
        one.evaluator.forget("web-2", 0.0)
        one.tick(30 + number)
    other = Evaluator(company_id="acme")
    other.restore(b"".join(parts))
    assert 0 < other.series_count <= 26


def test_rules_that_change_between_the_parts_end_the_snapshot(bench, rule):
    one = filled(bench, rule)
    parts = one.evaluator.snapshot_chunks(5)
    next(parts)
    one.rules(rule(), at=30)
    with pytest.raises(SnapshotError, match="rules were changed"):
        next(parts)


def test_a_series_that_told_something_is_kept_by_itself_and_put_over_an_older_snapshot(bench, rule):
    """The crash comes between two snapshots: what was told since is not told again."""
    one = filled(bench, rule)
    old = one.evaluator.snapshot()
    other_rule = rule(rule_id="r3", threshold=200)
    rules = [compiled.rule for compiled in one.evaluator._registry.book.rules.values()]
    one.rules(*rules, other_rule, at=30)
    assert one.point(40, 1_000, series=Series(name="cpu", labels={"core": "0"}), server="w") == [
        OPENED,
        OPENED,
    ]
    key = one.told[-1].series_key
    kept = one.evaluator.snapshot_series("w", key)
    assert one.evaluator.snapshot_series("w", "cpu") is None
    again = Evaluator(company_id="acme")
    again.restore(old)
    again.merge(kept)
    again.merge(kept)
    assert again.snapshot_series("w", key) == kept
    assert again.series_count == 26
    assert again.set_rules([*rules, other_rule], 0.0) == []
    # The rule that only the newer one knew watches the other series too.
    told = again.observe("web-1", Series(name="cpu", labels={"core": "1", "é": '"\n'}), 1e10, 1e6)
    assert [one.rule_id for one in told] == ["r", "r3"]


def test_a_merge_keeps_what_was_known_of_rules(bench, rule):
    one = bench(rule(), rule(rule_id="r2", enabled=False), rule(rule_id="r3", servers=["["]))
    one.point(0, 95)
    kept = one.evaluator.snapshot_series("web-1", one.series.key)
    one.rules(rule(threshold=50, version=2), rule(rule_id="r3", servers=["["]), at=5)
    one.evaluator.merge(kept)
    assert len(one.evaluator.refused) == 1
    assert one.point(10, 60) == []  # under the known version it goes on
    assert one.state == "FIRING"


def test_tenants_are_apart(bench, rule):
    one = bench(rule())
    one.point(0, 95)
    other = Evaluator(company_id="globex")
    for take in (other.restore, other.merge):
        with pytest.raises(
            SnapshotError, match="of company 'acme', and this evaluator is of 'globex'"
        ):
            take(one.evaluator.snapshot())
    assert (other.series_count, list(other.open_alerts(0.0))) == (0, [])


def sealed(lines):
    """Lines with a trailer that fits."""
    body = b"".join(line + b"\n" for line in lines)
    return body + json.dumps({"series": len(lines) - 1, "crc32": zlib.crc32(body)}).encode() + b"\n"


@pytest.fixture(scope="session", name="good")
def _good(bench, rule):
    return filled(bench, rule, count=2).evaluator.snapshot()


def refusal(data):
    evaluator = Evaluator(company_id="acme")
    with pytest.raises(SnapshotError) as caught:
        evaluator.restore(data)
    assert evaluator.snapshot() == Evaluator(company_id="acme").snapshot()
    return str(caught.value)


def test_a_snapshot_cut_at_any_byte_is_refused(good):
    for length in range(len(good)):
        refusal(good[:length])


@given(place=st.integers(0, 10_000), sign=st.integers(1, 255))
def test_a_snapshot_with_any_byte_changed_is_refused(good, place, sign):
    place %= len(good)
    refusal(good[:place] + bytes([good[place] ^ sign]) + good[place + 1 :])


@given(st.binary(max_size=200))
def test_junk_is_refused(data):
    refusal(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values, st.integers(0, 6))
def test_any_json_in_the_place_of_a_series_or_of_one_of_its_fields_is_refused_or_taken(
    good, value, place
):
    lines = good.split(b"\n")[:-2]
    fields = json.loads(lines[1])
    fields[place] = value
    for line in (json.dumps(value), json.dumps(fields)):
        evaluator = Evaluator(company_id="acme")
        try:
            evaluator.restore(sealed([lines[0], line.encode()]))
        except SnapshotError:
            continue
        evaluator.tick(2e9)  # what was taken works
        evaluator.observe("web-0", Series(name="cpu"), 2e9, 95.0)
        assert Evaluator(company_id="acme").restore(evaluator.snapshot()) is None


W = 6  # the watches in a line of a series


def changed(lines, change):
    fields = json.loads(lines[1])
    change(fields)
    return sealed([lines[0], json.dumps(fields).encode()])


def put(place, value):
    def change(fields):
        found = fields
        for step in place[:-1]:
            found = found[step]
        found[place[-1]] = value

    return change


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ([0], 7, "line 2, server, is 7, no string"),
        ([1], None, "line 2, name, is None, no string"),
        ([2], ["a"], "line 2, labels, are no names and as many values"),
        ([2], ["a", "1", "a", "2"], "line 2, labels, have a name twice"),
        ([3], float("nan"), "line 2, last_ts, is nan, which is not finite"),
        ([4], None, "line 2, last_value, is None, no number"),
        ([4], 10**400, "line 2, last_value, is an integer that no double holds"),
        ([5], 0, "line 2, is_short, is 0, neither true nor false"),
        ([W], {}, "line 2, watches, is no array"),
        ([W, 0], [], "line 2, watches[0], is no array of 8"),
        ([W, 1, 0], "r9", "line 2, watches[1].rule_id, is 'r9', which is no rule of the header"),
        ([W, 1, 1], 9, "line 2, watches[1].state, is 9; states are 0 to 4"),
        ([W, 1, 1], True, "line 2, watches[1].state, is True"),
        ([W, 1, 3], "now", "line 2, watches[1].started_at, is 'now', no number"),
        ([W, 1, 4], -1, "line 2, watches[1].reminders, is -1, no count"),
        ([W, 1, 4], 10**400, "line 2, watches[1].reminders, is <a number of 1329 bits>, no count"),
        ([0], "web-\ud800", "line 2, server, holds half a surrogate pair in 'web-\\ud800'"),
        ([1], "\ud800", "line 2, name, holds half a surrogate pair"),
        ([2], ["a", "\udfff"], "line 2, labels, holds half a surrogate pair"),
        ([1], "mem", "line 2, watches[0], is of the rule 'r', which is on 'cpu'"),
        ([W, 1, 0], "r", "line 2, watches[1], is of the rule 'r', which watches it already"),
        ([3], None, "line 2, watches[0], has a point that is newer than the newest"),
        ([W, 0, 7], [2e9, 1.0], "line 2, watches[0], has a point that is newer than the newest"),
        ([W, 1, 6], "x", "line 2, watches[1].peak, is 'x', no number"),
        ([W, 0, 7], [1.0], "line 2, watches[0].points, is no array of times"),
        ([W, 0, 7], [2.0, 1.0, 5.0, 5.0], "line 2, watches[0].points, has times that do not rise"),
        ([W, 0, 7], [2.0, "x"], "line 2, watches[0].points, is 'x', no number"),
    ],
)
def test_a_line_that_is_wrong_is_named(good, place, value, says):
    lines = good.split(b"\n")[:-2]
    text = refusal(changed(lines, put(place, value)))
    assert says in text
    assert text.endswith("start from an older one")


def test_an_open_alert_has_a_value(good):
    lines = good.split(b"\n")[:-2]

    def change(fields):
        fields[W][0][1], fields[W][0][5] = 2, None

    assert "watches[0].value, is null although the condition held" in refusal(
        changed(lines, change)
    )


def test_whole_numbers_are_numbers(good):
    lines = good.split(b"\n")[:-2]
    data = changed(lines, put([W, 0, 7], [1, 2, 5, 5]))
    evaluator = Evaluator(company_id="acme")
    evaluator.restore(data)
    assert evaluator.series_count == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"format": "x"}, "the header names the format 'x'"),
        ({"version": 2}, "has version 2, and this release reads 1; read it with the release"),
        ({"company_id": None}, "the header has no company_id"),
        ({"rules": None}, "the header has no rules"),
        ({"rules": [{}]}, "rules[0] of the header cannot be read (rule_id"),
    ],
)
def test_a_header_that_is_wrong_is_named(good, fields, says):
    lines = good.split(b"\n")[:-2]
    header = json.loads(lines[0]) | fields
    assert says in refusal(sealed([json.dumps(header).encode()]))


def test_a_condition_that_held_without_a_point_is_refused(good):
    lines = good.split(b"\n")[:-2]

    def change(fields):
        fields[3] = None
        fields[W] = [[*fields[W][0][:1], 2, 0.0, 0.0, 0, 1.0, 1.0, None]]

    assert "watches[0], has a condition that held" in refusal(changed(lines, change))


def test_a_watch_over_a_series_that_its_rule_leaves_alone_is_refused(bench, rule):
    one = bench(rule(servers=["web-*"]))
    one.point(0, 95)
    lines = one.evaluator.snapshot().split(b"\n")[:-2]
    text = refusal(changed(lines, put([0], "db-1")))
    assert "the rule 'r' watches the series 'cpu{core=\"0\"}' of 'db-1', which it does not" in text


def test_a_header_that_has_a_rule_twice_or_nests_without_end_is_refused(good):
    lines = good.split(b"\n")[:-2]
    header = json.loads(lines[0])
    header["rules"].append(header["rules"][0])
    assert "the header has a rule twice" in refusal(sealed([json.dumps(header).encode()]))
    for depth in (500, 900, 970, 990, 100_000):
        deep = b'{"format":"ahrules.threshold","version":1,"company_id":"acme","rules":['
        refusal(sealed([deep + b"[" * depth + b"]" * depth + b"]}"]))


def test_a_series_whose_name_no_snapshot_could_hold_is_not_taken_and_counted(bench, rule):
    one = bench(rule())
    assert one.point(0, 95, server="web-\ud800") == []
    assert one.point(0, 95, series=Series(name="cpu", labels={"core": "\udfff"})) == []
    assert one.evaluator.drops == {"not_utf8": 2}
    one.restart()


def test_times_that_no_calendar_has_make_reminders_late_and_nothing_raise(bench, rule):
    one = bench(rule(reminder_seconds=1, no_data="keep"))
    one.evaluator.tick(-1.7e308)
    one.evaluator.observe("web-1", one.series, -1.7e308, 95.0)
    assert [told.kind.value for told in one.evaluator.tick(1.7e308)] == ["reminder"]
    one.restart()


def test_what_does_not_fit_together_is_named(good):
    lines = good.split(b"\n")[:-2]
    assert "it has a series twice" in refusal(sealed([lines[0], lines[1], lines[1]]))
    assert "line 2 is no JSON" in refusal(sealed([lines[0], b"["]))
    assert "line 2 is no array of 7" in refusal(sealed([lines[0], b"[]"]))
    assert "the header is no object" in refusal(sealed([b"[]"]))
    assert "the header is no JSON" in refusal(sealed([b"\xff"]))
    body = lines[0] + b"\n"
    trailer = json.dumps({"series": 1, "crc32": zlib.crc32(body)}).encode()
    assert "it has 0 series, not 1" in refusal(body + trailer + b"\n")
    header = json.loads(lines[0])
    header["rules"][0]["servers"] = ["["]
    assert "rules that cannot be used here (r)" in refusal(sealed([json.dumps(header).encode()]))


def test_a_bound_that_is_lower_than_before_keeps_what_was_open(bench, rule):
    one = filled(bench, rule)
    small = EvaluatorBounds(series_max=5, rule_series_max=5, window_points_max=2)
    other = Evaluator(company_id="acme", bounds=small)
    other.restore(one.evaluator.snapshot())
    assert other.series_count == 25
    assert other.observe("web-1", Series(name="cpu"), 1e10, 5.0) == []
    assert other.drops["series_max"] == 1


def test_a4_a_series_from_a_newer_snapshot_is_watched_by_the_rules_known_here(bench, rule):
    one = bench(rule(), rule(rule_id="r2", threshold=50))
    one.tick(0)
    one.point(0, 5)
    full = one.evaluator.snapshot()
    one.rules(rule(), at=1)
    one.point(2, 6)
    newer = one.evaluator.snapshot_series("web-1", one.series.key)
    again = bench()
    again.evaluator.restore(full)
    again.evaluator.merge(newer)
    assert again.rules(rule(), rule(rule_id="r2", threshold=50), at=10) == []
    again.tick(10)
    assert again.point(20, 95) == [OPENED, OPENED]
