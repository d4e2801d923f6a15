"""Silences, groups and flapping together, in the order that their page gives."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ahrules import (
    FlapDetector,
    GroupDownState,
    SuppressionTracker,
    compile_silences,
    observe_agents,
)
from ahwire.hub import Event, EventType, GroupDownSettings, LabelMatcher, MatchOp, Silence

START = datetime(2026, 6, 15, 12, tzinfo=UTC)
SETTINGS = GroupDownSettings(enabled=True, min=3, ratio=0.3, window_seconds=60)
AGENTS = [f"a{number}" for number in range(6)]


def at(seconds):
    return START + timedelta(seconds=seconds)


class Collector:
    """What the loop of a collector does with the three."""

    def __init__(self, silences=()):
        self.tracker = SuppressionTracker(compile_silences(silences))
        self.flapping = FlapDetector()
        self.group = GroupDownState(company_id="c1")
        self.count = 0
        self.log = []

    def next_id(self):
        self.count += 1
        return f"0190b6f2-0000-7000-8000-{self.count:012x}"

    def happened(self, kind, name, now, **values):
        return Event(
            event_id=self.next_id(),
            type=EventType(kind),
            seq=self.count,
            occurred_at=now,
            company_id="c1",
            server_id=name,
            suppressed=False,
            **values,
        )

    def stamp(self, draft):
        return draft.event(event_id=self.next_id(), seq=self.count)

    def agents(self, now, changes=()):
        """Look once: what is owed, and (kind, agent) that happened since; what goes out."""
        due = [self.stamp(draft) for draft in self.tracker.due(now)]
        came = [self.happened(f"agent.{kind}", name, now, agent_id=name) for kind, name in changes]
        # What came since may end what is owed, and so comes after it.
        marked = [self.tracker.mark(event, now) for event in (*due, *came)]
        step = observe_agents(
            self.group,
            [event for event in marked if not event.type.is_group],
            settings=SETTINGS,
            company_agents=len(AGENTS),
            now=now,
        )
        self.group = step.state
        out = [event for event in marked if event.type.is_group]
        out += [*step.events, *(self.tracker.mark(self.stamp(each), now) for each in step.drafts)]
        self.log += out
        return out

    def alert(self, kind, now):
        step = self.flapping.observe(self.happened(kind, "web1", now, rule_id="cpu"))
        events = [*map(self.stamp, step.drafts)]
        return [self.tracker.mark(event, now) for event in (step.event, *events)]


def silence(name, start, length, silence_id="s"):
    return Silence(
        silence_id=silence_id,
        company_id="c1",
        matchers=(LabelMatcher(label="server_id", op=MatchOp.EQ, value=name),),
        starts_at=at(start),
        ends_at=at(start + length),
    )


def told(events):
    return [
        f"{event.type.value} {event.agent_id or ''} {event.reason or ''}".strip()
        for event in events
        if not event.suppressed
    ]


def test_agents_in_maintenance_are_no_group_and_become_one_when_it_ends():
    collector = Collector([silence(name, 0, 600, name) for name in AGENTS[:4]])
    assert told(collector.agents(at(1), [("down", name) for name in AGENTS[:4]])) == []
    assert told(collector.agents(at(9), [("up", "a0")])) == []
    out = collector.agents(at(600))
    assert told(out) == ["group.down"]
    assert out[-1].labels["members"] == ["a1", "a2", "a3"]


def test_an_agent_whose_group_ends_in_a_silence_is_told_when_the_silence_ends():
    collector = Collector([silence("a0", 50, 100)])
    assert told(collector.agents(at(1), [("down", name) for name in AGENTS[:3]])) == ["group.down"]
    out = collector.agents(at(60), [("up", "a1")])
    assert told(out) == ["group.up", "agent.down a2 group_ended"]
    assert told(collector.agents(at(150))) == ["agent.down a0 silence_ended"]


def test_an_alert_that_flaps_in_a_silence_is_told_to_flap_when_it_ends():
    collector = Collector([silence("web1", 0, 600)])
    for second, kind in enumerate(["alert.opened", "alert.resolved"] * 3):
        assert told(collector.alert(kind, at(second))) == []
    assert [draft.type for draft in collector.tracker.due(at(600))] == ["alert.flapping"]


steps = st.tuples(
    st.sampled_from([0, 1, 30, 60, 61]),
    st.lists(st.sampled_from(AGENTS), max_size=6, unique=True),
)
silence_lists = st.lists(
    st.tuples(st.sampled_from(AGENTS), st.integers(0, 300), st.integers(1, 300)), max_size=4
)


@given(silence_lists, st.lists(steps, max_size=7))
def test_who_is_down_and_not_silenced_is_known_and_who_is_silenced_is_not_told_of(spans, script):
    collector = Collector(
        [
            silence(name, start, length, str(index))
            for index, (name, start, length) in enumerate(spans)
        ]
    )
    known, down, second = set(), set(), 0
    for pause, names in script:
        second += pause
        changes = [("up" if name in down else "down", name) for name in names]
        down ^= set(names)
        silenced = {name for name, start, n in spans if start <= second < start + n}
        for event in collector.agents(at(second), changes):
            if event.suppressed:
                continue
            assert event.agent_id not in silenced
            if event.type == "group.down":
                known |= set(event.labels["members"])
            elif event.type == "group.up":
                known -= set(AGENTS) - down
            elif event.type == "agent.down":
                known.add(event.agent_id)
            else:
                known.discard(event.agent_id)
        assert known >= down - silenced
        assert told(collector.agents(at(second))) == []
