"""Incident in, e-mail out, over a real SQLite file and a real mail server."""

from __future__ import annotations

import pytest

from ahnotify.matching import publish_incidents
from ahnotify.testing import incident, seed

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
