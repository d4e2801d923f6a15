"""When silences hold: half-open times, windows, companies, and the next change."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahrules import EventDraft, InstantError, SilenceSet, compile_silences
from ahwire.hub import EventType, LabelMatcher, MatchOp, Recurrence, Silence, Weekday

START = datetime(2026, 3, 27, 12, tzinfo=UTC)
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


def silence(silence_id="s", starts_at=START, ends_at=None, value="web1", **values):
    return Silence(
        **{"company_id": "c1", "silence_id": silence_id, "starts_at": starts_at, "ends_at": ends_at}
        | {"matchers": (LabelMatcher(label="server_id", op=MatchOp.EQ, value=value),)}
        | values
    )


def event(server_id="web1", company_id="c1", **values):
    return EventDraft(
        type=EventType.AGENT_DOWN,
        occurred_at=START,
        company_id=company_id,
        server_id=server_id,
        **values,
    )


def name(silences, now, of=None):
    found = silences.active(of or event(), now)
    return found and found.silence_id


def test_a_silence_holds_from_its_start_and_no_more_at_its_end():
    silences = compile_silences([silence(ends_at=START + HOUR)])
    assert name(silences, START - TICK) is None
    assert name(silences, START) == "s"
    assert name(silences, START + HOUR - TICK) == "s"
    assert name(silences, START + HOUR) is None
    assert silences.next_change(START - TICK) == START
    assert silences.next_change(START) == START + HOUR
    assert silences.next_change(START + HOUR) is None


def test_a_silence_without_end_holds_for_ever():
    silences = compile_silences([silence()])
    assert name(silences, datetime(9999, 1, 1, tzinfo=UTC)) == "s"
    assert silences.next_change(START) is None


def test_any_zone_may_name_the_instant_but_none_is_refused():
    from ahrules import load_zone

    silences = compile_silences([silence(ends_at=START + HOUR)])
    assert name(silences, START.astimezone(load_zone("Asia/Seoul"))) == "s"
    for ask in (silences.next_change, lambda now: silences.active(event(), now)):
        with pytest.raises(InstantError, match="no time zone"):
            ask(datetime(2026, 3, 27, 12))


def test_companies_are_kept_apart():
    silences = compile_silences(
        [silence("s"), silence("s", company_id="c2", ends_at=START + HOUR, value="db1")]
    )
    assert len(silences) == 2
    assert name(silences, START, event(company_id="c2")) is None
    assert name(silences, START, event("db1", "c2")) == "s"
    assert name(silences, START, event("db1")) is None
    assert name(silences, START, event(company_id="c3")) is None
    assert silences.next_change(START - HOUR, company_id="c2") == START
    assert silences.next_change(START, company_id="c1") is None
    assert silences.next_change(START, company_id="c2") == START + HOUR
    assert silences.next_change(START, company_id="c3") is None
    assert silences.next_change(START) == START + HOUR


def test_of_several_the_first_id_is_named():
    pattern = (LabelMatcher(label="server_id", op=MatchOp.RE, value="web.*"),)
    silences = compile_silences([silence("b"), silence("c"), silence("a", matchers=pattern)])
    assert name(silences, START) == "a"
    assert name(silences, START, event("web2")) == "a"


def test_an_empty_set_suppresses_nothing():
    assert SilenceSet().active(event(), START) is None
    assert SilenceSet().next_change(START) is None


def nightly(silence_id="s", **values):
    # Sat and Sun 02:30 to 03:30 in Berlin; clocks go forward on Sunday 2026-03-29.
    recurrence = Recurrence(
        weekdays=(Weekday.SAT, Weekday.SUN), from_="02:30", to="03:30", timezone="Europe/Berlin"
    )
    return silence(silence_id, recurrence=recurrence, **values)


def test_a7_a_maintenance_window_holds_inside_its_silence_only():
    silences = compile_silences([nightly(ends_at=datetime(2026, 4, 4, 1, tzinfo=UTC))])
    found, now = [], START - HOUR
    while (now := silences.next_change(now)) is not None:
        found.append((f"{now:%d %H:%M}", name(silences, now)))
    assert found == [
        ("28 01:30", "s"),
        ("28 02:30", None),
        ("29 01:00", "s"),
        ("29 01:30", None),
        ("04 00:30", "s"),
        ("04 01:00", None),
    ]


def test_a_silence_that_begins_or_ends_inside_a_window_cuts_it():
    window = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    middle = window + HOUR / 2
    begins = compile_silences([nightly(starts_at=middle)])
    assert begins.next_change(START) == middle
    assert begins.next_change(middle) == window + HOUR
    short = compile_silences([nightly(ends_at=window)])
    assert short.next_change(START) is None
    assert short.next_change(START - HOUR) is None


whole_hours = st.integers(0, 24 * 3).map(lambda hours: START + hours * HOUR)
windows = st.none() | st.builds(
    Recurrence,
    weekdays=st.lists(st.sampled_from(list(Weekday)), min_size=1, unique=True).map(tuple),
    from_=st.sampled_from(["00:00", "01:00", "02:00", "03:00", "22:00"]),
    to=st.sampled_from(["00:00", "01:00", "02:00", "03:00", "22:00"]),
    timezone=st.sampled_from(["Europe/Berlin", "UTC", "Asia/Seoul"]),
)


@st.composite
def silence_sets(draw):
    found = []
    for index in range(draw(st.integers(0, 4))):
        starts_at = draw(whole_hours)
        length = draw(st.none() | st.integers(1, 100))
        found.append(
            silence(
                f"s{index}",
                starts_at,
                None if length is None else starts_at + length * HOUR,
                recurrence=draw(windows),
            )
        )
    return compile_silences(found)


@given(silence_sets())
def test_next_change_finds_exactly_the_hours_in_which_an_answer_changes(silences):
    """Everything here changes on whole hours only, so that walking the hours finds each change."""
    end = START + timedelta(days=8)
    states = {
        START + index * HOUR: frozenset(
            each.silence.silence_id
            for company in silences._companies.values()
            for each in company.all
            if each.is_active(START + index * HOUR)
        )
        for index in range(-1, 8 * 24)
    }
    expected = [now for now, state in states.items() if states.get(now - HOUR, state) != state]
    found, now = [], START - HOUR
    while (now := silences.next_change(now)) is not None and now < end:
        found.append(now)
    assert found == expected
    for now, state in states.items():
        assert name(silences, now) == min(state, default=None)
