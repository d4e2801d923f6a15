"""Each target once, retries on time, unknown ends counted, dead letters told."""

from __future__ import annotations

import itertools

import anyio
import pytest
import sqlalchemy as sa

from ahnotify import DeadLetterRecorder, History, Sending
from ahnotify.broker.base import DEAD_LETTERS, DELIVERY_INSTANT, Message
from ahnotify.database import _runtime_tables as t
from ahnotify.errors import (
    ConfigurationError,
    PermanentProviderError,
    TemporaryProviderError,
    UnknownOutcomeError,
)
from ahnotify.providers.base import Channel, ProviderResult, UnknownPolicy
from ahnotify.testing import incident, seed
from ahwire import NotificationMessage
from ahwire import notification as wire

pytestmark = pytest.mark.anyio


class Scripted:
    """A provider that does what the test says, call by call, and then accepts."""

    def __init__(self, *outcomes) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[float, str, str]] = []
        self.clock = None

    async def send(self, message, contact, settings):
        self.calls.append((self.clock.time(), contact.address, message.reference))
        outcome = self.outcomes.pop(0) if self.outcomes else ProviderResult()
        if isinstance(outcome, dict):
            outcome = outcome.get(contact.address, ProviderResult())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def message(event_id="e-1", recipient=("user", "ann"), channel="email") -> NotificationMessage:
    return NotificationMessage(
        notification_uuid="00000000-0000-5000-8000-" + event_id.encode().hex().zfill(12)[-12:],
        tenant_id="acme",
        incident=(incident(event_id),),
        rule_id="silent",
        recipient=wire.Recipient(
            recipient_type=wire.RecipientType(recipient[0]), recipient_id=recipient[1]
        ),
        channel=wire.Channel(channel=wire.ChannelType(channel)),
        delivery_mode=wire.DeliveryMode.INSTANT,
    )


async def publish(broker, *messages: NotificationMessage) -> None:
    await broker.publish(
        [
            Message(
                topic=DELIVERY_INSTANT,
                body=each.to_json(),
                message_id=f"{each.notification_uuid}:0",
                tenant_id="acme",
            )
            for each in messages
        ]
    )


class Post:
    """A sending zone with a scripted provider, and what it left behind."""

    def __init__(self, database, broker, clock, directory, rules) -> None:
        self.database, self.broker, self.clock = database, broker, clock
        self.directory, self.rules = directory, rules
        self.recorder = DeadLetterRecorder(database=database, broker=broker, clock=clock)

    def zone(self, provider, **options) -> Sending:
        provider.clock = self.clock
        policy = options.pop("unknown_policy", UnknownPolicy.RESEND)
        channel = Channel(provider=provider, settings=None, unknown_policy=policy)
        return Sending(
            database=self.database,
            broker=self.broker,
            channels={"email": channel},
            clock=self.clock,
            **options,
        )

    async def run(self, *parts, until, step_seconds=0.0) -> None:
        async with anyio.create_task_group() as tasks:
            for part in parts:
                tasks.start_soon(part.run)
            with anyio.fail_after(20):
                while not await until():
                    await anyio.sleep(0.01)
                    # Pollers wake by the clock, so it never stands quite still; and it makes no
                    # leap while a message is in work, or a lease would run out in no time.
                    depth = await self.broker.depth(DELIVERY_INSTANT)
                    at_work = depth.ready + depth.unacked > 0
                    await self.clock.advance(0.05 if at_work else max(step_seconds, 0.05))
            tasks.cancel_scope.cancel()

    async def rows(self, table, *names):
        async with self.database.read() as connection:
            query = sa.select(*(table.c[name] for name in names))
            return [tuple(row) for row in (await connection.execute(query)).all()]

    async def finished(self) -> bool:
        found = await self.rows(t.delivery_results, "finished_at")
        return bool(found) and all(at is not None for (at,) in found)

    async def drained(self) -> bool:
        depth = await self.broker.depth(DELIVERY_INSTANT)
        return await self.finished() and depth.ready + depth.unacked == 0


