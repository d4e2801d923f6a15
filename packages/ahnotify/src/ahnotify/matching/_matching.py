"""Matching: incidents in, decisions and instant messages out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio
import attrs

from ahnotify._identity import decision_id
from ahnotify._stats import Counters
from ahnotify.broker.base import (
    DELIVERY_INSTANT,
    INCIDENT_EVENTS,
    INCIDENTS,
    Broker,
    Delivery,
    Message,
)
from ahnotify.clock import AsyncClock, SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.errors import BrokerUnavailableError, DatabaseUnavailableError, LeaseLostError
from ahnotify.matching._decisions import INSTANT, Decision, DecisionKey, DecisionStore
from ahnotify.rules import RuleCache, RuleCatalog
from ahrules import (
    OVERFLOW_SCHEDULE,
    Limiter,
    LocalLimiter,
    RuleMatch,
    RulesError,
    bucket,
)
from ahwire import DecodeError, IncidentEvent, NotificationMessage, WireError
from ahwire import notification as wire

logger: Final = logging.getLogger("ahnotify.matching")

_PAUSE_SECONDS: Final = 5


class Matching:
    """The matching zone. `run` keeps its rule cache, reads `incident.events`, and publishes.

    Guarantees: an event is acked only after all its decisions are stored; a stored instant decision
    is published until it is marked so, by whoever comes first: its own event, or the feeder. So a
    crash anywhere loses nothing; the second copy that it can leave is recognised by its
    notification_uuid. An event that cannot be decoded goes to the dead letters with the reason.

    Counters (`stats`): events, redelivered, undecodable, matched, decisions_instant,
    decisions_digest, decisions_instant_overflow, rules_failed, published, parked, paused,
    lease_lost, errors.
    """

    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        rules: RuleCache,
        limiter: Limiter | None = None,
        clock: AsyncClock | None = None,
        prefetch_items: int = 32,
        consumers: int = 4,
        feed_seconds: float = 1,
    ) -> None:
        """Keep the collaborators; nothing is opened or started yet.

        Args:
            database: Where decisions are.
            broker: Where incidents come from and messages go.
            rules: The rules; `run` runs it too.
            limiter: How many instant messages a recipient gets; 100 a minute in this process by
                default.
            clock: Time.
            prefetch_items: Events held without an ack.
            consumers: Events worked on at once.
            feed_seconds: How often parked and left-over messages are looked for.
        """
        self._broker = broker
        self._rules = rules
        self._limiter: Limiter = LocalLimiter() if limiter is None else limiter
        self._clock: AsyncClock = clock or SystemClock()
        self._prefetch_items = prefetch_items
        self._consumers = consumers
        self._feed_seconds = feed_seconds
        self._outstanding_jobs_max = 2 * prefetch_items * consumers
        self._decisions = DecisionStore(database=database)
        self._feeding = anyio.Lock()
        self.stats = Counters()

    async def run(self) -> None:
        """Work until cancelled. Does not begin before the rules are loaded."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._rules.run)
            await self._rules.catalog()
            tasks.start_soon(self._feed_forever)
            tasks.start_soon(self._consume)

    async def _consume(self) -> None:
        slots = anyio.CapacityLimiter(self._consumers)
        async with (
            self._broker.consume(INCIDENT_EVENTS, prefetch_items=self._prefetch_items) as consumer,
            anyio.create_task_group() as tasks,
        ):
            while True:
                async with slots:
                    pass  # wait for a free slot before holding one more event than can be worked on
                delivery = await self._receive(consumer.receive)
                if delivery is not None:
                    await self._start(tasks, slots, delivery)

    async def _receive(self, receive: object) -> Delivery | None:
        assert callable(receive)
        try:
            delivery: Delivery = await receive()
        except (DatabaseUnavailableError, BrokerUnavailableError) as error:
            await self._pause(error)
            return None
        return delivery

    async def _start(
        self, tasks: anyio.abc.TaskGroup, slots: anyio.CapacityLimiter, delivery: Delivery
    ) -> None:
        started = anyio.Event()

        async def work() -> None:
            async with slots:
                started.set()
                await self._handle(delivery)

        tasks.start_soon(work)
        await started.wait()

    async def _handle(self, delivery: Delivery) -> None:
        self.stats.add("events")
        if delivery.delivery_count > 1:
            self.stats.add("redelivered")
        try:
            await self._process(delivery)
        except LeaseLostError:
            # Somebody else holds the event now and comes to the same decisions.
            self.stats.add("lease_lost")
        except (DatabaseUnavailableError, BrokerUnavailableError) as error:
            # Not given back: that would be a loop. The lease ends by itself.
            await self._pause(error)
        except Exception:
            # The one supervisor of this loop: an event that trips a bug of ours must not stop the
            # others; the broker's limit takes it to the dead letters if it does so every time.
            self.stats.add("errors")
            logger.exception("event_failed", extra={"message_id": delivery.message_id})
            await delivery.nack(delay_seconds=_PAUSE_SECONDS)

    async def _pause(self, error: Exception) -> None:
        self.stats.add("paused")
        logger.warning("matching_paused", extra={"cause": str(error)})
        await self._clock.sleep(_PAUSE_SECONDS)

    async def _process(self, delivery: Delivery) -> None:
        try:
            event = IncidentEvent.from_json(delivery.body)
        except WireError as error:
            self.stats.add("undecodable")
            await delivery.dead_letter(_reason(error))
            return
        failed_rules = await self.decide(event)
        await self._feed(event.tenant_id)
        if failed_rules:
            self.stats.add("rules_failed", len(failed_rules))
            reasons = "; ".join(f"{rule_id}: {reason}" for rule_id, reason in failed_rules.items())
            await delivery.dead_letter(f"rules could not be followed: {reasons}")
        else:
            await delivery.ack()

    async def decide(self, event: IncidentEvent) -> dict[str, str]:
        """Store the decisions of `event` that are not stored yet.

        Returns:
            The rules that could not be followed, with the reason; the others were.

        Raises:
            DatabaseUnavailableError: Perhaps none are stored; decide again.
        """
        catalog = await self._rules.catalog()
        matches = catalog.rules.match(event)
        self.stats.add("matched", len(matches))
        wanted = [pair for match in matches for pair in _wanted(match)]
        there = await self._decisions.existing(event.tenant_id, event.event_id) if wanted else set()
        decisions: list[Decision] = []
        failed: dict[str, str] = {}
        for match, key in wanted:
            if key in there:
                continue
            there.add(key)
            try:
                decisions.append(await self._decide(catalog, event, match, key))
            except (RulesError, WireError) as error:
                failed[match.rule_id] = str(error)
        stored = await self._decisions.add(event, decisions, utc_now(self._clock))
        for decision in decisions:
            if decision.key in stored:
                self.stats.add(f"decisions_{decision.mode}")
            elif decision.mode == INSTANT:
                # Another process was first, with its own token.
                await self._limiter.give_back(_limit_key(event.tenant_id, decision.key))
        return failed

    async def _decide(
        self, catalog: RuleCatalog, event: IncidentEvent, match: RuleMatch, key: DecisionKey
    ) -> Decision:
        rule = match.rule
        if match.lookups:
            # Nobody here answers look-ups yet, and an open question is not a match.
            raise RulesError("it asks look-ups, and no answerer is configured")
        uuid = decision_id(
            event.tenant_id,
            event_id=event.event_id,
            rule_id=key.rule_id,
            channel=key.channel,
            recipient_type=key.recipient_type,
            recipient_id=key.recipient_id,
        )
        if rule.schedule.mode == "digest":
            schedule = rule.digest_schedule(catalog.timezones.get(event.tenant_id))
            period = bucket(event.occurred_at, schedule)
            return Decision(
                key=key, notification_uuid=uuid, mode="digest", period=(period.start, period.end)
            )
        limit_key = _limit_key(event.tenant_id, key)
        if await self._limiter.allow(limit_key, self._clock.time(), limit=rule.rate_limit):
            message = _instant_message(event, key, uuid)
            return Decision(key=key, notification_uuid=uuid, mode=INSTANT, message=message)
        period = bucket(event.occurred_at, OVERFLOW_SCHEDULE)
        return Decision(
            key=key,
            notification_uuid=uuid,
            mode="instant_overflow",
            period=(period.start, period.end),
        )

    async def _feed_forever(self) -> None:
        """Publish what stayed behind: parked by its tenant's share, or left by a crash."""
        while True:
            try:
                # One helping a tenant and round, so that one tenant's flood does not stand before
                # another's message.
                for tenant_id in await self._decisions.tenants_with_unpublished():
                    await self._feed(tenant_id)
            except (DatabaseUnavailableError, BrokerUnavailableError) as error:
                await self._pause(error)
            await self._clock.sleep(self._feed_seconds)

    async def _feed(self, tenant_id: str) -> None:
        async with self._feeding:
            waiting = await self._decisions.unpublished(
                tenant_id,
                outstanding_max=self._outstanding_jobs_max,
                items_max=self._prefetch_items,
            )
            if not waiting:
                return
            await self._broker.publish(
                [
                    Message(
                        topic=DELIVERY_INSTANT,
                        body=each.message,
                        message_id=f"{each.notification_uuid}:0",
                        tenant_id=tenant_id,
                    )
                    for each in waiting
                ]
            )
            published = [each.notification_uuid for each in waiting]
            await self._decisions.mark_published(tenant_id, published, utc_now(self._clock))
            self.stats.add("published", len(published))


