"""The evaluator equals a slow one that keeps every point and computes everything anew.

The model shares no code with it: globs by fnmatch, patterns by re, windows cut from all points
there ever were, silence from all arrivals and from all times at which a server was away, reminders
from the set of those told.
"""

import json
import math
import re
from fnmatch import fnmatchcase

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ahrules.threshold import Evaluator, EvaluatorBounds, Series
from ahwire.hub import ThresholdRule

BLIND = 60
AFTER = 40
AHEAD = 60
SERVERS = ["web-1", "web-2", "db-1"]
LABELS = [{}, {"disk": "a"}, {"disk": "b"}]
METRICS = ["cpu", "mem"]
RULES = ["r1", "r2"]


class Watched:
    """One rule over one series."""

    def __init__(self, born):
        self.born = born
        self.started = None  # of the open alert
        self.silent = False
        self.held = []  # (ts, value) of the run in which the condition holds
        self.over = []  # ts since the condition of an open alert is over
        self.peaks = []
        self.reminded = set()
        self.opened_early = False  # before the first tick after a restart
        self.value = None
        self.window_from = -math.inf  # earlier points do not count in the window


class Model:
    def __init__(self):
        self.rules = {}
        # (server, name, labels) -> [(ts, value, whether it was the newest, the tick before)]
        self.points = {}
        self.seen = {}
        # Of each series, since its newest point: (start of the ticks then, how long away).
        self.away = {}
        self.watched = {}
        self.now = self.start = -math.inf
        self.told = []

    # -- the inputs

    def observe(self, server, name, labels, ts, value):
        if value is None or not math.isfinite(value):
            return
        if not any(rule.metric == name for rule in self.rules.values()):
            return
        key = (server, name, tuple(labels.items()))
        if key not in self.points:
            if not any(other[0] == server for other in self.points):
                self.seen[server] = self.now
            self.points[key] = []
            self.adopt(key)
        if not self.of(key):
            self.points[key] = []
            return
        all_of_it = self.points[key]
        before = self.newest(key)
        if any(old[0] == ts for old in all_of_it):
            return
        is_newer = ts > before
        all_of_it.append((ts, value, is_newer, self.now))
        if is_newer:
            self.away[key] = []
            for rule_id in self.of(key):
                self.judge(self.rules[rule_id], key, self.watched[rule_id, key], ts, before)

    def tick(self, now):
        if not self.now <= now <= self.now + BLIND:
            self.start = now
        if now < self.now:
            # The clock was set back: what it called later than this has happened by now.
            self.seen = {server: min(ts, now) for server, ts in self.seen.items()}
            for watch in self.watched.values():
                watch.born = min(watch.born, now)
            for key, arrived in self.points.items():
                self.points[key] = [(*point[:3], min(point[3], now)) for point in arrived]
        is_first = self.now == -math.inf
        self.now = now
        wrong = [key for key in self.points if self.newest(key) > now + AHEAD]
        for rule_id, key in list(self.watched):
            watch = self.watched[rule_id, key]
            if is_first and watch.opened_early and watch.started is not None:
                # Told just now, from a backlog: not once more as a reminder.
                watch.reminded = set(self.due(self.rules[rule_id], watch))
            watch.opened_early = False
            if key in wrong:
                self.turn_back(self.rules[rule_id], watch, self.newest(key))
        for key in wrong:
            _, value, _, tick = max(self.points[key])
            before = [point for point in self.points[key] if point[0] < now]
            self.points[key] = [*before, (now, value, True, tick)]
        for rule_id, key in list(self.watched):
            self.look(self.rules[rule_id], key, self.watched[rule_id, key])

    def host_seen(self, server, ts):
        if not any(key[0] == server for key in self.points):
            return
        since = max(self.seen.get(server, -math.inf), self.start)
        if ts <= self.seen.get(server, -math.inf):
            return
        self.seen[server] = ts
        for (rule_id, key), watch in self.watched.items():
            after = self.rules[rule_id].no_data_after_seconds or AFTER
            before = [gap for start, gap in self.away.get(key, []) if start == self.start]
            if key[0] == server and ts - since > after and not any(gap > after for gap in before):
                watch.born = max(watch.born, ts)
        for key in self.points:
            if key[0] == server:
                self.away.setdefault(key, []).append((self.start, ts - since))

    def turn_back(self, rule, watch, newest):
        """The clock of the points was wrong: how long anything held is not known."""
        watch.held, watch.over = [], []
        if watch.started is not None:
            watch.started = min(watch.started, self.now)
            watch.reminded &= set(self.due(rule, watch))
        if watch.window_from <= newest:
            # What had left the window does not come back.
            left = math.nextafter(newest - (rule.agg_seconds or 0), math.inf)
            watch.window_from = min(max(watch.window_from, left), self.now)
        else:
            watch.window_from = math.nextafter(self.now, math.inf)

    def restart(self):
        self.now = self.start = -math.inf
        self.seen, self.away = {}, {}
        for watch in self.watched.values():
            watch.born = -math.inf
            watch.opened_early = False
        for key, arrived in self.points.items():
            self.points[key] = [(*point[:3], -math.inf) for point in arrived]

    def set_rules(self, rules, now):
        before, self.rules = self.rules, {r.rule_id: r for r in rules if r.enabled}
        for (rule_id, key), watch in list(self.watched.items()):
            old, new = before[rule_id], self.rules.get(rule_id)
            if new == old:
                continue
            if new is not None and meets(new, key):
                self.change(old, new, key, watch, now)
                continue
            if watch.started is not None:
                disabled = any(r.rule_id == rule_id for r in rules)
                why = "rule_disabled" if disabled else "rule_removed"
                ending = attrs.evolve(old, version=new.version) if new else old
                reason = "rule_changed" if new else why
                self.tell("resolved", reason, ending, key, watch, now)
            del self.watched[rule_id, key]
        metrics = {rule.metric for rule in self.rules.values()}
        for key in list(self.points):
            if key[1] in metrics:
                self.adopt(key)
            else:
                self.leave(key)

    def forget(self, server, now):
        for key in [key for key in self.points if key[0] == server]:
            for rule_id in self.of(key):
                watch = self.watched.pop((rule_id, key))
                if watch.started is not None:
                    self.tell("resolved", "forgotten", self.rules[rule_id], key, watch, now)
            self.leave(key)

    # -- the rest

    def leave(self, key):
        del self.points[key]
        self.away.pop(key, None)
        if not any(other[0] == key[0] for other in self.points):
            self.seen.pop(key[0], None)

    def of(self, key):
        return [rule_id for rule_id, other in self.watched if other == key]

    def adopt(self, key):
        for rule in self.rules.values():
            if meets(rule, key) and (rule.rule_id, key) not in self.watched:
                self.watched[rule.rule_id, key] = Watched(self.now)
                self.watched[rule.rule_id, key].window_from = self.after(key)

    def after(self, key):
        """A window that begins now has none of the points that came before."""
        return math.nextafter(self.newest(key), math.inf)

    def newest(self, key):
        return max((ts for ts, *_ in self.points[key]), default=-math.inf)

    def what_it_says(self, rule, key, watch, ts):
        if rule.agg == "last":
            return next(value for at, value, *_ in self.points[key] if at == ts)
        least = max(ts - rule.agg_seconds, math.nextafter(watch.window_from, -math.inf))
        values = [value for at, value, *_ in self.points[key] if least < at <= ts]
        match rule.agg.value:
            case "avg":
                return math.fsum(values) / len(values)
            case "sum":
                return math.fsum(values)
            case "min":
                return min(values)
            case "max":
                return max(values)

    def judge(self, rule, key, watch, ts, before):
        value = watch.value = self.what_it_says(rule, key, watch, ts)
        if watch.silent:
            self.tell("resolved", "data_returned", rule, key, watch, ts)
            self.close(watch)
        if watch.started is not None:
            # Once it was over, only the threshold itself makes it hold again.
            bar = (
                rule.threshold
                if watch.over or rule.resolve_threshold is None
                else rule.resolve_threshold
            )
            if compare(rule.op, value, bar):
                watch.over = []
                watch.peaks.append(value)
            else:
                watch.over.append(ts)
                if ts - watch.over[0] >= rule.keep_firing_seconds:
                    self.tell("resolved", "condition", rule, key, watch, ts)
                    self.close(watch)
            return
        if not compare(rule.op, value, rule.threshold):
            watch.held = []
            return
        after = rule.no_data_after_seconds or AFTER
        if ts - before > after and rule.no_data != "keep":
            watch.held = []
        watch.held.append((ts, value))
        if ts - watch.held[0][0] >= rule.for_seconds:
            watch.started = ts
            watch.peaks = [value for _, value in watch.held]
            watch.held = []
            if self.now > -math.inf:
                watch.reminded = set(self.due(rule, watch))
            else:
                watch.opened_early = True
            self.tell("opened", "condition", rule, key, watch, ts)

    def close(self, watch):
        watch.started, watch.silent, watch.held, watch.over = None, False, [], []
        watch.reminded = set()

    def due(self, rule, watch):
        if rule.reminder_seconds is None:
            return []
        count = 0
        while watch.started + (count + 1) * rule.reminder_seconds <= self.now:
            count += 1
        return list(range(1, count + 1))

    def look(self, rule, key, watch):
        arrivals = [(ts, tick) for ts, _, is_newer, tick in self.points[key] if is_newer]
        quiet_from = max([self.start, watch.born, *(max(pair) for pair in arrivals)])
        after = rule.no_data_after_seconds or AFTER
        seen = self.seen.get(key[0], -math.inf)
        if self.now - quiet_from >= after and seen - quiet_from >= after:
            if rule.no_data == "ok":
                if watch.started is not None:
                    self.tell("resolved", "no_data", rule, key, watch, self.now)
                self.close(watch)
            elif rule.no_data == "alert" and watch.started is None:
                self.close(watch)
                watch.started, watch.silent, watch.value, watch.peaks = self.now, True, None, []
                self.tell("opened", "no_data", rule, key, watch, self.now)
        if watch.started is not None:
            due = self.due(rule, watch)
            if set(due) - watch.reminded:
                watch.reminded |= set(due)
                reason = "no_data" if watch.silent else "condition"
                self.tell("reminder", reason, rule, key, watch, self.now)

    def change(self, old, new, key, watch, now):
        if old.reminder_seconds != new.reminder_seconds and watch.started is not None:
            here, self.now = self.now, now
            watch.reminded = set(self.due(new, watch))
            self.now = here
        if (old.agg, old.agg_seconds) != (new.agg, new.agg_seconds):
            watch.window_from = self.newest(key)
            if self.points[key] and not watch.silent:
                watch.value = max(self.points[key])[1]
        if old.op == new.op and watch.peaks:
            # What was farthest stays so: with eq and ne another threshold might say otherwise.
            watch.peaks = [farthest(old, watch.peaks)]
        if old.op == new.op and watch.held:
            far = farthest(old, [value for _, value in watch.held])
            watch.held = [(ts, far) for ts, _ in watch.held]
        if old.op != new.op:
            watch.peaks = [watch.value] if watch.peaks and watch.value is not None else []
            watch.held = [(ts, watch.value) for ts, _ in watch.held]
        if watch.silent:
            holds = new.no_data == "alert"
        elif watch.value is None:
            holds = False
        else:
            firing = watch.started is not None and not watch.over
            bar = (
                new.threshold
                if not firing or new.resolve_threshold is None
                else new.resolve_threshold
            )
            holds = compare(new.op, watch.value, bar)
        if holds:
            watch.over = []
            return
        if watch.started is not None:
            self.tell("resolved", "rule_changed", new, key, watch, now)
        self.close(watch)

    def tell(self, kind, reason, rule, key, watch, at):
        at = max(at, watch.started)
        self.told.append(
            (
                kind,
                reason,
                rule.rule_id,
                rule.version,
                *key,
                watch.value,
                rule.threshold,
                watch.started,
                at,
                farthest(rule, watch.peaks) if watch.peaks else None,
            )
        )


