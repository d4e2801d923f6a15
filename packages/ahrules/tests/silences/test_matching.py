"""What a silence matches, and what it may not match."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ahrules import EventDraft, check_silence, compile_silences
from ahwire.hub import EventSeverity, EventType, LabelMatcher, MatchOp, Recurrence, Silence, Weekday

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)


def silence(*matchers, silence_id="s", company_id="c1", **values):
    return Silence(
        silence_id=silence_id,
        company_id=company_id,
        matchers=tuple(
            LabelMatcher(label=label, op=MatchOp(op), value=value) for label, op, value in matchers
        ),
        starts_at=datetime(2026, 1, 1, tzinfo=UTC),
        **values,
    )


def event(**values):
    given = {
        "type": EventType.ALERT_OPENED,
        "occurred_at": NOW,
        "company_id": "c1",
        "server_id": "web1",
        "rule_id": "cpu",
        "severity": EventSeverity.WARNING,
        "labels": {"team": "web"},
    }
    return EventDraft(**(given | values))


def matches(*matchers, **values):
    compiled = compile_silences([silence(*matchers, all=True)])
    assert compiled.errors == ()
    return compiled.active(event(**values), NOW) is not None


@pytest.mark.parametrize(
    ("op", "value", "on_web", "on_absent"),
    [
        ("eq", "web", True, False),
        ("ne", "web", False, True),
        ("re", "w.b", True, False),
        ("nre", "w.b", False, True),
        ("eq", "", False, True),
        ("ne", "", True, False),
        ("re", "", False, True),
        ("nre", "", True, False),
        ("re", ".*", True, True),
        ("re", ".+", True, False),
        ("re", "db|web", True, False),
        ("re", "db|", False, True),
    ],
)
def test_a6_a_matcher_on_a_label_that_is_there_and_on_one_that_is_absent(
    op, value, on_web, on_absent
):
    assert matches(("team", op, value)) is on_web
    assert matches(("other", op, value)) is on_absent


def test_a6_patterns_are_anchored_at_both_ends_whatever_they_hold():
    assert not matches(("server_id", "re", "web"))
    assert not matches(("server_id", "re", "eb1"))
    assert not matches(("server_id", "re", "x|web"))
    assert not matches(("server_id", "re", "web|x"))
    assert matches(("server_id", "re", "web."))
    assert matches(("server_id", "nre", "web"))
    assert matches(("server_id", "re", "(?i)WEB1"))
    assert not matches(("server_id", "re", "WEB1"))
    assert matches(("team", "re", "a.b"), labels={"team": "a\nb"})


def test_a_matcher_sees_the_fields_of_the_event_and_its_labels():
    fields = {
        "server_id": "web1",
        "agent_id": "a-7",
        "rule_id": "cpu",
        "severity": "warning",
        "type": "alert.opened",
        "team": "web",
    }
    for label, value in fields.items():
        assert matches((label, "eq", value), agent_id="a-7")
        if label not in ("severity", "type"):  # closed sets: such a silence is refused
            assert not matches((label, "eq", value + "x"), agent_id="a-7")
        assert not matches((label, "ne", value), agent_id="a-7")


def test_a_field_is_never_read_from_a_label_of_its_name():
    assert not matches(("server_id", "eq", "web2"), labels={"server_id": "web2"})
    assert matches(("agent_id", "eq", ""), labels={"agent_id": "a"})


@pytest.mark.parametrize("value", [7, 7.5, True, None, ["web"], {"a": "web"}])
def test_a_label_that_is_no_text_is_as_absent(value):
    assert matches(("team", "eq", ""), labels={"team": value})


def test_all_matchers_must_hold():
    assert matches(("server_id", "re", "web.*"), ("severity", "eq", "warning"))
    assert not matches(("server_id", "re", "web.*"), ("severity", "eq", "critical"))
    assert not matches(("server_id", "eq", "web1"), ("server_id", "eq", "web2"))


def test_a_group_event_names_no_server_so_that_its_server_is_the_empty_text():
    group = {"type": EventType.GROUP_DOWN, "server_id": None, "rule_id": "group_down"}
    assert not matches(("server_id", "re", ".+"), **group)
    assert matches(("type", "re", r"group\..*"), **group)


EVERYTHING = [
    [("server_id", "re", ".*")],
    [("server_id", "re", ".+")],
    [("server_id", "ne", "nonsense")],
    [("server_id", "ne", "")],
    [("server_id", "nre", "web1")],
    [("server_id", "re", "(.|x)+")],
    [("server_id", "re", r"[^\s]+")],
    [("server_id", "re", "[a-zA-Z0-9][a-zA-Z0-9_.:-]*")],
    [("agent_id", "re", "|.+")],
    [("rule_id", "re", ".{1,200}")],
    [("rule_id", "ne", "")],
    [("team", "eq", "")],
    [("team", "ne", "web")],
    [("team", "re", "web|")],
    [("no_such_label", "nre", "x")],
    [("type", "re", r".*\..*")],
    [("type", "ne", "nonsense")],
    [("type", "ne", "")],
    [("severity", "re", "info|warning|critical")],
    [("severity", "ne", "nonsense")],
    [("server_id", "re", ".*"), ("team", "ne", "x"), ("type", "ne", "y")],
]
CHOICES = [
    [("server_id", "eq", "web1")],
    [("server_id", "re", "web.*")],
    [("server_id", "re", ".*1")],
    [("server_id", "re", "[a-z].*")],
    [("server_id", "re", ".{1,127}")],
    [("server_id", "re", "[^:]+")],
    [("rule_id", "re", "[a-zA-Z0-9_.:-]+")],
    [("team", "ne", "")],
    [("team", "re", ".+")],
    [("type", "ne", "agent.down")],
    [("type", "re", r"alert\..*")],
    [("severity", "eq", "info")],
    [("severity", "ne", "critical")],
    [("rule_id", "eq", "cpu")],
    [("server_id", "ne", "web1"), ("severity", "eq", "info")],
    [("server_id", "re", ".*"), ("team", "eq", "web")],
]


@pytest.mark.parametrize("matchers", EVERYTHING)
def test_a6_what_would_match_everything_is_refused_unless_it_says_so(matchers):
    (fault,) = check_silence(silence(*matchers))
    assert fault.path == "matchers"
    assert "all: true" in fault.message
    compiled = compile_silences(
        [silence(*matchers), silence(("type", "eq", "agent.up"), silence_id="t")]
    )
    assert [each.silence_id for each in compiled.errors] == ["s"]
    assert compiled.active(event(), NOW) is None
    assert check_silence(silence(*matchers, all=True)) == ()


@pytest.mark.parametrize("matchers", CHOICES)
def test_a6_what_leaves_something_alone_needs_not_say_more(matchers):
    assert check_silence(silence(*matchers)) == ()


def test_all_true_without_matchers_matches_everything_of_its_company_alone():
    compiled = compile_silences([silence(all=True)])
    assert compiled.active(event(), NOW) is not None
    assert compiled.active(event(company_id="c2"), NOW) is None


ops = st.sampled_from(["eq", "ne", "re", "nre"])
labels = st.sampled_from(["server_id", "agent_id", "rule_id", "severity", "type", "team", "env"])
values = st.sampled_from(
    ["", "web", "web1", ".*", ".+", "w.*", "info", "agent.down", "agent.*|alert.*", "x|", "[a-z]*"]
)
matcher_lists = st.lists(st.tuples(labels, ops, values), min_size=1, max_size=3)
SERVERS = ["web1", "db-2", "Z9", "x", "web"]
TEAMS = [{}, {"team": "web"}, {"team": "x", "env": "web1"}, {"env": "y"}]


@given(matcher_lists)
@example([("server_id", "re", ".+")])
@example([("rule_id", "nre", "x|")])
def test_a_silence_that_is_taken_without_all_true_leaves_some_event_alone(matchers):
    """The other way round does not hold: `ne` of a real server is refused too."""
    one = silence(*matchers)
    if check_silence(one):
        return
    compiled = compile_silences([one])
    events = [
        event(
            type=kind,
            server_id=server,
            agent_id=server,
            rule_id=server,
            severity=severity,
            labels=team,
        )
        for kind in EventType
        for server in SERVERS
        for severity in EventSeverity
        for team in TEAMS
    ]
    assert not all(compiled.active(each, NOW) for each in events)


COSTLY = "((a?){60}b?){9}c"


@pytest.mark.parametrize("op", ["re", "nre"])
def test_the_steps_of_a_silences_patterns_are_bounded_together(op):
    for count, paths in ((11, []), (12, ["matchers[11].value"]), (40, ["matchers[11].value"])):
        found = check_silence(silence(*[("team", op, COSTLY)] * count, all=True))
        assert [fault.path for fault in found] == paths
        assert not found or "25000 are the most" in found[0].message


def test_a_pattern_sees_the_beginning_of_a_long_text():
    long = {"team": "a" * 4_096 + "b" * 1_000_000}
    assert matches(("team", "re", "a+"), labels=long)
    assert not matches(("team", "re", "a+b+"), labels=long)
    assert not matches(("team", "nre", "a+"), labels=long)
    assert not matches(("team", "eq", "a" * 1_024), labels={"team": "a" * 1_025})


def test_faults_name_the_field_and_the_rest_works():
    berlin = {"weekdays": (Weekday.MON,), "from_": "00:00", "to": "01:00"}
    bad = silence(
        ("server_id", "re", "web["),
        ("team", "nre", "(?=x)"),
        silence_id="bad",
        recurrence=Recurrence(**berlin, timezone="europe/berlin"),
    )
    good = silence(("server_id", "eq", "web1"), silence_id="good")
    compiled = compile_silences([bad, good, good])
    assert [each.silence_id for each in compiled.errors] == ["bad", "good"]
    paths = [fault.path for fault in compiled.errors[0].errors]
    assert paths == ["matchers[0].value", "matchers[1].value", "recurrence.timezone"]
    assert "there twice" in str(compiled.errors[1])
    assert "silence 'bad': matchers[0].value: " in str(compiled.errors[0])
    assert compiled.active(event(), NOW) == good
    assert repr(compiled) == "<SilenceSet of 1 silences, 2 errors>"
