"""Decisions are stored once and followed as they stand."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest
import sqlalchemy as sa

from ahnotify import Matching, RuleCache, publish_incidents
from ahnotify.broker.base import DEAD_LETTERS, DELIVERY_INSTANT, INCIDENT_EVENTS, INCIDENTS, Message
from ahnotify.broker.sql import SqlBroker
from ahnotify.database import _runtime_tables as t
from ahnotify.errors import BrokerUnavailableError
from ahnotify.matching._decisions import Decision, DecisionKey, DecisionStore
from ahnotify.testing import DIGEST_RULE, INSTANT_RULE, NOW, incident, seed
from ahrules import LocalLimiter, RateLimit, TokenBucketLimiter
from ahwire import NotificationMessage

pytestmark = pytest.mark.anyio


async def rows(database, table, *columns):
    query = sa.select(*(table.c[name] for name in columns)) if columns else sa.select(table)
    async with database.read() as connection:
        return [tuple(row) for row in (await connection.execute(query)).all()]


@pytest.fixture
def make(database, broker, rules, clock):
    def matching(**options) -> Matching:
        cache = RuleCache(store=rules, clock=clock)
        return Matching(
            **({"database": database, "broker": broker, "rules": cache, "clock": clock} | options)
        )

    return matching


async def ready(matching: Matching) -> Matching:
    await matching._rules.reload(full=True)
    return matching


async def run_until(part, condition):
    """Run `part` until the coroutine function `condition` says so."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(part.run)
        with anyio.fail_after(10):
            while not await condition():
                await anyio.sleep(0.02)
                await part._clock.advance(0.05)
        tasks.cancel_scope.cancel()


async def empty(broker, queue):
    depth = await broker.depth(queue)
    return depth.ready + depth.unacked == 0


async def test_an_event_gives_one_decision_a_recipient_and_channel(
    database, make, directory, rules
):
    people = [{"recipient_type": "user", "recipient_id": name} for name in ("ann", "bob")]
    await seed(
        directory, rules, rule=INSTANT_RULE | {"recipients": people, "channels": ["email", "sms"]}
    )
    matching = await ready(make())
    await matching.decide(incident())
    found = await rows(database, t.notification_decisions, "channel", "recipient_id", "mode")
    assert sorted(found) == [
        (channel, name, "instant") for channel in ("email", "sms") for name in ("ann", "bob")
    ]


async def test_an_event_that_comes_again_changes_nothing_even_after_its_rule_was_edited(
    database, make, directory, rules
):
    await seed(directory, rules)
    matching = await ready(make())
    await matching.decide(incident())
    before = await rows(database, t.notification_decisions)
    await rules.put("acme", "silent", DIGEST_RULE)
    await matching._rules.reload()
    await matching.decide(incident())
    assert await rows(database, t.notification_decisions) == before
    assert await rows(database, t.notification_batches) == []


async def test_ids_are_the_same_in_every_process_and_differ_by_tenant(
    database, make, directory, rules
):
    for tenant in ("acme", "beta"):
        await seed(directory, rules, tenant_id=tenant)
    matching = await ready(make())
    await matching.decide(incident(tenant_id="acme"))
    await matching.decide(incident(tenant_id="beta"))
    found = dict(await rows(database, t.notification_decisions, "tenant_id", "notification_uuid"))
    assert found["acme"] != found["beta"]
    # A golden value: changing how ids are made would send every stored notification again.
    assert found["acme"] == "5709bce6-4845-5c6d-8cc2-178e8566d408"


def local(default):
    return LocalLimiter(TokenBucketLimiter(default=default))


async def test_over_the_limit_events_go_to_a_five_minute_digest(database, make, directory, rules):
    """N22."""
    await seed(directory, rules)
    matching = await ready(make(limiter=local(RateLimit(count=1))))
    await matching.decide(incident("e-1"))
    await matching.decide(incident("e-2"))
    found = await rows(database, t.notification_decisions, "event_id", "mode")
    assert sorted(found) == [("e-1", "instant"), ("e-2", "instant_overflow")]
    (row,) = await rows(
        database, t.notification_batches, "event_id", "schedule_mode", "period_start", "period_end"
    )
    start = NOW.replace(minute=20, second=0)
    assert row == ("e-2", "instant_overflow", start, start + timedelta(minutes=5))


async def test_a_rule_has_its_own_limit(database, make, directory, rules):
    await seed(directory, rules, rule=INSTANT_RULE | {"rate_limit": {"count": 2}})
    matching = await ready(make())
    for number in range(3):
        await matching.decide(incident(f"e-{number}"))
    modes = [mode for (mode,) in await rows(database, t.notification_decisions, "mode")]
    assert sorted(modes) == ["instant", "instant", "instant_overflow"]


async def test_two_processes_that_decide_at_once_spend_one_token(database, make, directory, rules):
    await seed(directory, rules)
    limiter = local(RateLimit(count=2))
    first, second = await ready(make(limiter=limiter)), await ready(make(limiter=limiter))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.decide, incident("e-1"))
        tasks.start_soon(second.decide, incident("e-1"))
    await first.decide(incident("e-2"))
    modes = [mode for (mode,) in await rows(database, t.notification_decisions, "mode")]
    assert modes == ["instant", "instant"]


@pytest.mark.parametrize(
    ("before_end", "hour"),
    [(timedelta(0), 11), (timedelta(microseconds=1), 10)],
)
async def test_an_event_at_a_buckets_end_is_in_the_next_one_only(
    database, make, directory, rules, before_end, hour
):
    """N5."""
    await seed(directory, rules, rule=DIGEST_RULE)
    matching = await ready(make())
    end = NOW.replace(hour=11, minute=0, second=0)
    await matching.decide(incident(occurred_at=end - before_end))
    ((start,),) = await rows(database, t.notification_batches, "period_start")
    assert start == end.replace(hour=hour)