def farthest(rule, values):
    by_distance = lambda found: max(found, key=lambda v: abs(v - rule.threshold))  # noqa: E731
    return {"gt": max, "gte": max, "lt": min, "lte": min}.get(rule.op.value, by_distance)(values)


def compare(op, value, bar):
    return {
        "gt": value > bar,
        "gte": value >= bar,
        "lt": value < bar,
        "lte": value <= bar,
        "eq": value == bar,
        "ne": value != bar,
    }[op.value]


def meets(rule, key):
    server, name, labels = key[0], key[1], dict(key[2])
    if rule.metric != name:
        return False
    if rule.servers and not any(fnmatchcase(server, one) for one in rule.servers):
        return False
    for matcher in rule.matchers:
        found = labels.get(matcher.label, "")
        if matcher.op in ("eq", "ne"):
            is_met = found == matcher.value
        else:
            is_met = re.fullmatch(matcher.value, found) is not None
        if is_met is (matcher.op in ("ne", "nre")):
            return False
    return True


# -- what happens

values = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0, 2.0, 3.0, math.nan, math.inf, -math.inf, None])
rules = st.fixed_dictionaries(
    {
        "version": st.integers(1, 3),
        "metric": st.sampled_from(["cpu", "cpu", "cpu", "mem"]),
        "op": st.sampled_from(["gt", "gt", "gte", "lt", "lte", "eq", "ne"]),
        "threshold": st.sampled_from([1, 2, 3]),
        "for_seconds": st.sampled_from([0, 0, 10, 30]),
        "keep_firing_seconds": st.sampled_from([0, 0, 15]),
        "no_data": st.sampled_from(["ok", "keep", "alert"]),
        "severity": st.just("warning"),
    },
    optional={
        "servers": st.sampled_from([["web-*"], ["web-1", "db-1"], ["db-[0-9]"]]),
        "matchers": st.sampled_from(
            [
                [{"label": "disk", "op": "eq", "value": "a"}],
                [{"label": "disk", "op": "ne", "value": "a"}],
                [{"label": "disk", "op": "re", "value": "a|b"}],
                [{"label": "disk", "op": "nre", "value": ""}],
            ]
        ),
        "agg": st.sampled_from(["avg", "min", "max", "sum"]),
        "reminder_seconds": st.sampled_from([15, 40]),
        "no_data_after_seconds": st.sampled_from([20, 50]),
        "enabled": st.sampled_from([True, True, True, False]),
        "hysteresis": st.just(1),
    },
)


