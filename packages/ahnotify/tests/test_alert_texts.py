"""The text of an alert says which rule, which series, what holds and since when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ahnotify.sending._content import view
from ahnotify.templates._builtin import BuiltinRenderer
from ahnotify.templates._context import DigestContext, InstantContext, RuleView
from ahnotify.testing import NOW, incident
from ahwire.notification import Severity

RULE = RuleView(name="Alerts", company="Acme Ltd")
SERIES = 'ah_disk_used_percent{mount="/"}'
RUNBOOK = "https://wiki.example.org/disk-full"
#: As the server's bridge makes it of a collector's alert.reminder.
ALERT = {
    "duration_seconds": 14_400.0,
    "labels": {"mount": "/", "runbook": RUNBOOK},
    "peak_value": 96.5,
    "reason": "condition",
    "rule_id": "disk-full",
    "rule_version": 1,
    "seq": 1_781_518_740_000,
    "series_key": SERIES,
    "server_id": "web-1",
    "severity": "warning",
    "suppressed": False,
    "threshold": 90.0,
    "value": 95.0,
}
OPENED = {name: value for name, value in ALERT.items() if name != "duration_seconds"}
FLAPPING = OPENED | {"labels": ALERT["labels"] | {"alert_state": "ok", "flap_changes": 4}}
FLAPS = "It was opened and resolved again and again"
GROUP = {
    "group_key": "group-1781518740000",
    "labels": {"members": [f"agent-{number}" for number in range(30)], "members_count": 1_234},
    "rule_id": "group_down",
    "severity": "critical",
    "suppressed": False,
}


@pytest.fixture(scope="module")
def renderer():
    return BuiltinRenderer()


def told(renderer, event_type, payload, **changes):
    values = {"severity": Severity.MIDDLE, "event_type": event_type, "payload": payload}
    event = view(incident(**(values | changes)))
    return renderer.render(InstantContext(event=event, rule=RULE))


@pytest.mark.parametrize(
    ("event_type", "payload", "subject"),
    [
        ("alert_opened", OPENED, f"Alert disk-full opened on web-1: {SERIES} is 95, above 90"),
        (
            "alert_reminder",
            ALERT,
            f"Alert disk-full on web-1 is still open after 4 hours: {SERIES} is 95, above 90",
        ),
        (
            "alert_resolved",
            ALERT | {"value": 84.25, "duration_seconds": 120.0},
            f"Alert disk-full resolved on web-1 after 2 minutes: {SERIES} is 84.25, below 90",
        ),
        ("alert_opened", OPENED | {"value": 90.0}, f"{SERIES} is 90, at 90"),
        # Written alike they would look equal.
        ("alert_opened", OPENED | {"value": 90.0000001}, f"{SERIES} is 90.0000001, above 90.0"),
        (
            "alert_opened",
            OPENED | {"reason": "no_data", "value": None, "peak_value": None},
            f"Alert disk-full opened on web-1: {SERIES}; no data comes",
        ),
        (
            "alert_resolved",
            ALERT | {"reason": "rule_removed"},
            f"Alert disk-full resolved on web-1 after 4 hours: {SERIES}; the rule was removed",
        ),
        ("alert_flapping", FLAPPING, f"Alert disk-full is flapping on web-1: {SERIES}"),
        (
            "alert_settled",
            FLAPPING,
            f"Alert disk-full has settled on web-1 and is resolved: {SERIES}",
        ),
        ("alert_opened", {"rule_id": "r"}, "Alert r opened on web-1"),
        ("alert_opened", {"rule_id": "r", "value": 1}, "Alert r opened on web-1: the value is 1"),
        ("alert_opened", {}, "Alert opened on web-1"),
        ("group_down", GROUP, "1234 agents fell silent together"),
        (
            "group_up",
            GROUP | {"labels": {"members": ["a1"], "members_count": 1}},
            "The silence of many agents is over; 1 of them is still silent",
        ),
        (
            "group_up",
            GROUP | {"labels": {"members": [], "members_count": 0}},
            "The silence of many agents is over; none of them are still silent",
        ),
        ("group_down", {}, "Group down"),
    ],
)
def test_the_subject_tells_one_alert_from_another(renderer, event_type, payload, subject):
    host = None if event_type.startswith("group") else "web-1"
    content = told(renderer, event_type, payload, host=host)
    assert content.subject.endswith(subject)
    assert content.text.startswith(f"{content.subject}.\n")


def test_a_reminder_says_which_rule_which_series_what_holds_and_since_when(renderer):
    assert told(renderer, "alert_reminder", ALERT).text == (
        f"""\
Alert disk-full on web-1 is still open after 4 hours: {SERIES} is 95, above 90.

Server:      web-1
Company:     Acme Ltd
Rule:        disk-full
Series:      {SERIES}
Labels:      runbook="{RUNBOOK}"
Condition:   95, above 90
Peak:        96.5
Since:       2026-06-15 06:20:30 UTC
Open for:    4 hours
Time:        2026-06-15 10:20:30 UTC
Severity:    warning