@pytest.fixture
async def post(database, broker, clock, directory, rules):
    await seed(directory, rules)
    return Post(database, broker, clock, directory, rules)


async def test_a_message_is_sent_once_and_its_copies_are_only_acked(post, broker):
    provider = Scripted()
    await publish(broker, message(), message(), message())
    await post.run(post.zone(provider), until=post.drained)
    assert len(provider.calls) == 1
    assert await post.rows(t.delivery_results, "status", "attempt") == [("sent", 1)]


async def test_two_processes_with_copies_of_one_message_send_it_once(post, broker):
    provider = Scripted()
    await publish(broker, *[message()] * 6)
    await post.run(post.zone(provider), post.zone(provider), until=post.drained, step_seconds=0.5)
    assert len(provider.calls) == 1


async def test_a_channel_that_always_fails_is_tried_four_times_on_time_then_is_dead(
    post, broker, clock
):
    """N1."""
    provider = Scripted(*[TemporaryProviderError("busy")] * 9)
    await publish(broker, message())
    zone = post.zone(provider)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(zone.run)
        tasks.start_soon(post.recorder.run)
        for number, delay in enumerate((60, 300, 1_800), start=1):
            with anyio.fail_after(10):
                while zone.stats["retried"] < number:
                    await anyio.sleep(0.01)
                    await clock.advance(0.05)
            ((due,),) = await post.rows(t.delivery_targets, "next_attempt_at")
            assert len(provider.calls) == number
            waited = due.timestamp() - provider.calls[-1][0]
            assert delay - 0.001 <= waited < delay + 30
            await clock.advance(due.timestamp() - 1 - clock.time())
            await anyio.sleep(0.2)
            assert len(provider.calls) == number
        with anyio.fail_after(10):
            while not await post.rows(t.dead_letters, "reason"):
                await anyio.sleep(0.01)
                await clock.advance(0.05)
        await clock.advance(7_200)
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    assert len(provider.calls) == 4
    assert len({reference for _, _, reference in provider.calls}) == 1
    ((tenant, reason, attempts),) = await post.rows(
        t.dead_letters, "tenant_id", "reason", "attempts"
    )
    assert (tenant, reason, attempts) == ("acme", "delivery failed: busy", 4)
    assert await post.rows(t.delivery_results, "status", "attempt", "error_code") == [
        ("failed", 4, "busy")
    ]


async def test_a_permanent_refusal_is_dead_at_once(post, broker):
    provider = Scripted(PermanentProviderError("no_such_user", "gone"))
    await publish(broker, message())
    await post.run(post.zone(provider), until=post.drained)
    assert len(provider.calls) == 1
    assert (await broker.depth(DEAD_LETTERS)).ready == 1
    attempts = await post.rows(t.delivery_attempts, "status", "error_code", "error_message")
    assert attempts == [("failed", "no_such_user", "gone")]


async def test_a_provider_that_asks_to_wait_is_obeyed_and_no_attempt_is_spent(post, broker, clock):
    provider = Scripted(*[TemporaryProviderError("slow_down", retry_after_seconds=35)] * 6)
    start = clock.time()
    await publish(broker, message())
    await post.run(post.zone(provider), until=post.finished, step_seconds=5)
    waits = [at - start for at, _, _ in provider.calls]
    assert len(waits) == 7
    assert all(b - a >= 35 for a, b in itertools.pairwise(waits))
    assert await post.rows(t.delivery_targets, "status", "attempt", "tries") == [("sent", 1, 7)]


