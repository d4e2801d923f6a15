"""The built-in texts say what happened, in whole sentences, and escape what others wrote."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ahnotify.sending._content import view
from ahnotify.templates._builtin import BuiltinRenderer
from ahnotify.templates._context import DigestContext, InstantContext, RuleView
from ahnotify.templates._wording import span, when_both
from ahnotify.testing import NOW, incident

RULE = RuleView(name="R", company="Acme Ltd")
BERLIN = RuleView(name="R", company="Acme Ltd", timezone="Europe/Berlin")
#: As the server's bridge makes it of a collector's agent.up.
UP_PAYLOAD = {
    "agent_id": "0190b6f2-0000-7000-8000-00000000000a",
    "duration_seconds": 90.0,
    "labels": {
        "last_seen_at": "2026-06-15T10:16:25Z",
        "down_since": "2026-06-15T10:19:00Z",
        "down_duration_s": 90.0,
    },
    "rule_id": "agent_down",
    "seq": 1_781_518_740_000,
    "series_key": "agent",
    "server_id": "web-1",
    "suppressed": False,
}
NEVER_HEARD = {"labels": {"down_since": "2026-06-15T10:19:00Z"}}


@pytest.fixture
def renderer():
    return BuiltinRenderer()


def instant(renderer, rule=RULE, **changes):
    return renderer.render(InstantContext(event=view(incident(**changes)), rule=rule))


def digest(renderer, **changes):
    values = {
        "events": [view(incident())],
        "events_count": 1,
        "rendered_events_count": 1,
        "hidden_events_count": 0,
        "missing_event_ids": [],
        "events_audit_url": "",
        "overflow": False,
        "supplement": False,
        "period_start": NOW,
        "period_end": NOW + timedelta(hours=1),
        "rule": RULE,
    }
    return renderer.render(DigestContext(**(values | changes)))


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({}, "Server web-1 is silent since 2026-06-15 10:17:00 UTC"),
        ({"payload": {}}, "Server web-1 is silent since 2026-06-15 10:20:30 UTC"),
        ({"host": None}, "An unnamed server is silent since 2026-06-15 10:17:00 UTC"),
        ({"event_type": "agent_up"}, "Server web-1 is back after 3 minutes 30 seconds of silence"),
        (
            {"event_type": "agent_up", "payload": UP_PAYLOAD},
            "Server web-1 is back after 4 minutes 5 seconds of silence",
        ),
        (
            {"event_type": "agent_up", "payload": NEVER_HEARD},
            "Server web-1 is back; it was reported down for 1 minute 30 seconds",
        ),
        (
            {"event_type": "agent_up", "payload": UP_PAYLOAD | {"reason": "removed"}},
            "Server web-1 was removed and is no longer watched",
        ),
        (
            {"payload": {"labels": {}, "reason": "never_reported"}},
            "Server web-1 was enrolled and has never reported",
        ),
        (
            {"rule": BERLIN},
            "Server web-1 is silent since 2026-06-15 12:17:00 Europe/Berlin",
        ),
        (
            {"event_type": "agent_up", "payload": {}},
            "Server web-1 is back since 2026-06-15 10:20:30 UTC",
        ),
        ({"event_type": "suspicious_login"}, "Suspicious login on web-1"),
        ({"event_type": "policy_breach", "host": None}, "Policy breach"),
        (
            {"payload": {"last_seen_at": "not a time"}},
            "Server web-1 is silent since 2026-06-15 10:20:30 UTC",
        ),
    ],
)
def test_the_subject_says_what_happened(renderer, changes, subject):
    assert instant(renderer, **changes).subject == subject


def test_facts_of_the_payload_are_told_and_nested_ones_left_out(renderer):
    payload = {"geo": "RU", "attempts": 7, "ok": False, "nested": {"a": 1}, "nan": None, "x": ""}
    text = instant(renderer, event_type="suspicious_login", payload=payload).text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert {"geo: RU", "attempts: 7", "ok: no"} <= set(lines)
    assert "nested" not in text


def test_of_a_server_that_is_back_a_person_reads_what_a_person_asks(renderer):
    content = instant(renderer, BERLIN, event_type="agent_up", payload=UP_PAYLOAD)
    assert content.text == (
        """\
