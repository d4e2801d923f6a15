"""What points do to an alert: `for`, `keep_firing`, hysteresis, gaps, delays, and no data."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules.threshold import Evaluator, Series
from ahwire.hub import Aggregation, ThresholdOp

OPENED = ("opened", "condition")
RESOLVED = ("resolved", "condition")
MINUTE = 60


LOOK_BACK = 5  # minutes


def prometheus(happens, *, for_seconds=0, keep_firing_seconds=0, **_others):
    """What Prometheus tells by its documentation: one evaluation a minute, no stale markers.

    At an evaluation the newest point counts that is less than the look-back old. `for` and
    `keep_firing_for` count from evaluation to evaluation; an element that is not in the result is
    not active.
    """
    told, active_at, firing, over_at = {}, None, False, None
    for now in range(len(happens)):
        seen = [sign for sign in happens[max(0, now - LOOK_BACK + 1) : now + 1] if sign != "."]
        if seen and seen[-1] == "H":
            active_at, over_at = now if active_at is None else active_at, None
            if not firing and (now - active_at) * MINUTE >= for_seconds:
                firing, told[now] = True, "opened"
        elif firing:
            over_at = now if over_at is None else over_at
            if (now - over_at) * MINUTE >= keep_firing_seconds:
                firing, active_at, over_at, told[now] = False, None, None, "resolved"
        else:
            active_at = None
    return told


FIVE = {"for_seconds": 300}
KEEP = {"keep_firing_seconds": 180}
BOTH = {"for_seconds": 60, "keep_firing_seconds": 60}
# One point a minute: H holds, - does not, . is missing. In which minute what is told, and whether
# Prometheus tells the same. The page docs/explanation/alert-states.md says so in words.
TABLE = [
    # without `for`: with the first point that holds
    ("-HH", {}, {1: "opened"}, True),
    # `for`: with the first point at which it held for that long, not before
    ("HHHHHH", FIVE, {5: "opened"}, True),
    ("HHHHH-", FIVE, {}, True),
    # one point that does not hold begins anew
    ("HHH-HHHHHH", FIVE, {9: "opened"}, True),
    # missing points do not; but an alert opens with a point, not with the last one taken again
    ("H.HH.H", FIVE, {5: "opened"}, True),
    ("H.H.H.H", FIVE, {6: "opened"}, False),
    # a gap up to `no_data_after`, and a longer one
    ("H....H", FIVE, {5: "opened"}, True),
    ("H.....H....H", FIVE, {11: "opened"}, True),
    ("H.....H.....H", FIVE, {}, True),
    ("H.....H", FIVE | {"no_data": "keep"}, {6: "opened"}, False),
    ("H......H", FIVE | {"no_data_after_seconds": 3_600}, {7: "opened"}, False),
    # without `keep_firing`: over with the first point that does not hold
    ("H-", {}, {0: "opened", 1: "resolved"}, True),
    # `keep_firing` counts from the first point that does not hold
    ("H-----", KEEP, {0: "opened", 4: "resolved"}, True),
    ("H--H---", KEEP, {0: "opened"}, True),
    ("H--H----", KEEP, {0: "opened", 7: "resolved"}, True),
    # missing points neither end nor prolong it; and an alert ends with a point
    ("H-..-", KEEP, {0: "opened", 4: "resolved"}, True),
    ("H-...-", KEEP, {0: "opened", 5: "resolved"}, False),
    # missing points are not points that do not hold
    ("H.....H", {}, {0: "opened"}, False),
    # back within `keep_firing`: no second `for`; after it: `for` again
    ("HH-H", {"for_seconds": 60} | KEEP, {1: "opened"}, True),
    ("HH--HH", BOTH, {1: "opened", 3: "resolved", 5: "opened"}, True),
]


@pytest.mark.parametrize(("happens", "fields", "told", "as_prometheus"), TABLE)
def test_for_and_keep_firing_beside_prometheus(bench, rule, happens, fields, told, as_prometheus):
    one = bench(rule(**fields))
    found = {}
    for minute, sign in enumerate(happens):
        if sign != ".":
            for kind, _ in one.point(minute * MINUTE, 95 if sign == "H" else 5):
                found[minute] = kind
    assert found == told
    assert (prometheus(happens, **fields) == told) is as_prometheus


def test_an_alert_fires_exactly_at_for_and_not_a_moment_before(bench, rule):
    one = bench(rule(for_seconds=300))
    assert one.points([95, 95], every=299.75) == []
    assert one.point(300, 95) == [OPENED]
    told = one.told[0]
    assert (told.started_at, told.at, told.duration_seconds) == (one.told[0].at, told.at, 0)


@pytest.mark.parametrize("aggregation", ["last", "avg", "min", "max", "sum"])
@pytest.mark.parametrize("op", list(ThresholdOp))
@pytest.mark.parametrize("nothing", [math.nan, math.inf, -math.inf, None, 10**400])
def test_a1_what_is_no_number_fires_nothing_and_resolves_nothing(
    bench, rule, op, aggregation, nothing
):
    fields = {"op": op.value, "agg": aggregation, "agg_seconds": 1, "threshold": 90}
    fires = {"gt": 91, "gte": 90, "lt": 89, "lte": 90, "eq": 90, "ne": 1}[op]
    one = bench(rule(**fields))
    assert one.points([nothing] * 3) == []
    assert one.state is None  # not even held
    assert one.point(30, fires) == [OPENED]
    assert one.points([nothing] * 100, begin=40) == []
    assert one.state == "FIRING"
    assert one.evaluator.drops == {"not_finite": 103}
    # It neither counts as newer than a number that comes after it.
    assert one.point(35, fires) == []
    assert one.point(36, 90.5) == ([RESOLVED] if op not in ("gt", "gte", "ne") else [])


def test_a1_an_infinite_time_is_no_data(bench, rule):
    one = bench(rule())
    assert one.point(math.nan, 95) == one.point(math.inf, 95) == one.point(-math.inf, 95) == []
    assert one.point(0, 95) == [OPENED]


@pytest.mark.parametrize("agg", [Aggregation.SUM, Aggregation.AVG])
def test_a1_a_sum_that_no_double_holds_is_no_data(bench, rule, agg):
    one = bench(rule(agg=agg.value, agg_seconds=60, op="ne", threshold=0))
    assert one.points([1.7e308, 1.7e308]) == [OPENED]
    assert one.evaluator.drops == {"not_finite": 1}
    other = bench(rule(agg=agg.value, agg_seconds=60))
    other.points([5.0, -1.7e308, -1.7e308])
    assert other.evaluator.snapshot()  # no NaN was kept
    assert other.state == "OK"


@given(st.lists(st.booleans(), min_size=31, max_size=31))
def test_a2_a_breach_with_half_of_its_points_missing_fires(bench, rule, there):
    one = bench(rule(for_seconds=300))
    there[0] = there[-1] = True
    told = []
    for number, is_there in enumerate(there):
        if is_there:
            told += one.point(number * 10, 95)
    assert told == [OPENED]


@pytest.mark.parametrize("fields", [{}, {"for_seconds": 100}, {"agg": "avg", "agg_seconds": 60}])
@given(
    delays=st.lists(st.integers(0, 60), min_size=20, max_size=20),
    keep=st.sampled_from([0, 30]),
)
def test_a3_delays_of_a_constant_breach_cause_no_transition(bench, rule, fields, delays, keep):
    one = bench(rule(keep_firing_seconds=keep, reminder_seconds=None, **fields))
    sent = [(number * 10, 95.1) for number in range(20)]
    arrivals = sorted(
        (at + delay, at, value) for (at, value), delay in zip(sent, delays, strict=True)
    )
    told = []
    clock = 0
    for arrival, at, value in arrivals:
        while clock + 10 <= arrival:
            clock += 10
            one.seen(clock)
            told += one.tick(clock)
        told += one.point(at, value)
    assert told == [OPENED]


def test_a3_a_late_point_moves_no_state(bench, rule):
    one = bench(rule())
    one.points([95, 95])
    assert one.point(5, 1) == one.point(10, 1) == one.point(-500, 1) == []
    assert one.state == "FIRING"
    assert one.evaluator.drops == {"late": 3}
    assert one.point(20, 1) == [RESOLVED]
    assert one.point(15, 99) == []
    assert one.state == "OK"


def test_between_the_thresholds_an_alert_stays_and_none_begins(bench, rule):
    one = bench(rule(resolve_threshold=80))
    assert one.points([85, 91, 85, 81]) == [OPENED]
    assert one.point(40, 80) == [RESOLVED]  # with gt, 80 is not above 80
    assert one.points([85, 90], begin=50) == []


def test_once_below_the_lower_threshold_only_the_upper_one_brings_an_alert_back(bench, rule):
    one = bench(rule(resolve_threshold=80, keep_firing_seconds=30))
    one.points([95, 75])
    assert one.state == "KEPT"
    assert one.point(20, 85) == []
    assert one.state == "KEPT"
    assert one.point(30, 95) == []
    assert one.state == "FIRING"
    assert one.points([75, 85, 85, 85], begin=40) == [RESOLVED]


@pytest.mark.parametrize(
    ("op", "values", "peak"),
    [
        ("gt", [95, 99, 97], 99),
        ("gte", [90, 99, 97], 99),
        ("lt", [85, 2, 7], 2),
        ("lte", [90, 2, 7], 2),
        ("ne", [91, 60, 100], 60),
        ("eq", [90, 90, 90], 90),
    ],
)
def test_the_peak_is_the_farthest_since_the_condition_began(bench, rule, op, values, peak):
    one = bench(rule(op=op, for_seconds=10, labels={"team": "ops", "core": "all"}))
    one.points([90 if op == "ne" else 300 if op in ("lt", "lte", "eq") else 0, *values])
    one.point(70, 90 if op in ("gt", "lt", "ne") else 300 if op in ("lte", "eq") else 0)
    opened, resolved = one.told
    assert opened.peak_value == (values[1] if op != "eq" else 90)
    assert resolved.peak_value == peak
    assert (resolved.duration_seconds, resolved.at - 70) == (50, opened.at - 20)
    assert resolved.labels == {"core": "all", "team": "ops"}
    assert (resolved.rule_id, resolved.rule_version, resolved.company_id) == ("r", 1, "acme")
    assert (resolved.server_id, resolved.series_key) == ("web-1", 'cpu{core="0"}')
    assert (resolved.threshold, resolved.severity) == (90, "critical")
    with pytest.raises(AttributeError):
        resolved.value = 1


def test_a_transition_is_drafted_as_the_event_that_tells_it(bench, rule):
    one = bench(rule(labels={"team": "ops"}))
    one.points([95, 97, 5])
    opened, resolved = (
        told.draft().event(event_id="0190b6f2-0000-7000-8000-000000000001", seq=1)
        for told in one.told
    )
    assert (opened.type, resolved.type) == ("alert.opened", "alert.resolved")
    assert (opened.duration_seconds, resolved.duration_seconds) == (None, 20)
    assert (opened.value, opened.threshold, resolved.peak_value) == (95, 90, 97)
    assert (resolved.company_id, resolved.server_id) == ("acme", "web-1")
    assert (resolved.rule_id, resolved.rule_version, resolved.reason) == ("r", 1, "condition")
    assert (resolved.series_key, resolved.severity) == ('cpu{core="0"}', "critical")
    assert resolved.labels == {"core": "0", "team": "ops"}
    assert resolved.occurred_at.timestamp() == one.told[1].at
    one.point(1e300, 95)
    with pytest.raises(ValueError, match="is no time of the calendar"):
        one.told[-1].draft()


def test_an_average_is_over_the_window_by_the_points_own_time(bench, rule):
    one = bench(rule(agg="avg", agg_seconds=30))
    assert one.points([0, 0, 100, 100]) == []  # (0 + 100 + 100) / 3
    assert one.point(40, 100) == [OPENED]  # the window holds (10, 40]
    assert one.told[0].value == 100


def test_a_late_point_counts_in_the_windows_that_reach_back_to_it(bench, rule):
    one = bench(rule(agg="sum", agg_seconds=30))
    one.points([30, 30], every=20)
    assert one.point(10, 30) == one.point(10, 999) == one.point(-10, 999) == []
    assert one.point(25, 1) == [OPENED]
    assert one.told[0].value == 91


@given(value=st.floats(allow_nan=False, allow_infinity=False), count=st.integers(1, 60))
def test_the_average_of_equal_values_is_that_value(bench, rule, value, count):
    if abs(value) * count > 1e308:
        return
    one = bench(rule(agg="avg", agg_seconds=3600, op="ne", threshold=value))
    assert one.points([value] * count) == []


def test_a_window_has_a_bound_and_says_what_it_cut(rule, begin):
    from ahrules.threshold import EvaluatorBounds

    evaluator = Evaluator(company_id="acme", bounds=EvaluatorBounds(window_points_max=3))
    evaluator.set_rules([rule(agg="sum", agg_seconds=3600)], begin)
    cpu = Series(name="cpu")
    for at in range(5):
        assert evaluator.observe("web-1", cpu, begin + 2 * at, 30) == []
    assert evaluator.drops == {"window_points_max": 2}
    evaluator.observe("web-1", cpu, begin + 7, 0)
    assert len(evaluator.snapshot()) < 1_000
