"""Incident in, e-mail out, over a real SQLite file and a real mail server."""

from __future__ import annotations

import pytest

from ahnotify.matching import publish_incidents
from ahnotify.testing import DIGEST_RULE, INSTANT_RULE, NOW, incident, seed

pytestmark = pytest.mark.anyio


async def test_an_incident_becomes_one_mail_that_names_the_server(
    center, broker, directory, rules, sink
):
    await seed(directory, rules)
    await center.cache.reload()
    await publish_incidents(broker, [incident()])
    await center.until(lambda: sink.mails)
    await center.settle()
    (mail,) = sink.mails
    assert mail["Subject"] == "Server web-1 is silent since 2026-06-15 10:17:00 UTC"
    assert mail["To"] == "ann@acme.example"
    assert "web-1" in mail.get_body(("plain",)).get_content()
    assert "web-1" in mail.get_body(("html",)).get_content()
    assert center.sending.stats["sent"] == 1


async def test_a_server_that_is_back_is_told_with_how_long_it_was_away(
    center, broker, directory, rules, sink
):
    await seed(directory, rules)
    await center.cache.reload()
    labels = {
        "last_seen_at": "2026-06-15T10:16:25Z",
        "down_since": "2026-06-15T10:17:00Z",
        "down_duration_s": 210,
    }
    await publish_incidents(broker, [incident(event_type="agent_up", payload={"labels": labels})])
    await center.until(lambda: sink.mails)
    assert sink.mails[0]["Subject"] == ("Server web-1 is back after 4 minutes 5 seconds of silence")


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({}, "Asia/Seoul (10:17:00 UTC)"),
        ({"timezone": "Europe/Berlin"}, "Europe/Berlin (10:17:00 UTC)"),
    ],
)
async def test_a_mail_tells_times_in_the_zone_of_its_rule_else_of_its_tenant(
    center, broker, directory, rules, sink, own, text
):
    await seed(directory, rules, rule=INSTANT_RULE | own)
    await directory.put_tenant("acme", name="Acme Ltd", timezone="Asia/Seoul")
    await center.cache.reload()
    await publish_incidents(broker, [incident()])
    await center.until(lambda: sink.mails)
    content = sink.mails[0].get_body(("plain",)).get_content()
    assert text in content
    assert "Company:     Acme Ltd" in content


async def test_an_incident_that_is_delivered_again_brings_no_second_mail(
    center, broker, directory, rules, sink
):
    await seed(directory, rules)
    await center.cache.reload()
    await publish_incidents(broker, [incident(), incident()])
    await center.until(lambda: sink.mails)
    await publish_incidents(broker, [incident()])
    await center.until(lambda: center.matching.stats["events"] == 3)
    await center.settle()
    assert len(sink.mails) == 1


async def test_a_digest_tells_every_event_once_with_its_server(
    center, broker, directory, rules, sink
):
    await seed(directory, rules, rule=DIGEST_RULE)
    await center.cache.reload()
    events = [incident(f"e-{number}", host=f"web-{number}") for number in range(3)]
    await publish_incidents(broker, events)
    await center.until(lambda: center.matching.stats["decisions_digest"] == 3)
    await center.until(lambda: sink.mails, step_seconds=60)
    await center.settle()
    (mail,) = sink.mails
    text = mail.get_body(("plain",)).get_content()
    assert mail["Subject"] == '3 events for "Silent servers" on web-0, web-1, web-2'
    assert all(f"Server web-{number} is silent since" in text for number in range(3))
    assert "more in this period" not in text
    assert "came too often" not in text


async def test_two_events_at_a_limit_of_one_are_one_instant_mail_and_one_overflow_digest(
    center, broker, directory, rules, sink
):
    """N22."""
    await seed(directory, rules, rule=INSTANT_RULE | {"rate_limit": {"count": 1}})
    await center.cache.reload()
    await publish_incidents(broker, [incident("e-1"), incident("e-2", host="web-2")])
    await center.until(lambda: len(sink.mails) == 2, step_seconds=20)
    first, second = sink.mails
    assert first["Subject"].startswith("Server web-")
    assert second["Subject"].startswith("1 event for")
    assert "came too often" in second.get_body(("plain",)).get_content()


async def test_two_tenants_with_the_same_recipient_get_two_mails_with_nothing_foreign(
    center, broker, directory, rules, sink
):
    """N21."""
    for tenant in ("acme", "beta"):
        await seed(directory, rules, tenant_id=tenant)
    await center.cache.reload()
    await publish_incidents(
        broker,
        [incident(host="acme-host"), incident(tenant_id="beta", host="beta-host")],
    )
    await center.until(lambda: len(sink.mails) == 2)
    for tenant, other in (("acme", "beta"), ("beta", "acme")):
        (mail,) = sink.to(f"ann@{tenant}.example")
        assert f"{tenant}-host" in mail["Subject"]
        assert other not in mail.as_string()


async def test_a_digest_waits_for_missing_events_and_then_names_them(
    database, broker, rules, channels, clock, directory, sink, center_without_incidents
):
    """N24."""
    center = center_without_incidents
    await seed(directory, rules, rule=DIGEST_RULE)
    await center.cache.reload()
    known, missing = incident("known"), incident("missing")
    await center.store.write([known])
    await publish_incidents(broker, [known, missing])
    await center.until(lambda: center.matching.stats["decisions_digest"] == 2)
    hour_end = NOW.replace(hour=11, minute=0, second=0)
    await clock.advance((hour_end - NOW).total_seconds() + 60)
    await center.until(lambda: center.sending.stats["events_missing"] >= 1)
    await center.until(lambda: center.sending.stats["events_missing"] >= 2, step_seconds=5)
    assert sink.mails == []
    await center.until(lambda: sink.mails, step_seconds=10)
    text = sink.mails[0].get_body(("plain",)).get_content()
    assert "Details not yet available for 1: missing" in text
    assert center.sending.stats["retried"] == 0


async def test_a_mail_that_the_server_dropped_after_data_comes_again_with_the_same_id(
    center, broker, directory, rules, sink
):
    """N13."""
    sink.drop_after_data = 1
    await seed(directory, rules)
    await center.cache.reload()
    await publish_incidents(broker, [incident()])
    await center.until(lambda: len(sink.mails) == 2, step_seconds=5)
    await center.until(lambda: center.sending.stats["sent"] == 1)
    assert center.sending.stats["unknown"] == 1
    assert len({mail["Message-ID"] for mail in sink.mails}) == 1