Server web-1 is back after 4 minutes 5 seconds of silence.

Its agent is reporting again and sends what it measured in the meantime.

Server:      web-1
Company:     Acme Ltd
Last heard:  2026-06-15 12:16:25 Europe/Berlin (10:16:25 UTC)
Noticed:     2026-06-15 12:19:00 Europe/Berlin (10:19:00 UTC)
Heard again: 2026-06-15 12:20:30 Europe/Berlin (10:20:30 UTC)
Silent for:  4 minutes 5 seconds
Severity:    high
Agent:       0190b6f2-0000-7000-8000-00000000000a

You get this because of the notification rule "R".
"""
    )
    for internal in ("series_key", "seq", "suppressed", "rule_id", "server_id", "agent_down"):
        assert internal not in content.html


def test_an_agent_that_never_reported_is_told_so_without_a_time_of_silence(renderer):
    text = instant(renderer, payload={"reason": "never_reported", "labels": {}}).text
    assert "silent" not in text
    assert "Last heard" not in text
    assert "Reason:      nothing was ever received from its agent\n" in text
    assert "Noticed:     2026-06-15 10:20:30 UTC\n" in text


def test_facts_of_an_alert_are_told_without_what_only_programs_read(renderer):
    payload = {"value": 97.5, "threshold": 90.0, "rule_id": "r", "seq": 1, "series_key": "cpu"}
    text = instant(renderer, event_type="alert_opened", payload=payload).text
    assert "97.5" in text
    assert "series_key" not in text


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2026-06-15 10:20:30 UTC"),
        ("Africa/Abidjan", "2026-06-15 10:20:30 Africa/Abidjan"),
        ("Asia/Seoul", "2026-06-15 19:20:30 Asia/Seoul (10:20:30 UTC)"),
        ("Pacific/Kiritimati", "2026-06-16 00:20:30 Pacific/Kiritimati (2026-06-15 10:20:30 UTC)"),
        ("No/Where", "2026-06-15 10:20:30 UTC"),
        ("../x", "2026-06-15 10:20:30 UTC"),
    ],
)
def test_times_are_told_in_the_rules_zone_with_utc_beside_them(zone, text):
    assert when_both(NOW, zone) == text


def test_a_digest_tells_its_times_in_the_rules_zone(renderer):
    content = digest(renderer, rule=BERLIN)
    assert "from 2026-06-15 12:20:30 Europe/Berlin (10:20:30 UTC)" in content.text
    assert "- 2026-06-15 12:20:30 Europe/Berlin  Server web-1 is silent since" in content.text


def test_a_payload_is_bounded(renderer):
    payload = {f"name-{number}": "x" * 10_000 for number in range(100)}
    assert len(instant(renderer, payload=payload).text) < 6_000


def test_html_is_escaped_and_text_is_not(renderer):
    content = instant(renderer, host='a<b>&"', event_type="<script>")
    assert "a<b>&" in content.text
    assert "<script>" not in content.html
    assert "a&lt;b&gt;&amp;" in content.html


def test_template_code_in_an_event_is_only_text(renderer):
    content = instant(renderer, host="{{ 7*7 }}{% raw %}")
    assert "{{ 7*7 }}" in content.text
    assert "49" not in content.subject


def test_a_digest_says_how_many_are_not_shown(renderer):
    content = digest(
        renderer,
        events_count=25,
        hidden_events_count=24,
        events_audit_url="https://hub.example/batches/b",
        overflow=True,
        supplement=True,
    )
    assert content.subject == '25 events for "R" on web-1 and others (supplement)'
    for sentence in ("and 24 more", "came too often", "arrived after it", "batches/b"):
        assert sentence in content.text
        assert sentence in content.html


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "less than a second"),
        (1, "1 second"),
        (59, "59 seconds"),
        (60, "1 minute"),
        (7_200, "2 hours"),
        (86_400, "1 day"),
        (200_000, "2 days 7 hours"),
        (86_400 + 3, "1 day"),
        (7_140, "1 hour 59 minutes"),
    ],
)
def test_lengths_of_time_are_for_people(seconds, text):
    assert span(seconds) == text