def _wanted(match: RuleMatch) -> list[tuple[RuleMatch, DecisionKey]]:
    return [
        (
            match,
            DecisionKey(
                match.rule_id, channel, str(recipient.recipient_type), recipient.recipient_id
            ),
        )
        for channel in match.rule.channels
        for recipient in match.rule.recipients
    ]


def _limit_key(tenant_id: str, key: DecisionKey) -> tuple[str, ...]:
    return (tenant_id, *attrs.astuple(key))


def _instant_message(event: IncidentEvent, key: DecisionKey, uuid: str) -> bytes:
    return NotificationMessage(
        notification_uuid=uuid,
        tenant_id=event.tenant_id,
        incident=(event,),
        rule_id=key.rule_id,
        recipient=wire.Recipient(
            recipient_type=wire.RecipientType(key.recipient_type), recipient_id=key.recipient_id
        ),
        channel=wire.Channel(channel=wire.ChannelType(key.channel)),
        delivery_mode=wire.DeliveryMode.INSTANT,
    ).to_json()


def _reason(error: WireError) -> str:
    if isinstance(error, DecodeError):
        return f"cannot be decoded: {error.field or 'document'}: {error.reason}"
    return f"cannot be decoded: {error}"


async def publish_incidents(broker: Broker, events: Sequence[IncidentEvent]) -> None:
    """Put events where the notification center listens; when it returns they are durable there.

    Repeating it is harmless: decisions are unique by event.

    Raises:
        BrokerError: There was no confirmation.
        DatabaseUnavailableError: The embedded broker's database did not answer.
    """
    await broker.publish(
        [
            Message(
                topic=INCIDENTS,
                body=event.to_json(),
                message_id=event.event_id,
                tenant_id=event.tenant_id,
            )
            for event in events
        ]
    )
