"""The built-in texts say what happened, in whole sentences, and escape what others wrote."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ahnotify.sending._content import view
from ahnotify.templates._builtin import BuiltinRenderer, span
from ahnotify.templates._context import DigestContext, InstantContext
from ahnotify.testing import NOW, incident


@pytest.fixture
def renderer():
    return BuiltinRenderer()


def instant(renderer, **changes):
    return renderer.render(InstantContext(event=view(incident(**changes)), rule_name="R"))


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
        "rule_name": "R",
    }
    return renderer.render(DigestContext(**(values | changes)))


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({}, "Server web-1 is silent since 2026-06-15 10:17:00 UTC"),
        ({"payload": {}}, "Server web-1 is silent since 2026-06-15 10:20:30 UTC"),
        ({"host": None}, "An unnamed server is silent since 2026-06-15 10:17:00 UTC"),
        ({"event_type": "agent_up"}, "Server web-1 is back after 3 minutes of silence"),
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
    text = instant(renderer, payload=payload).text
    assert "geo: RU" in text
    assert "attempts: 7" in text
    assert "ok: no" in text
    assert "nested" not in text


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
        (200_000, "2 days"),
    ],
)
def test_lengths_of_time_are_for_people(seconds, text):
    assert span(seconds) == text
