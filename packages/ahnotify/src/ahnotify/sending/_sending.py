"""Sending: messages to people, each once."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, Final

import anyio

from ahnotify._stats import Counters
from ahnotify.broker.base import DELIVERY_DIGEST, DELIVERY_INSTANT, Broker, Delivery, Message
from ahnotify.clock import AsyncClock, SystemClock, utc_now
from ahnotify.database import Database
from ahnotify.directory import Directory, RecipientKey
from ahnotify.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    DatabaseUnavailableError,
    LeaseLostError,
)
from ahnotify.incidents.base import IncidentStore
from ahnotify.incidents.sql import SqlIncidentStore
from ahnotify.providers.base import Channel
from ahnotify.sending._calls import Caller
from ahnotify.sending._content import ContentMaker, EventsMissingError
from ahnotify.sending._directory_cache import DirectoryCache
from ahnotify.sending._reader import WeightedReader
from ahnotify.sending._results import ResultStore
from ahnotify.sending._retry import RetrySchedule
from ahnotify.sending._retry_message import retry_message
from ahnotify.sending._targets import Target, TargetStore
from ahwire import DecodeError, NotificationMessage, WireError

logger: Final = logging.getLogger("ahnotify.sending")

_PAUSE_SECONDS: Final = 5
_MISSING_EVENTS_DELAY_SECONDS: Final = 10
_SWEEP_ITEMS_MAX: Final = 100
_WEIGHTS: Final = {DELIVERY_INSTANT: 100, DELIVERY_DIGEST: 1}


class Sending:
    """The sending zone; any number of processes may run it.

    Guarantees: each target of a notification is called by one owner at a time, and never again once
    its row is final. A call whose end nobody knows (a lost connection, a killed process) is
    `unknown`, counted, and by the channel's policy sent again under the same reference: the only
    way in which a person can be told twice.

    Counters (`stats`): messages, undecodable, sent, retried, failed, unknown, limited,
    dead_lettered, old_copies, waited, events_missing, repaired, paused, lease_lost, errors.
    """

    def __init__(
        self,
        *,
        database: Database,
        broker: Broker,
        channels: Mapping[str, Channel[Any]],
        directory: Directory | None = None,
        incidents: IncidentStore | None = None,
        clock: AsyncClock | None = None,
        schedule: RetrySchedule | None = None,
        public_url: str = "",
        queues: Mapping[str, int] | None = None,
        prefetch_items: int = 8,
        workers: int = 4,
        calls_max: int = 8,
        lease_seconds: float = 90,
        reload_seconds: float = 30,
        missing_wait_seconds: float = 300,
        sweep_seconds: float = 30,
        overdue_seconds: float = 60,
    ) -> None:
        """Keep the collaborators; nothing is opened or started yet.

        Args:
            database: Where targets and results are.
            broker: Where messages come from.
            channels: What sends, by the channel's name.
            directory: Who has which contact; that database's by default.
            incidents: Details of a digest's events; that database's by default.
            clock: Time.
            schedule: Retries; 1, 5 and 30 minutes by default.
            public_url: Where people reach the API, for links; no link when empty.
            queues: Queues to read, with their weights; instant 100 to digest 1 by default.
            prefetch_items: Messages of each queue held without an ack.
            workers: Messages worked on at once.
            calls_max: Provider calls at once.
            lease_seconds: How long a dead owner's target stays; longer than any channel's call.
            reload_seconds: How often contacts are read anew.
            missing_wait_seconds: How long a digest waits for events that are not yet stored.
            sweep_seconds: How often lost retries are looked for.
            overdue_seconds: How late a retry is when it counts as lost.

        Raises:
            ConfigurationError: A channel's call may take longer than the lease.
        """
        for name, channel in channels.items():
            if channel.attempt_timeout_seconds >= lease_seconds:
                raise ConfigurationError(
                    f"channel {name}: attempt_timeout_seconds is "
                    f"{channel.attempt_timeout_seconds}; "
                    f"keep it under lease_seconds, {lease_seconds}"
                )
        self._broker = broker
        self._channels = dict(channels)
        self._clock: AsyncClock = clock or SystemClock()
        self._queues = dict(queues or _WEIGHTS)
        self._prefetch_items = prefetch_items
        self._workers = workers
        self._sweep_seconds = sweep_seconds
        self._overdue = timedelta(seconds=overdue_seconds)
        self.stats = Counters()
        chosen = schedule or RetrySchedule()
        self._directory = DirectoryCache(
            directory=directory or Directory(database=database, clock=self._clock),
            clock=self._clock,
            reload_seconds=reload_seconds,
        )
        self._content = ContentMaker(
            database=database,
            incidents=incidents or SqlIncidentStore(database=database, clock=self._clock),
            public_url=public_url,
            missing_wait_seconds=missing_wait_seconds,
        )
        self._targets = TargetStore(database=database, schedule=chosen, lease_seconds=lease_seconds)
        self._results = ResultStore(database=database)
        self._schedule = chosen
        self._caller = Caller(
            targets=self._targets,
            schedule=chosen,
            clock=self._clock,
            owner=uuid.uuid4().hex,
            calls_max=calls_max,
            stats=self.stats,
        )

    async def run(self) -> None:
        """Work until cancelled. A call that is running then is finished and recorded first."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._directory.run)
            await self._directory.loaded()
            tasks.start_soon(self._sweep_forever)
            tasks.start_soon(self._consume)

    async def _consume(self) -> None:
        async with AsyncExitStack() as stack:
            consumers = {
                queue: await stack.enter_async_context(
                    self._broker.consume(queue, prefetch_items=self._prefetch_items)
                )
                for queue in self._queues
            }
            reader = WeightedReader(consumers, self._queues)
            stack.callback(reader.close)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            for queue in self._queues:
                tasks.start_soon(self._keep, reader.pump, queue)
            slots = anyio.Semaphore(self._workers)
            while True:
                await slots.acquire()
                delivery = await reader.next()
                tasks.start_soon(self._work, slots, delivery)

    async def _keep(self, pump: Callable[[str], Awaitable[None]], queue: str) -> None:
        while True:
            try:
                await pump(queue)
            except (DatabaseUnavailableError, BrokerUnavailableError) as error:
                await self._pause(error)

    async def _work(self, slots: anyio.Semaphore, delivery: Delivery) -> None:
        try:
            await self._handle(delivery)
        finally:
            slots.release()

    async def _handle(self, delivery: Delivery) -> None:
        self.stats.add("messages")
        try:
            await self._process(delivery)
        except LeaseLostError:
            # Another consumer has the message; the targets' rows keep the two apart.
            self.stats.add("lease_lost")
        except (DatabaseUnavailableError, BrokerUnavailableError) as error:
            # A message whose rows cannot be read could have been sent already: it waits for its
            # lease's end, and this worker with it.
            await self._pause(error)
        except Exception:
            # The one supervisor of this loop: a message that trips a bug of ours must not stop the
            # others; the broker's limit takes it to the dead letters if it does so every time.
            self.stats.add("errors")
            logger.exception("message_failed", extra={"message_id": delivery.message_id})
            await delivery.nack(delay_seconds=_PAUSE_SECONDS)

    async def _pause(self, error: Exception) -> None:
        self.stats.add("paused")
        logger.warning("sending_paused", extra={"cause": str(error)})
        await self._clock.sleep(_PAUSE_SECONDS)

    async def _process(self, delivery: Delivery) -> None:
        try:
            message = NotificationMessage.from_json(delivery.body)
        except WireError as error:
            self.stats.add("undecodable")
            where = f"{error.field}: " if isinstance(error, DecodeError) else ""
            await delivery.dead_letter(f"cannot be decoded: {where}{error}")
            return
        now = utc_now(self._clock)
        not_before = message.retry.not_before if message.retry else None
        if not_before is not None and not_before > now:
            await self._wait(delivery, not_before)
            return
        channel = self._channels.get(str(message.channel.channel))
        if channel is None:
            await self._refuse(delivery, message, "channel_unavailable", self._no_provider(message))
            return
        targets = await self._frozen_targets(message, now)
        if not targets:
            await self._refuse(delivery, message, "no_contacts", _no_contacts(message))
            return
        await self._deliver(delivery, message, channel, targets)

    async def _deliver(
        self,
        delivery: Delivery,
        message: NotificationMessage,
        channel: Channel[Any],
        targets: list[Target],
    ) -> None:
        epoch = message.retry.epoch if message.retry else 0
        open_targets = [each for each in targets if not each.final and each.epoch <= epoch]
        waits: list[datetime] = []
        if open_targets:
            try:
                content = await self._content.make(
                    message,
                    rule=await self._directory.rule_view(message.tenant_id, message.rule_id),
                    render_limit=channel.render_limit_items,
                    now=utc_now(self._clock),
                )
            except EventsMissingError:
                # Waiting for the incident store is no attempt.
                self.stats.add("events_missing")
                await delivery.nack(delay_seconds=_MISSING_EVENTS_DELAY_SECONDS)
                return
            waits = await self._caller.call_all(message, channel, content, open_targets)
        elif any(not each.final for each in targets):
            self.stats.add("old_copies")
            await delivery.ack()
            return
        await self._settle(delivery, message, waits)

    async def _settle(
        self, delivery: Delivery, message: NotificationMessage, waits: list[datetime]
    ) -> None:
        """Publish the next attempt or end the message, then ack."""
        now = utc_now(self._clock)
        targets = await self._targets.load(message)
        status, final = await self._results.record(message, targets, now)
        epoch = message.retry.epoch if message.retry else 0
        if not final:
            await self._go_on(delivery, message, targets, waits)
        elif status == "failed" and all(each.epoch <= epoch for each in targets):
            self.stats.add("dead_lettered")
            codes = sorted({each.error_code for each in targets if each.error_code})
            await delivery.dead_letter(f"delivery failed: {', '.join(codes)}")
        else:
            await delivery.ack()

    async def _go_on(
        self,
        delivery: Delivery,
        message: NotificationMessage,
        targets: list[Target],
        waits: list[datetime],
    ) -> None:
        following = [each.next_attempt_at for each in targets if each.next_attempt_at is not None]
        held_by_others = [until for until in waits if until not in following]
        if held_by_others or not following:
            # Somebody else is in a call; come back when it ended or its lease did.
            await self._wait(delivery, min(held_by_others, default=utc_now(self._clock)))
            return
        retry = retry_message(message, targets, self._schedule)
        assert retry.retry is not None
        await self._publish_retry(retry)
        await self._targets.advance_epoch(message, retry.retry.epoch, utc_now(self._clock))
        self.stats.add("retried")
        await delivery.ack()

    async def _wait(self, delivery: Delivery, until: datetime) -> None:
        self.stats.add("waited")
        delay = (until - utc_now(self._clock)).total_seconds()
        await delivery.nack(delay_seconds=max(delay, 1.0))

    async def _refuse(
        self, delivery: Delivery, message: NotificationMessage, code: str, reason: str
    ) -> None:
        """It can reach nobody: failed at once, with the reason."""
        await self._results.fail(message, code=code, reason=reason, now=utc_now(self._clock))
        self.stats.add("failed")
        self.stats.add("dead_lettered")
        await delivery.dead_letter(f"{code}: {reason}")

    def _no_provider(self, message: NotificationMessage) -> str:
        there = ", ".join(sorted(self._channels)) or "none at all"
        return (
            f"rule {message.rule_id!r} sends by {str(message.channel.channel)!r}, but this server "
            f"has no provider of that channel (it has: {there}); configure it, or change the "
            "rule's channels"
        )

    async def _frozen_targets(self, message: NotificationMessage, now: datetime) -> list[Target]:
        targets = await self._targets.load(message)
        if targets:
            return targets
        contacts = await self._directory.find(
            message.tenant_id,
            RecipientKey(str(message.recipient.recipient_type), message.recipient.recipient_id),
            str(message.channel.channel),
        )
        return await self._targets.freeze(message, contacts, now)

    async def _publish_retry(self, message: NotificationMessage) -> None:
        assert message.retry is not None
        not_before = message.retry.not_before
        now = utc_now(self._clock)
        delay = (not_before - now).total_seconds() if not_before else 0
        topic = DELIVERY_INSTANT if message.digest is None else DELIVERY_DIGEST
        await self._broker.publish(
            [
                Message(
                    topic=topic,
                    body=message.to_json(),
                    message_id=f"{message.notification_uuid}:{message.retry.epoch}",
                    tenant_id=message.tenant_id,
                )
            ],
            delay_seconds=delay,
        )

    async def _sweep_forever(self) -> None:
        """Publish retries again that a broker lost."""
        while True:
            await self._clock.sleep(self._sweep_seconds)
            try:
                now = utc_now(self._clock)
                overdue = await self._targets.overdue(
                    now - self._overdue, now, items_max=_SWEEP_ITEMS_MAX
                )
                for _, body in overdue:
                    self.stats.add("repaired")
                    await self._publish_retry(NotificationMessage.from_json(body))
            except (DatabaseUnavailableError, BrokerUnavailableError) as error:
                await self._pause(error)


def _no_contacts(message: NotificationMessage) -> str:
    recipient = message.recipient
    return (
        f"rule {message.rule_id!r} tells {recipient.recipient_type} {recipient.recipient_id!r}, "
        f"who has no enabled and verified contact for {str(message.channel.channel)!r}; "
        "add one, or verify the one that is there"
    )
