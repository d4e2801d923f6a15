"""Many silences are as a naive look at each of them, and few of them are looked at."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from silence_events import at, event

from ahrules import compile_silences
from ahrules._pattern_set import PatternSet
from ahwire.hub import EventSeverity, LabelMatcher, MatchOp, Silence


def silence(silence_id, *matchers, company_id="c1"):
    return Silence(
        silence_id=silence_id,
        company_id=company_id,
        matchers=tuple(
            LabelMatcher(label=label, op=MatchOp(op), value=value) for label, op, value in matchers
        ),
        starts_at=at(0),
        all=True,
    )


fields = st.one_of(
    st.tuples(
        st.sampled_from(["server_id", "agent_id", "rule_id", "dc", "rack"]),
        st.sampled_from(["eq", "ne", "re", "nre"]),
        st.sampled_from(["", "a", "b", "a.*", ".*b", "[ab]+", "a|b", ".*", "ab?", "web1"]),
    ),
    st.tuples(st.just("type"), st.just("eq"), st.just("alert.opened")),
    st.tuples(st.just("severity"), st.just("re"), st.just("crit.*|info")),
)
texts = st.sampled_from(["", "a", "b", "ab", "ba", "web1", "x", "\ud800", "a" * 5_000 + "b"])


def text_of(found, label):
    """What a matcher on `label` sees, in the plainest way."""
    if label in ("server_id", "agent_id", "rule_id", "severity", "type"):
        return str(getattr(found, label) or "")
    text = found.labels.get(label)
    return text if isinstance(text, str) else ""


def holds(matcher, text):
    if matcher.op is MatchOp.EQ:
        return text == matcher.value
    if matcher.op is MatchOp.NE:
        return text != matcher.value
    has_surrogate = any("\ud800" <= sign <= "\udfff" for sign in text[:4_096])
    found = not has_surrogate and re.fullmatch(matcher.value, text[:4_096], re.DOTALL)
    return bool(found) is (matcher.op is MatchOp.RE)


class Told:
    """An event that may hold any text, also such as no contract lets pass."""

    def __init__(self, **values):
        plain = event()
        self.company_id = "c1"
        self.server_id, self.agent_id, self.rule_id = "web1", None, None
        self.severity, self.type, self.labels = None, plain.type, {}
        self.__dict__.update(values)


events = st.builds(
    Told,
    server_id=st.one_of(st.none(), texts),
    agent_id=st.one_of(st.none(), texts),
    rule_id=st.one_of(st.none(), texts),
    severity=st.sampled_from([None, EventSeverity.INFO, EventSeverity.WARNING]),
    labels=st.dictionaries(
        st.sampled_from(["dc", "rack", "rule_id"]), st.one_of(texts, st.just(7)), max_size=3
    ),
)


@given(st.lists(st.lists(fields, max_size=3), max_size=40), st.lists(events, max_size=4))
def test_the_answer_is_that_of_a_naive_look_at_each(found, happened):
    silences = [silence(f"s{n:02}", *matchers) for n, matchers in enumerate(found)]
    together = compile_silences(reversed(silences))
    assert not together.errors
    for one in happened:
        naive = [
            each
            for each in silences
            if all(holds(matcher, text_of(one, matcher.label)) for matcher in each.matchers)
        ]
        assert together.active(one, at(1)) == (naive[0] if naive else None)
        (company,) = together._companies.values() or (None,)
        if company is not None:
            matching = [silences[n] for n in range(len(silences)) if company.matching(one) >> n & 1]
            assert matching == naive


def candidates(silences, found):
    (company,) = compile_silences(silences)._companies.values()
    return [company.all[place].silence.silence_id for place in company.candidates(found)]


@pytest.mark.parametrize("pattern", ["web-{}", "[a-z]+-{}", ".*-{}(\\..*)?", "(?i)WEB-{}"])
def test_of_many_patterns_those_that_match_are_looked_at(pattern):
    silences = [
        silence(f"s{n:05}", ("type", "eq", "alert.opened"), ("server_id", "re", pattern.format(n)))
        for n in range(2_500)
    ]
    assert candidates(silences, event(server="web-77")) == ["s00077"]
    assert candidates(silences, event(server="db")) == []


def test_of_many_names_those_that_are_there_are_looked_at():
    of_servers = [silence(f"a{n:05}", ("server_id", "eq", f"web-{n}")) for n in range(2_500)]
    of_labels = [silence(f"b{n:05}", (f"label{n}", "eq", "x")) for n in range(2_500)]
    found = event(server="web-77", labels={"label5": "x", "label6": "y"})
    assert candidates(of_servers + of_labels, found) == ["a00077", "b00005"]


def test_a_name_that_many_share_is_not_what_they_are_kept_under():
    silences = [
        silence(
            f"s{n:03}", ("dc", "eq", "eu"), ("server_id", "eq", f"web-{n}"), ("rack", "re", ".")
        )
        for n in range(100)
    ]
    shared = [silence(f"t{n:03}", ("dc", "eq", "eu"), ("rack", "re", f"r{n}")) for n in range(100)]
    found = event(server="web-7", labels={"dc": "eu", "rack": "r3"})
    assert candidates(silences + shared, found) == ["s007", "t003"]


def test_one_company_has_many_silences_and_another_does_not_look_at_them():
    silences = compile_silences([silence(f"s{n}", ("dc", "re", f"eu{n}")) for n in range(50)])
    assert silences.count_of("c1") == 50
    assert silences.count_of("c2") == 0


def test_patterns_that_take_too_much_memory_together_are_put_together_in_parts():
    patterns = [f".*{n}.*" for n in range(64)]
    parts = PatternSet(patterns, each_bytes=1, bytes_min=20_000)
    assert len(parts._parts) > 1
    assert sorted(parts.may_match("web-12")) == [1, 2, 12]
    none = PatternSet(patterns, each_bytes=1, bytes_min=1_000)
    assert none._parts == []
    assert sorted(none.may_match("web-12")) == list(range(64))


def test_a_text_that_has_no_utf8_matches_no_pattern_and_a_long_one_is_cut():
    found = PatternSet(["a.*", ".*b", ".*"])
    assert list(found.may_match("\ud800")) == []
    assert sorted(found.may_match("a" * 5_000 + "b\ud800")) == [0, 2]


def test_patterns_that_cannot_be_walked_together_are_all_given():
    """RE2 answers with nothing where a walk finds no memory, whatever matches."""
    found = PatternSet([f"web-{n}" for n in range(60)])
    assert list(found.may_match("db")) == []
    ((_, places),) = found._parts
    found._parts = [(lambda text: (), places)]
    assert list(found.may_match("db")) == list(range(60))
