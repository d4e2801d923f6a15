"""How often a tracker asks matchers, whatever there is of silences and of what is held back."""

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silence_events import at, event, silence

from ahrules import SilenceSet, SuppressionTracker, compile_silences
from ahrules.silences._companies import Company, bits_of
from ahwire.hub import LabelMatcher, MatchOp


class Asked:
    """Silences whose matchers count how often they are asked about a text of an event."""

    def __init__(self):
        self.count = 0

    def compiled(self, silences):
        plain = compile_silences(silences)
        assert not plain.errors
        return SilenceSet(
            companies={
                name: Company.of(
                    attrs.evolve(each, tests=self.counted(each.tests)) for each in company.all
                )
                for name, company in plain._companies.items()
            }
        )

    def counted(self, tests):
        return tuple((label, self.counting(test)) for label, test in tests)

    def counting(self, test):
        def ask(text):
            self.count += text != ""
            return test(text)

        return ask

    def since(self):
        count, self.count = self.count, 0
        return count


def by_pattern(number, end):
    """A silence whose servers are said by a pattern."""
    matcher = LabelMatcher(label="server_id", op=MatchOp.RE, value=f"s{number}-.*")
    return attrs.evolve(silence(0, end, silence_id=f"p{number:04}"), matchers=(matcher,))


def everything(end, silence_id="all"):
    return attrs.evolve(silence(0, end, silence_id=silence_id), matchers=(), all=True)


def mark_all(tracker, count, minute=1):
    for number in range(count):
        tracker.mark(event(server=f"s{number}-1"), at(minute))


@pytest.mark.parametrize("count", [20, 200])
def test_a_look_asks_no_matcher_and_a_changed_silence_only_its_own(count):
    asked = Asked()
    silences = [by_pattern(number, 10 + number) for number in range(count)]
    tracker = SuppressionTracker(asked.compiled(silences))
    mark_all(tracker, count)
    assert asked.since() == 2 * count, "each event asks the one pattern that matches, and no more"
    for minute in (2, 9, 10, 11, 15):
        tracker.next_look(at(minute))
        assert len(tracker.due(at(minute))) == max(0, minute - 9)
    assert asked.since() == 0
    # The set comes anew each minute, and nearly all of it is as before.
    tracker.replace(asked.compiled(silences))
    assert asked.since() == 0
    tracker.replace(asked.compiled([*silences[1:], everything(30), by_pattern(1_000, 30)]))
    assert asked.since() == count
    tracker.replace(asked.compiled([*silences[2:], attrs.evolve(silences[1], reason="longer")]))
    assert asked.since() == count
    assert len(tracker.due(at(10))) == 1
    assert asked.since() == 0


def test_what_many_silences_match_alike_is_looked_at_as_one():
    asked = Asked()
    tracker = SuppressionTracker(asked.compiled([everything(9, f"e{n:03}") for n in range(300)]))
    mark_all(tracker, 500)
    assert len(tracker._held._members) == 1
    assert tracker.due(at(8)) == ()
    assert [draft.server_id for draft in tracker.due(at(9))] == [f"s{n}-1" for n in range(500)]


def test_a_change_of_silences_that_match_nothing_that_is_held_is_no_reason_to_look():
    tracker = SuppressionTracker(
        compile_silences([by_pattern(1, 20), by_pattern(2, 5), everything(30)])
    )
    tracker.mark(event(server="s1-1"), at(1))
    assert tracker.next_look(at(1)) == at(20)


@given(st.integers(0, 1 << 70))
def test_the_positions_of_a_mask_are_its_bits(mask):
    assert sum(1 << position for position in bits_of(mask)) == mask


spans = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.integers(1, 20),
        st.sampled_from(["server_id", "team", "type"]),
        st.sampled_from(["eq", "ne", "re", "nre"]),
        st.sampled_from(["a", "b", "a|b", "alert.opened"]),
    ),
    max_size=5,
)


def made(found):
    return compile_silences(
        [
            attrs.evolve(
                silence(start, start + length, silence_id=f"s{index}"),
                matchers=(LabelMatcher(label=label, op=MatchOp(op), value=value),),
                all=True,
            )
            for index, (start, length, label, op, value) in enumerate(found)
        ]
    )


@given(spans, spans, st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("ab")), max_size=6))
def test_what_is_due_is_what_no_silence_holds_for_also_after_a_change(first, second, servers):
    tracker, held = SuppressionTracker(made(first)), {}
    for number, (server, team) in enumerate(servers):
        happened = event(server=server, number=number + 1, labels={"team": team})
        marked = tracker.mark(happened, at(5))
        if marked.suppressed:
            held[server] = happened
        else:
            held.pop(server, None)
    for found in (first, second, first):
        silences = made(found)
        tracker.replace(silences)
        changes = []
        for minute in range(0, 45, 3):
            now = at(minute)
            owed = {server for server, event in held.items() if silences.active(event, now) is None}
            assert {draft.server_id for draft in tracker.due(now)} == owed
            look = tracker.next_look(now)
            assert look is None or look >= now
            changes.append((now, owed, look))
        for (_, owed, look), (later, then, _) in pairwise(changes):
            if then - owed:
                assert look is not None
                assert look <= later
