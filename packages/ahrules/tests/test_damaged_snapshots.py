"""A snapshot whose content is absurd is refused as one, or taken and then works."""

import copy
import json
import zlib
from datetime import timedelta

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import (
    GROUP_DOWN_DEFAULTS,
    Evaluator,
    FlapDetector,
    GroupDownState,
    Series,
    SnapshotError,
    SuppressionTracker,
    compile_silences,
    observe_agents,
)
from ahwire.hub import Event, Silence, ThresholdRule

AT = "2026-06-15T12:{:02}:00Z"


def event(kind, minute=0, number=1, **fields):
    given = {
        "event_id": f"0190b6f2-0000-7000-8000-{number:012}",
        "type": kind,
        "company_id": "c1",
        "occurred_at": AT.format(minute),
        "seq": number,
        "suppressed": False,
    }
    return Event.from_json(json.dumps(given | fields).encode())


ALERT = {
    "server_id": "web1",
    "rule_id": "cpu",
    "rule_version": 1,
    "series_key": "cpu",
    "severity": "warning",
}
OPENED = event("alert.opened", **ALERT)
LATER = OPENED.occurred_at + timedelta(hours=1)


def flapping():
    detector = FlapDetector()
    kinds = ["alert.opened", "alert.resolved"] * 2
    for minute, kind in enumerate(kinds):
        detector.observe(event(kind, minute, minute + 1, **ALERT))
    detector.observe(event("alert.opened", **ALERT | {"server_id": "web2"}))
    return detector.snapshot()


def use_flapping(data):
    detector = FlapDetector()
    before = detector.snapshot()
    try:
        detector.restore(data)
    except SnapshotError:
        assert detector.snapshot() == before
        raise
    drafts = [*detector.observe(OPENED).drafts, *detector.tick(LATER)]
    detector.next_look()
    FlapDetector().restore(json.loads(json.dumps(detector.snapshot())))
    return drafts


SILENCES = compile_silences(
    [
        Silence.from_json(
            json.dumps(
                {
                    "silence_id": "s",
                    "company_id": "c1",
                    "all": True,
                    "matchers": [],
                    "starts_at": AT.format(0),
                    "ends_at": AT.format(30),
                }
            ).encode()
        )
    ]
)


def held():
    tracker = SuppressionTracker(SILENCES)
    for number, server in enumerate(("web1", "web2"), 1):
        tracker.mark(
            event("alert.opened", 1, number, **ALERT | {"server_id": server}), OPENED.occurred_at
        )
    return tracker.snapshot()  # fmt: skip


def use_held(data):
    tracker = SuppressionTracker(SILENCES)
    before = tracker.snapshot()
    try:
        tracker.restore(data)
    except SnapshotError:
        assert tracker.snapshot() == before
        raise
    tracker.mark(OPENED, OPENED.occurred_at)
    tracker.next_look(OPENED.occurred_at)
    drafts = tracker.due(LATER)
    SuppressionTracker().restore(json.loads(json.dumps(tracker.snapshot())))
    return drafts


def downs(first, count):
    return [
        event("agent.down", 0, number, server_id=f"a{number}", agent_id=f"a{number}")
        for number in range(first, first + count)
    ]


def group(count=5):
    return observe_agents(
        GroupDownState(company_id="c1"),
        downs(1, count),
        settings=GROUP_DOWN_DEFAULTS,
        company_agents=5,
        now=OPENED.occurred_at,
    ).state.snapshot()


def use_group(data):
    state = GroupDownState.restore(data)
    step = observe_agents(
        attrs.evolve(state, company_id="c1"),
        downs(9, 5),
        settings=GROUP_DOWN_DEFAULTS,
        company_agents=5,
        now=LATER,
    )
    GroupDownState.restore(json.loads(json.dumps(step.state.snapshot())))
    return step.drafts


RULES = [
    {"rule_id": "r", "metric": "cpu", "agg": "avg", "agg_seconds": 60, "servers": ["web-*"]},
    {"rule_id": "s", "metric": "cpu", "for_seconds": 30, "reminder_seconds": 60},
]
BEGIN = 1_796_000_000.0


def evaluated():
    evaluator = Evaluator(company_id="acme")
    common = {"version": 1, "op": "gt", "threshold": 90, "severity": "warning"}
    evaluator.set_rules(
        [ThresholdRule.from_json(json.dumps(common | rule).encode()) for rule in RULES], BEGIN
    )
    for server in ("web-1", "web-2"):
        for at in range(0, 50, 10):
            evaluator.observe(server, Series(name="cpu", labels={"core": "0"}), BEGIN + at, 95.0)
    return [json.loads(line) for line in evaluator.snapshot().split(b"\n")[:-2]]


def use_evaluated(lines):
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    trailer = {"series": len(lines) - 1, "crc32": zlib.crc32(body)}
    data = body + json.dumps(trailer).encode() + b"\n"
    evaluator = Evaluator(company_id="acme")
    before = evaluator.snapshot()
    try:
        evaluator.restore(data)
    except SnapshotError:
        assert evaluator.snapshot() == before
        raise
    merged = Evaluator(company_id="acme")
    merged.restore(data)
    merged.merge(data)
    evaluator.open_alerts(BEGIN)
    evaluator.tick(BEGIN + 100)
    for server in ("web-1", "web-2"):
        for at in (200.0, 100.0, 300.0):
            evaluator.observe(server, Series(name="cpu", labels={"core": "0"}), BEGIN + at, 95.0)
    evaluator.host_seen("web-1", BEGIN + 900)
    evaluator.tick(BEGIN + 1_000)
    kept = evaluator.snapshot()
    again = Evaluator(company_id="acme")
    again.restore(kept)
    assert again.snapshot() == kept
    evaluator.set_rules([], BEGIN + 1_001)
    return []