def build(rule_id, given):
    fields = dict(given) | {"rule_id": rule_id}
    if fields.get("agg"):
        fields["agg_seconds"] = 25
    step = {"gt": -1, "gte": -1, "lt": 1, "lte": 1}.get(fields["op"])
    if fields.pop("hysteresis", None) and step:
        fields["resolve_threshold"] = fields["threshold"] + step
    return ThresholdRule.from_json(json.dumps(fields).encode())


@st.composite
def rule_lists(draw):
    ids = draw(st.sampled_from([RULES, RULES, ["r1"], ["r2"], []]))
    return [build(rule_id, draw(rules)) for rule_id in ids]


places = st.tuples(
    st.sampled_from(SERVERS[:1] * 6 + SERVERS), st.sampled_from(["cpu"] * 6 + METRICS)
)
labels = st.sampled_from(LABELS[:2] * 3 + LABELS)
points = st.tuples(st.just("point"), places, labels, st.integers(-2, 35), values)
passing = st.tuples(
    st.just("pass"),
    st.sampled_from([1, 5, 10, 10, 20, 30, 70, -15, -100]),
    st.sampled_from([1, 1, 1, 0]),
)
streams = st.tuples(st.just("stream"), places, labels, values, st.integers(2, 6))
silences = st.tuples(st.just("silence"), st.integers(2, 8), st.sampled_from([1, 1, 1, 0]))
rare = st.one_of(
    st.just(("restart",)),
    st.tuples(st.just("rules"), rule_lists()),
    st.tuples(st.just("forget"), st.sampled_from(SERVERS)),
)
# Drawn by number, for one_of would forget the weights of what is in it.
operations = st.integers(0, 19).flatmap(
    lambda n: (
        rare
        if n == 0
        else silences
        if n < 3
        else passing
        if n < 8
        else points
        if n < 14
        else streams
    )
)


