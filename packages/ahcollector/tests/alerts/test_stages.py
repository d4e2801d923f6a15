"""Stages on the way to the outbox, for events that are no rule's: those of agents."""

import itertools
from datetime import UTC, datetime, timedelta

import attrs
from alert_world import START, silence

from ahcollector.alerts import FlapStage, Pipeline, SilenceStage, silences_in_force
from ahrules import EventDraft, FlapSettings
from ahwire import Event, EventType

NOW = datetime.fromtimestamp(START, UTC)


class Line:
    """A pipeline whose ids and seqs are counted up."""

    def __init__(self, *stages):
        self.numbers = itertools.count(1)
        self.pipeline = Pipeline(stages, self.mint)

    def mint(self, draft):
        number = next(self.numbers)
        return draft.event(event_id=f"0190b6f2-0000-7000-8000-{number:012x}", seq=number)

    def event(self, kind=EventType.AGENT_DOWN, agent="a1"):
        draft = EventDraft(
            type=kind,
            occurred_at=NOW,
            company_id="acme",
            server_id="web-1",
            agent_id=agent,
            rule_id="agent_down",
            series_key="agent",
        )
        return self.mint(draft)


def test_agent_that_went_down_in_a_silence_is_told_when_it_ends():
    silences = SilenceStage()
    silences.replace(silences_in_force([silence(ends=60)]).silences)
    line = Line(FlapStage(FlapSettings()), silences)
    down = line.event()
    (marked,) = line.pipeline.take(down, NOW)
    assert marked == attrs.evolve(down, suppressed=True, suppress_reason="silence:s1")
    assert list(line.pipeline.tick(NOW)) == []
    (again,) = line.pipeline.tick(NOW + timedelta(seconds=60))
    assert (again.type, again.reason, again.suppressed) == (
        EventType.AGENT_DOWN,
        "silence_ended",
        False,
    )
    assert again.seq > down.seq
    assert list(line.pipeline.tick(NOW + timedelta(seconds=70))) == []


def test_what_a_stage_adds_goes_through_it_and_those_behind_it():
    class Doubling:
        """Tells each event that has no reason once more, with one."""

        name = "doubling"

        def __init__(self):
            self.seen = []

        def before(self, key, at):
            return ()

        def take(self, event, now):
            self.seen.append(event.reason)
            if event.reason is not None:
                return event, ()
            return event, (EventDraft.again(event, occurred_at=now, reason="again"),)

    silences = SilenceStage()
    silences.replace(silences_in_force([silence()]).silences)
    doubling = Doubling()
    line = Line(doubling, silences)
    told = list(line.pipeline.take(line.event(), NOW))
    assert [event.reason for event in told] == [None, "again"]
    assert doubling.seen == [None, "again"]
    assert all(event.suppress_reason == "silence:s1" for event in told)
    assert [event.seq for event in told] == [1, 2]


def test_draft_that_cannot_be_told_is_left_out():
    pipeline = Pipeline([SilenceStage()], lambda draft: None)
    draft = EventDraft(type=EventType.ALERT_OPENED, occurred_at=NOW, company_id="acme")
    assert list(pipeline.tell(draft, NOW)) == []


def test_what_stages_keep_goes_over_to_others():
    def line():
        silences = SilenceStage()
        silences.replace(silences_in_force([silence(ends=60)]).silences)
        return Line(FlapStage(FlapSettings()), silences)

    old, new = line(), line()
    down = old.event()
    list(old.pipeline.take(down, NOW))
    assert isinstance(down, Event)
    for name, take in new.pipeline.restorers().items():
        take(old.pipeline.snapshot()[name])
    assert len(new.pipeline) == 1
    assert [event.reason for event in new.pipeline.tick(NOW + timedelta(seconds=60))] == [
        "silence_ended"
    ]