async def test_of_a_team_one_is_refused_one_waits_and_the_others_get_it_once(
    post, broker, directory
):
    """N12."""
    names = [f"u{number}" for number in range(10)]
    for name in names:
        await directory.put_recipient("acme", "user", name)
        await directory.put_contact(
            "acme", "user", name, "email", f"{name}@acme.example", verified=True
        )
    await directory.put_recipient("acme", "team", "soc", members=[("user", name) for name in names])
    refused = {
        "u3@acme.example": PermanentProviderError("recipient_550"),
        "u7@acme.example": TemporaryProviderError("recipient_451"),
    }
    provider = Scripted(*[refused] * 10)
    await publish(broker, message(recipient=("team", "soc")))
    await post.run(post.zone(provider), until=post.finished, step_seconds=5)
    called = [address for _, address, _ in provider.calls]
    assert sorted(called) == sorted(
        [f"{name}@acme.example" for name in names] + ["u7@acme.example"]
    )
    statuses = [status for (status,) in await post.rows(t.delivery_targets, "status")]
    assert (statuses.count("sent"), statuses.count("failed")) == (9, 1)
    assert await post.rows(t.delivery_results, "status", "error_code") == [
        ("failed", "recipient_550")
    ]


async def test_an_unknown_end_is_counted_and_sent_again_under_the_same_reference(post, broker):
    provider = Scripted(UnknownOutcomeError("data_lost", reference="<ref>"))
    await publish(broker, message())
    zone = post.zone(provider)
    await post.run(zone, until=post.finished, step_seconds=5)
    assert zone.stats["unknown"] == 1
    assert len({reference for _, _, reference in provider.calls}) == 1
    assert await post.rows(t.delivery_targets, "status", "unknown_count") == [("sent", 1)]
    assert [row[0] for row in await post.rows(t.delivery_attempts, "status")] == ["unknown", "sent"]


async def test_an_unknown_end_may_be_left_alone_by_policy(post, broker):
    provider = Scripted(UnknownOutcomeError("data_lost", reference="<ref>"))
    await publish(broker, message())
    zone = post.zone(provider, unknown_policy=UnknownPolicy.STOP)
    await post.run(zone, until=post.drained)
    assert len(provider.calls) == 1
    assert await post.rows(t.delivery_results, "status") == [("unknown",)]


async def test_a_call_that_takes_too_long_is_unknown(post, broker, clock):
    class Hanging(Scripted):
        async def send(self, message, contact, settings):
            await super().send(message, contact, settings)
            await anyio.sleep(60)

    provider = Hanging()
    provider.clock = clock
    channel = Channel(
        provider=provider,
        settings=None,
        attempt_timeout_seconds=0.1,
        unknown_policy=UnknownPolicy.STOP,
    )
    zone = Sending(database=post.database, broker=broker, channels={"email": channel}, clock=clock)
    await publish(broker, message())
    await post.run(zone, until=post.drained)
    assert await post.rows(t.delivery_targets, "status", "error_code") == [("unknown", "timeout")]


async def test_cancelling_finishes_the_running_call_and_records_it(post, broker, clock):
    began = anyio.Event()

    class Slow(Scripted):
        async def send(self, message, contact, settings):
            result = await super().send(message, contact, settings)
            began.set()
            await anyio.sleep(0.2)
            return result

    provider = Slow()
    await publish(broker, message())
    zone = post.zone(provider)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(zone.run)
        with anyio.fail_after(5):
            await began.wait()
        tasks.cancel_scope.cancel()
    assert await post.rows(t.delivery_targets, "status") == [("sent",)]
    await post.run(post.zone(provider), until=post.drained)
    assert len(provider.calls) == 1


async def test_a_recipient_without_a_usable_contact_is_a_dead_letter_with_that_reason(
    post, broker, directory
):
    await directory.put_recipient("acme", "user", "bob")
    await directory.put_contact("acme", "user", "bob", "email", "bob@acme.example")
    await publish(broker, message(recipient=("user", "bob")))
    zone = post.zone(Scripted())

    async def recorded() -> bool:
        return bool(await post.rows(t.dead_letters, "reason"))

    await post.run(zone, post.recorder, until=recorded)
    ((reason,),) = await post.rows(t.dead_letters, "reason")
    assert reason == (
        "no_contacts: rule 'silent' tells user 'bob', who has no enabled and verified contact for "
        "'email'; add one, or verify the one that is there"
    )
    assert await post.rows(t.delivery_results, "status", "error_code") == [
        ("failed", "no_contacts")
    ]