def shown(transition):
    t = transition
    assert t.company_id == "acme"
    assert t.duration_seconds == t.at - t.started_at >= 0
    assert t.severity == "warning"
    name = t.series_key.partition("{")[0]
    key = (t.server_id, name, tuple(t.labels.items()))
    assert t.series_key == Series(name=name, labels=dict(t.labels)).key
    return (
        t.kind.value,
        t.reason.value,
        t.rule_id,
        t.rule_version,
        *key,
        t.value,
        t.threshold,
        t.started_at,
        t.at,
        t.peak_value,
    )


def order(told):
    """As told of each rule and series; between them there is no order."""
    return sorted(told, key=lambda one: (one[2], one[4], one[5], one[6]))


class Twin:
    """Both, given the same."""

    def __init__(self):
        self.options = {
            "company_id": "acme",
            "no_data_after_seconds": AFTER,
            "blind_seconds": BLIND,
            "idle_seconds": 10**9,
            "ahead_seconds": AHEAD,
            "bounds": EvaluatorBounds(series_max=100),
        }
        self.ours = Evaluator(**self.options)
        self.model = Model()
        self.clock = 1_000.0

    def step(self, operation):
        self.model.told = []
        told = getattr(self, f"do_{operation[0]}")(*operation[1:])
        assert order(shown(one) for one in told) == order(self.model.told)
        kept = self.ours.snapshot()
        copy = Evaluator(**self.options)
        copy.restore(kept)
        assert copy.snapshot() == kept
        opened = {(one.rule_id, one.server_id, one.series_key) for one in copy.open_alerts(0.0)}
        assert len(opened) == sum(w.started is not None for w in self.model.watched.values())

    def do_point(self, place, labels, delay, value):
        server, name = place
        ts = self.clock - delay
        self.model.observe(server, name, labels, ts, value)
        return self.ours.observe(server, Series(name=name, labels=labels), ts, value)

    def do_pass(self, seconds, seen):
        self.clock += seconds
        if seen:
            for server in SERVERS[:2]:
                self.model.host_seen(server, self.clock)
                self.ours.host_seen(server, self.clock)
        self.model.tick(self.clock)
        return self.ours.tick(self.clock)

    def do_stream(self, place, labels, value, count):
        for _ in range(count):
            self.step(("pass", 10, True))
            self.step(("point", place, labels, 0, value))
        return self.nothing()

    def do_silence(self, count, seen):
        for _ in range(count):
            self.step(("pass", 10, seen))
        return self.nothing()

    def nothing(self):
        self.model.told = []
        return []

    def do_restart(self):
        self.model.restart()
        kept = self.ours.snapshot()
        self.ours = Evaluator(**self.options)
        self.ours.restore(kept)
        return []

    def do_rules(self, found):
        self.model.set_rules(found, self.clock)
        return self.ours.set_rules(found, self.clock)

    def do_forget(self, server):
        self.model.forget(server, self.clock)
        return self.ours.forget(server, self.clock)


@given(rule_lists(), st.lists(operations, min_size=3, max_size=12))
def test_the_evaluator_is_the_model_at_every_step_and_after_every_restart(found, happening):
    """A1, A2, A3, A4, A8, A11 in all mixtures."""
    twin = Twin()
    twin.step(("rules", found))
    for operation in happening:
        twin.step(operation)


# 20,000 histories, in parts: a test that takes more than three minutes is taken for one that hangs.
@pytest.mark.nightly
@pytest.mark.parametrize("part", range(16))
@settings(max_examples=1_250)
@given(found=rule_lists(), happening=st.lists(operations, min_size=20, max_size=60))
def test_the_evaluator_is_the_model_over_long_histories(part, found, happening):
    """A1, A2, A3, A4, A8, A11 in all mixtures."""
    twin = Twin()
    twin.step(("rules", found))
    for operation in happening:
        twin.step(operation)
