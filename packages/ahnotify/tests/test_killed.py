"""kill -9 between the provider's answer and our commit: counted unknown, never doubled silently."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import sqlalchemy as sa

from ahnotify import Channel, Matching, RuleCache, Sending, publish_incidents
from ahnotify.broker.base import INCIDENT_EVENTS
from ahnotify.database import _runtime_tables as t
from ahnotify.providers.base import UnknownPolicy
from ahnotify.providers.email import EmailProvider
from ahnotify.testing import incident, seed

pytestmark = [pytest.mark.anyio, pytest.mark.fault]


async def rows(database, table, *names):
    async with database.read() as connection:
        query = sa.select(*(table.c[name] for name in names))
        return [tuple(row) for row in (await connection.execute(query)).all()]


async def match(database, broker, rules, clock):
    await publish_incidents(broker, [incident()])
    matching = Matching(
        database=database, broker=broker, rules=RuleCache(store=rules, clock=clock), clock=clock
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(matching.run)
        with anyio.fail_after(10):
            while (await broker.depth(INCIDENT_EVENTS)).ready or not matching.stats["published"]:
                await anyio.sleep(0.02)
                await clock.advance(0.05)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("policy", [UnknownPolicy.RESEND, UnknownPolicy.STOP])
async def test_a_sender_killed_after_the_call_leaves_an_unknown_end(
    database, broker, url, directory, rules, clock, sink, smtp_port, settings, policy
):
    await seed(directory, rules)
    await match(database, broker, rules, clock)
    child = await anyio.run_process(
        [
            sys.executable,
            str(Path(__file__).with_name("killed_sender.py")),
            url,
            str(smtp_port),
            str(clock.time()),
        ],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=None,
    )
    assert child.returncode == -signal.SIGKILL
    assert len(sink.mails) == 1
    assert await rows(database, t.delivery_targets, "status", "tries") == [("pending", 1)]

    await clock.advance(120)  # past the leases of the message and of the target
    channel = Channel(provider=EmailProvider(clock=clock), settings=settings, unknown_policy=policy)
    survivor = Sending(database=database, broker=broker, channels={"email": channel}, clock=clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(survivor.run)
        with anyio.fail_after(10):
            while not any(at for (at,) in await rows(database, t.delivery_results, "finished_at")):
                await anyio.sleep(0.02)
                await clock.advance(0.05)
        tasks.cancel_scope.cancel()

    assert survivor.stats["unknown"] == 1
    ((status, unknown),) = await rows(database, t.delivery_targets, "status", "unknown_count")
    calls = [row[0] for row in await rows(database, t.delivery_attempts, "status")]
    assert unknown == 1
    if policy == UnknownPolicy.STOP:
        assert (status, calls, len(sink.mails)) == ("unknown", ["unknown"], 1)
    else:
        assert (status, calls, len(sink.mails)) == ("sent", ["unknown", "sent"], 2)
        assert len({mail["Message-ID"] for mail in sink.mails}) == 1