async def test_a_contact_made_after_the_snapshot_is_found(post, broker, directory):
    provider = Scripted()
    zone = post.zone(provider)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(zone.run)
        await anyio.sleep(0.1)
        await directory.put_recipient("acme", "user", "new")
        await directory.put_contact(
            "acme", "user", "new", "email", "new@acme.example", verified=True
        )
        await publish(broker, message(recipient=("user", "new")))
        with anyio.fail_after(5):
            while not provider.calls:
                await anyio.sleep(0.01)
                await post.clock.advance(0.05)
        tasks.cancel_scope.cancel()


async def test_a_channel_without_a_provider_is_said_so(post, broker):
    await publish(broker, message(channel="sms"))

    async def recorded() -> bool:
        return bool(await post.rows(t.dead_letters, "reason"))

    await post.run(post.zone(Scripted()), post.recorder, until=recorded)
    ((reason,),) = await post.rows(t.dead_letters, "reason")
    assert reason == (
        "channel_unavailable: rule 'silent' sends by 'sms', but this server has no provider of "
        "that channel (it has: email); configure it, or change the rule's channels"
    )
    assert await post.rows(t.delivery_results, "error_code") == [("channel_unavailable",)]


async def test_what_cannot_be_decoded_belongs_to_the_operator(post, broker):
    await broker.publish([Message(topic=DELIVERY_INSTANT, body=b"{}", message_id="x")])

    async def recorded() -> bool:
        return bool(await post.rows(t.dead_letters, "reason"))

    await post.run(post.zone(Scripted()), post.recorder, until=recorded)
    ((tenant, source),) = await post.rows(t.dead_letters, "tenant_id", "source_queue")
    assert (tenant, source) == ("", DELIVERY_INSTANT)


async def test_a_retry_that_the_broker_lost_is_published_again(post, broker, database):
    provider = Scripted(TemporaryProviderError("busy"))
    await publish(broker, message())
    zone = post.zone(provider)

    async def waiting() -> bool:
        return (await broker.depth(DELIVERY_INSTANT)).delayed == 1

    await post.run(zone, until=waiting)
    async with database.write() as connection:
        await connection.execute(sa.delete(t.broker_jobs))
    again = post.zone(provider)
    await post.run(again, until=post.finished, step_seconds=5)
    assert again.stats["repaired"] == 1
    assert len(provider.calls) == 2


async def test_poison_for_sending_sets_its_rows_to_failed(post, broker):
    await publish(broker, message())
    for _ in range(21):
        async with broker.consume(DELIVERY_INSTANT, prefetch_items=1) as consumer:
            with anyio.move_on_after(0.5):
                await consumer.receive()
    await post.run(post.recorder, until=post.finished)
    assert await post.rows(t.delivery_results, "status") == [("failed",)]
    assert await post.rows(t.dead_letters, "reason") == [("delivery_limit",)]


async def test_history_tells_a_notifications_whole_story(post, broker, database):
    provider = Scripted(TemporaryProviderError("busy"), ProviderResult(provider_message_id="p-1"))
    await publish(broker, message())
    await post.run(post.zone(provider), until=post.finished, step_seconds=5)
    history = History(database=database)
    (shown,) = await history.recent("acme")
    story = await history.story("acme", shown.notification_uuid)
    assert story.notification.status == "sent"
    assert [row["status"] for row in story.attempts] == ["retry", "sent"]
    assert story.attempts[1]["provider_message_id"] == "p-1"
    assert await history.recent("beta") == []


async def test_a_call_longer_than_the_lease_is_a_wrong_setting(post):
    channel = Channel(provider=Scripted(), settings=None, attempt_timeout_seconds=90)
    with pytest.raises(ConfigurationError, match="lease_seconds"):
        Sending(database=post.database, broker=post.broker, channels={"email": channel})