You get this because of the notification rule "Alerts".
"""
    )


@pytest.mark.parametrize(
    ("event_type", "payload", "lines"),
    [
        ("alert_opened", OPENED, {"Since: 2026-06-15 10:20:30 UTC", "Severity: warning"}),
        (
            "alert_resolved",
            ALERT | {"reason": "data_returned"},
            {
                "Since: 2026-06-15 06:20:30 UTC",
                "Resolved: 2026-06-15 10:20:30 UTC",
                "Reason: data comes again",
            },
        ),
        (
            "alert_opened",
            OPENED | {"reason": "no_data", "value": None},
            {"Condition: no data", "Reason: no data comes"},
        ),
        (
            "alert_flapping",
            FLAPPING,
            {
                f"{FLAPS}; nothing more is told of it until it has been quiet for a while.",
                "Changes: 4",
                f'Labels: runbook="{RUNBOOK}"',
            },
        ),
        (
            "alert_settled",
            FLAPPING | {"duration_seconds": 3_600.0},
            {"Flapped since: 2026-06-15 09:20:30 UTC", "Flapped for: 1 hour"},
        ),
        (
            "group_down",
            GROUP,
            {
                "Silent: 1234 agents",
                f"Agents: {', '.join(f'agent-{n}' for n in range(20))} and 1214 more",
                "Severity: critical",
            },
        ),
        (
            "group_up",
            GROUP | {"duration_seconds": 60.0},
            {"Since: 2026-06-15 10:19:30 UTC", "Lasted: 1 minute"},
        ),
        # A length that reaches behind the calendar's first day is told without the day.
        ("alert_reminder", ALERT | {"duration_seconds": 1e300}, {"Time: 2026-06-15 10:20:30 UTC"}),
    ],
)
def test_the_lines_of_each_kind(renderer, event_type, payload, lines):
    text = told(renderer, event_type, payload).text
    assert lines <= {" ".join(line.split()) for line in text.splitlines()}
    assert "alert_state" not in text


def test_a_label_named_as_one_of_flapping_is_told_of_other_alerts(renderer):
    labels = {"alert_state": "CA", "flap_changes": "none"}
    text = told(renderer, "alert_opened", OPENED | {"labels": labels}).text
    assert 'alert_state="CA", flap_changes="none"' in text


def test_a_digest_tells_alerts_apart(renderer):
    mounts = ("/", "/var")
    payloads = [OPENED | {"series_key": f'ah_disk{{mount="{mount}"}}'} for mount in mounts]
    context = DigestContext(
        events=[view(incident(event_type="alert_opened", payload=one)) for one in payloads],
        events_count=2,
        rendered_events_count=2,
        hidden_events_count=0,
        missing_event_ids=[],
        events_audit_url="",
        overflow=False,
        supplement=False,
        period_start=NOW,
        period_end=NOW,
        rule=RULE,
    )
    text = renderer.render(context).text
    for mount in mounts:
        told_once = f'Alert disk-full opened on web-1: ah_disk{{mount="{mount}"}} is 95, above 90'
        assert text.count(f"{told_once} (warning)\n") == 1


def test_without_the_rules_word_the_severity_is_the_incidents(renderer):
    payload = {name: value for name, value in OPENED.items() if name != "severity"}
    assert "Severity:    middle\n" in told(renderer, "alert_opened", payload).text


def test_a_severity_in_a_publishers_own_payload_is_only_a_fact(renderer):
    text = told(renderer, "suspicious_login", {"severity": "mild"}).text
    assert "Severity:    middle\n" in text
    assert "severity:    mild\n" in text


def test_what_agents_and_rules_wrote_is_escaped_in_html(renderer):
    hostile = '<script>alert("1")</script>'
    payload = OPENED | {
        "rule_id": hostile,
        "series_key": f'ah_x{{a="{hostile}"}}',
        "labels": {hostile: hostile, "b": "{{ 7*7 }}"},
        "reason": hostile,
        "severity": hostile,
    }
    group = GROUP | {"labels": {"members": [hostile], "members_count": 1}, "group_key": hostile}
    for event_type in ("alert_opened", "alert_resolved", "alert_flapping", "alert_settled"):
        content = told(renderer, event_type, payload)
        assert "<script" not in content.html
        assert "&lt;script&gt;" in content.html
        assert hostile in content.text
        assert "49" not in content.text
        assert "\n" not in content.subject
    content = told(renderer, "group_down", group)
    assert "<script" not in content.html
    assert hostile in content.text


def test_a_label_that_the_series_shows_is_not_told_twice_whatever_is_in_it(renderer):
    labels = {"mount": '/a "b"\\\n', "unt": "x"}
    key = 'ah_x{amount="x",mount="/a \\"b\\"\\\\\\n"}'
    text = told(renderer, "alert_opened", OPENED | {"labels": labels, "series_key": key}).text
    assert 'Labels:      unt="x"\n' in text


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_NAMES = st.sampled_from(sorted({*ALERT, *GROUP, "members", "members_count", "alert_state"}))


@given(
    event_type=st.sampled_from(
        [f"alert_{kind}" for kind in ("opened", "reminder", "resolved", "flapping", "settled")]
        + ["group_down", "group_up"]
    ),
    payload=st.dictionaries(_NAMES, _VALUES),
    labels=st.dictionaries(_NAMES, _VALUES),
)
def test_whatever_a_payload_holds_there_is_a_text_of_bounded_length(
    renderer, event_type, payload, labels
):
    content = told(renderer, event_type, payload | {"labels": labels})
    assert content.subject
    assert len(content.text) < 12_000


def test_a_long_payload_is_cut(renderer):
    payload = OPENED | {
        "rule_id": "r" * 10_000,
        "series_key": "s" * 60_000,
        "labels": {f"l{number}": "x" * 10_000 for number in range(1_000)},
    }
    content = told(renderer, "alert_opened", payload)
    assert len(content.text) < 12_000
    assert len(content.subject) < 400