KINDS = {
    "flapping": (flapping, use_flapping),
    "held": (held, use_held),
    "group": (group, use_group),
    "going down": (lambda: group(3), use_group),
    "evaluator": (evaluated, use_evaluated),
}
absurd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.sampled_from([10**400, -(10**400), 10**40, 1 << 53, (1 << 53) + 1, 0.5, 1e308, -1e308]),
    st.sampled_from([float("nan"), float("inf"), "", "x", "\ud800", "cpu", "web-2", "c2"]),
    st.sampled_from(["alert.resolved", "agent.up", "a1", "a2", "s", "r", "group-1", "0001-01-01"]),
    st.sampled_from([AT.format(1), AT.format(59), "9999-12-31T23:59:59.999999+00:00",
                     "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]),
    st.sampled_from([[], {}, [[]], [{}], [None], {"version": 1}, "[" * 3]),
)  # fmt: skip


def places(data, path=()):
    """Every place of a JSON value."""
    yield path
    inner = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in inner:
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


@st.composite
def damaged(draw):
    """One of the kinds, with some of its values replaced, doubled, moved or taken away."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    root = [copy.deepcopy(KINDS[kind][0]())]
    for _ in range(draw(st.integers(1, 3))):
        found = [path for path in places(root) if path]
        *way, last = draw(st.sampled_from(found))
        inner = root
        for step in way:
            inner = inner[step]
        what = draw(st.sampled_from(["put", "put", "double", "drop", "swap"]))
        if what == "put" or not way:
            # A copy: what is damaged further must not be what other examples draw.
            inner[last] = copy.deepcopy(draw(absurd))
        elif what == "drop":
            del inner[last]
        elif what == "double" and isinstance(inner, list):
            inner.append(copy.deepcopy(inner[last]))
        elif what == "swap" and isinstance(inner, list):
            inner.reverse()
        if not isinstance(root[0], dict | list):
            break
    return kind, root[0]


@given(damaged())
def test_a_snapshot_of_absurd_values_is_refused_or_works(found):
    kind, data = found
    if kind == "evaluator" and not (isinstance(data, list) and data):
        return
    refusal, drafts = "", []
    try:
        drafts = KINDS[kind][1](data)
    except SnapshotError as error:
        refusal = str(error)
    assert len(refusal) < 1_000
    assert not refusal or any(way_out in refusal for way_out in ("start", "give each", "read it"))
    for number, draft in enumerate(drafts):
        draft.event(event_id=f"0190b6f2-0000-7000-8000-{number:012}", seq=1)


def mended(data, *path, value):
    changed = copy.deepcopy(data)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value(inner[path[-1]]) if callable(value) else value
    return changed


@pytest.mark.parametrize(
    ("kind", "path", "value", "says"),
    [
        ("held", ["held"], None, "None is no list of what is held"),
        ("held", ["held"], lambda rows: rows + rows[:1], "is there twice"),
        ("held", ["held", 0, 0, "suppressed"], False, "cannot be read"),
        ("held", ["held", 0, 0, "type"], "alert.resolved", "none that a silence holds back"),
        ("held", ["held", 0], [1], "[1] is no list of event, silence_id"),
        ("held", ["held", 0, 1], "\ud800", "half a surrogate pair"),
        ("flapping", ["alerts"], lambda rows: rows + rows[:1], "is there twice"),
        ("flapping", ["alerts", 1, 2], lambda times: times * 2, "has not one change"),
        ("flapping", ["alerts", 1, 2], ["2026-06-15T12:03:00Z"] * 101, "no changes of an alert"),
        ("flapping", ["alerts", 0, 3], "2026-06-15T12:03:00Z", "flaps without an event"),
        ("flapping", ["alerts", 1, 1], True, "no change of it"),
        ("flapping", ["alerts", 1, 0, 1], "web9", "is another's"),
        ("flapping", ["alerts", 1, 3], "2026-06-15T12:30:00Z", "has not one change"),
        ("group", ["newest_key"], 10**400, "is not from 0 to"),
        ("group", ["newest_key"], 7, "its group is not the newest one"),
        ("group", ["group", "members"], lambda rows: rows + rows[:1], "is there twice"),
        ("group", ["group", "members", 0, 0], "a9", "no agent.down of this company's agent"),
        ("group", ["group", "members", 0, 1, "company_id"], "c2", "no agent.down of this"),
        ("group", ["group"], [], "[] is no object"),
        ("group", ["version"], True, "its version is True, and this release reads 1"),
    ],
)  # fmt: skip
def test_what_is_absurd_is_named(kind, path, value, says):
    make, use = KINDS[kind]
    with pytest.raises(SnapshotError, match="set it aside and start without it") as caught:
        use(mended(make(), *path, value=value))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"), [("held", "held"), ("flapping", "alerts"), ("group", "group")]
)
def test_a_field_that_is_not_there_is_named_in_words(kind, name):
    make, use = KINDS[kind]
    data = make()
    del data[name]
    with pytest.raises(SnapshotError) as caught:
        use(data)
    assert f"the field {name!r} is missing" in str(caught.value)
    assert "KeyError" not in str(caught.value)
