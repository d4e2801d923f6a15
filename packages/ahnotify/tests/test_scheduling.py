"""Digests are made once, late rows become supplements, and no batch is lost unpublished."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest
import sqlalchemy as sa

from ahnotify import Matching, RuleCache, Scheduling
from ahnotify.broker.base import DELIVERY_DIGEST
from ahnotify.broker.sql import SqlBroker
from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.errors import BrokerUnavailableError
from ahnotify.testing import DIGEST_RULE, NOW, incident, seed
from ahwire import NotificationMessage

pytestmark = pytest.mark.anyio

HOUR_END = NOW.replace(hour=11, minute=0, second=0)
TO_DUE = (HOUR_END - NOW).total_seconds() + 60


@pytest.fixture
async def matching(database, broker, rules, directory, clock):
    await seed(directory, rules, rule=DIGEST_RULE)
    matching = Matching(
        database=database, broker=broker, rules=RuleCache(store=rules, clock=clock), clock=clock
    )
    await matching._rules.reload()
    return matching


@pytest.fixture
def scheduling(database, broker, clock):
    return Scheduling(database=database, broker=broker, clock=clock)


async def published(broker) -> list[NotificationMessage]:
    """Every digest in the queue, taken out."""
    found = []
    async with broker.consume(DELIVERY_DIGEST, prefetch_items=50) as consumer:
        with anyio.move_on_after(0.3):
            while True:
                delivery = await consumer.receive()
                found.append(NotificationMessage.from_json(delivery.body))
                await delivery.ack()
    return found


def ids(message: NotificationMessage) -> list[str]:
    return [event.event_id for event in message.incident]


async def test_nothing_is_due_before_the_grace_has_passed(matching, scheduling, broker, clock):
    await matching.decide(incident())
    await clock.advance(TO_DUE - 0.001)
    await scheduling.run_once()
    assert await published(broker) == []
    await clock.advance(0.001)
    await scheduling.run_once()
    assert len(await published(broker)) == 1


async def test_a_digest_carries_its_events_in_order_and_its_period(
    matching, scheduling, broker, clock
):
    await matching.decide(incident("late", occurred_at=NOW + timedelta(minutes=5)))
    await matching.decide(incident("early"))
    await clock.advance(TO_DUE)
    await scheduling.run_once()
    (message,) = await published(broker)
    assert ids(message) == ["early", "late"]
    digest = message.digest
    assert (digest.period_end, digest.generation, digest.events_count) == (HOUR_END, 0, 2)
    assert message.notification_uuid == digest.batch_uuid
    assert digest.batch_key == "silent:ann:email:2026-06-15T10:00:00Z"


async def test_two_schedulers_make_one_digest_of_each_group(matching, database, broker, url, clock):
    for number in range(5):
        for hour in range(3):
            await matching.decide(
                incident(f"e-{number}-{hour}", occurred_at=NOW - timedelta(hours=hour))
            )
    await clock.advance(TO_DUE)
    other = Database.open(url)
    schedulers = [
        Scheduling(database=each, broker=SqlBroker(database=each, clock=clock), clock=clock)
        for each in (database, other)
    ]
    async with anyio.create_task_group() as tasks:
        for each in schedulers * 2:
            tasks.start_soon(each.run_once)
    messages = await published(broker)
    await other.aclose()
    assert len(messages) == 3
    assert sorted(i for message in messages for i in ids(message)) == sorted(
        f"e-{number}-{hour}" for number in range(5) for hour in range(3)
    )


async def test_rows_that_come_late_form_a_supplement_and_none_is_told_twice(
    matching, scheduling, broker, clock
):
    """N10."""
    await matching.decide(incident("first"))
    await clock.advance(TO_DUE)
    await scheduling.run_once()
    for number in range(100):
        await matching.decide(incident(f"late-{number}"))
    await scheduling.run_once()
    (first,) = await published(broker)
    assert ids(first) == ["first"]
    await clock.advance(61)
    await scheduling.run_once()
    (second,) = await published(broker)
    assert second.digest.generation == 1
    assert sorted(ids(second)) == sorted(f"late-{number}" for number in range(100))
    assert second.notification_uuid != first.notification_uuid


async def test_a_supplement_waits_for_quiet_but_not_for_ever(matching, scheduling, broker, clock):
    await matching.decide(incident("first"))
    await clock.advance(TO_DUE)
    await scheduling.run_once()
    for minute in range(20):
        await matching.decide(incident(f"late-{minute}"))
        await clock.advance(30)
        await scheduling.run_once()
        if scheduling.stats["supplements"]:
            break
    assert 19 <= minute + 1 <= 20  # 10 minutes of rows every 30 s


class Unconfirmed(SqlBroker):
    """Loses the message and the confirmation once, as a broker that dies before its disk."""

    lost = 1

    async def publish(self, messages, *, delay_seconds=0):
        if messages[0].topic == DELIVERY_DIGEST and self.lost:
            self.lost -= 1
            raise BrokerUnavailableError("no confirmation")
        await super().publish(messages, delay_seconds=delay_seconds)


async def test_a_batch_that_was_not_published_is_published_with_the_same_id_and_rows(
    matching, database, broker, clock
):
    await matching.decide(incident())
    await clock.advance(TO_DUE)
    breaking = Scheduling(
        database=database, broker=Unconfirmed(database=database, clock=clock), clock=clock
    )
    with pytest.raises(BrokerUnavailableError):
        await breaking.run_once()
    async with database.read() as connection:
        stored = (await connection.execute(sa.select(t.digest_batches.c.batch_uuid))).scalar_one()
    await matching.decide(incident("later"))
    await clock.advance(31)
    await breaking.run_once()
    (message,) = await published(broker)
    assert message.notification_uuid == stored
    assert ids(message) == ["e-1"]
    await clock.advance(31)
    assert breaking.stats["republished"] == 1


async def test_a_digest_of_more_than_a_thousand_events_carries_their_count_only(
    matching, scheduling, broker, clock, database
):
    await matching.decide(incident())
    async with database.write() as connection:
        row = (await connection.execute(sa.select(t.notification_batches))).mappings().one()
        copy = {name: value for name, value in row.items() if name != "id"}
        more = [copy | {"event_id": f"copy-{number}"} for number in range(1_000)]
        await connection.execute(sa.insert(t.notification_batches), more)
    await clock.advance(TO_DUE)
    await scheduling.run_once()
    (message,) = await published(broker)
    assert message.incident == ()
    assert message.digest.events_count == 1_001


async def test_tenants_and_recipients_are_never_in_one_digest(
    matching, scheduling, broker, clock, directory, rules
):
    """N21."""
    await seed(directory, rules, tenant_id="beta", rule=DIGEST_RULE)
    await matching._rules.reload()
    await matching.decide(incident("a"))
    await matching.decide(incident("b", tenant_id="beta"))
    await clock.advance(TO_DUE)
    await scheduling.run_once()
    found = {message.tenant_id: ids(message) for message in await published(broker)}
    assert found == {"acme": ["a"], "beta": ["b"]}


async def test_the_loop_closes_what_becomes_due(matching, scheduling, broker, clock):
    await matching.decide(incident())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduling.run)
        with anyio.fail_after(10):
            while not scheduling.stats["published"]:
                await clock.advance(120)
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()
    assert len(await published(broker)) == 1