async def test_a_digest_is_counted_in_the_tenants_time_zone(database, make, directory, rules):
    rule = DIGEST_RULE | {"schedule": {"mode": "digest", "interval": 1, "unit": "days"}}
    await seed(directory, rules, rule=rule)
    await directory.put_tenant("acme", timezone="Asia/Ho_Chi_Minh")
    matching = await ready(make())
    await matching.decide(incident())
    ((start,),) = await rows(database, t.notification_batches, "period_start")
    assert start == NOW.replace(day=14, hour=17, minute=0, second=0)


async def test_an_event_that_cannot_be_decoded_is_a_dead_letter_with_its_reason(
    broker, make, directory, rules
):
    await seed(directory, rules)
    await broker.publish([Message(topic=INCIDENTS, body=b'{"event_id": "e"}', message_id="bad")])

    async def buried() -> bool:
        return (await broker.depth(DEAD_LETTERS)).ready == 1

    await run_until(make(), buried)
    async with broker.consume(DEAD_LETTERS, prefetch_items=1) as consumer:
        letter = await consumer.receive()
    assert letter.headers["source_queue"] == INCIDENT_EVENTS
    assert letter.headers["reason"] == "cannot be decoded: tenant_id: is missing"


async def test_a_rule_that_cannot_be_followed_does_not_stop_the_others(
    broker, database, make, directory, rules
):
    await seed(directory, rules)
    await rules.put("acme", "asks", INSTANT_RULE | {"predicates": [{"lookup": "cmdb"}]})
    await publish_incidents(broker, [incident()])

    async def buried() -> bool:
        return (await broker.depth(DEAD_LETTERS)).ready == 1

    await run_until(make(), buried)
    assert await rows(database, t.notification_decisions, "rule_id") == [("silent",)]
    async with broker.consume(DEAD_LETTERS, prefetch_items=1) as consumer:
        assert "asks" in (await consumer.receive()).headers["reason"]


class BreakingBroker(SqlBroker):
    """Takes a message and then fails to say so, as a lost confirmation does."""

    failures = 1

    async def publish(self, messages, *, delay_seconds=0):
        await super().publish(messages, delay_seconds=delay_seconds)
        if messages[0].topic == DELIVERY_INSTANT and self.failures:
            self.failures -= 1
            raise BrokerUnavailableError("no confirmation")


async def test_a_lost_confirmation_is_published_again_under_the_same_id(
    database, make, directory, rules, clock
):
    await seed(directory, rules)
    broker = BreakingBroker(database=database, clock=clock)
    await publish_incidents(broker, [incident()])
    matching = make(broker=broker)

    async def published() -> bool:
        await clock.advance(2)
        marks = await rows(database, t.notification_decisions, "published_at")
        return bool(marks) and marks[0][0] is not None

    await run_until(matching, published)
    async with broker.consume(DELIVERY_INSTANT, prefetch_items=2) as consumer:
        first, second = await consumer.receive(), await consumer.receive()
    assert first.message_id == second.message_id
    assert NotificationMessage.from_json(first.body) == NotificationMessage.from_json(second.body)


async def test_one_tenants_flood_waits_in_the_database_and_lets_another_pass(
    database, broker, make, directory, rules
):
    for tenant in ("acme", "beta"):
        await seed(
            directory, rules, tenant_id=tenant, rule=INSTANT_RULE | {"rate_limit": {"count": 1000}}
        )
    events = [incident(f"e-{number}") for number in range(12)]
    await publish_incidents(broker, [*events, incident("e-b", tenant_id="beta")])
    # prefetch 2, one consumer: at most 4 of a tenant's jobs are in the broker.
    matching = make(prefetch_items=2, consumers=1)

    async def decided() -> bool:
        return await empty(broker, INCIDENT_EVENTS)

    await run_until(matching, decided)
    assert len(await rows(database, t.notification_decisions)) == 13
    async with broker.consume(DELIVERY_INSTANT, prefetch_items=20) as consumer:
        tenants = []
        with anyio.move_on_after(0.3):
            while True:
                tenants.append((await consumer.receive()).tenant_id)
    assert tenants.count("acme") == 4
    assert tenants.count("beta") == 1


async def test_matching_waits_for_its_rules(broker, database, make, rules, directory, clock):
    await seed(directory, rules)
    await publish_incidents(broker, [incident()])
    matching = make()

    async def matched() -> bool:
        return len(await rows(database, t.notification_decisions)) == 1

    await run_until(matching, matched)


async def test_a_decision_that_somebody_else_stored_first_is_not_stored_again(database):
    event = incident()
    key = DecisionKey("silent", "email", "user", "ann")
    period = (NOW, NOW + timedelta(hours=1))
    decision = Decision(key=key, notification_uuid="n", mode="digest", period=period)
    store = DecisionStore(database=database)
    assert await store.add(event, [decision], NOW) == {key}
    assert await store.add(event, [decision], NOW) == set()
    assert await rows(database, t.notification_batches, "event_id") == [("e-1",)]
    # Even one that would be decided otherwise now: what is stored is followed as it stands.
    other = Decision(key=key, notification_uuid="n", mode="instant", message=b"{}")
    assert await store.add(event, [other], NOW) == set()
    assert await rows(database, t.notification_decisions, "mode") == [("digest",)]
