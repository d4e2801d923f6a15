"""Calling a provider for a target: claim, call, write down the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import anyio
import attrs

from ahnotify._stats import Counters
from ahnotify.clock import AsyncClock, utc_now
from ahnotify.errors import ProviderError, UnknownOutcomeError
from ahnotify.providers.base import (
    Channel,
    Content,
    OutgoingMessage,
    ProviderResult,
    TargetContact,
)
from ahnotify.sending._retry import FAILED, RETRY, SENT, UNKNOWN, RetrySchedule, Step, after_call
from ahnotify.sending._retry_message import retry_message
from ahnotify.sending._targets import Claim, NotNow, Target, TargetStore
from ahwire import NotificationMessage

logger: Final = logging.getLogger("ahnotify.sending")

_COUNTED: Final = {SENT: "sent", FAILED: "failed", UNKNOWN: "unknown"}


class Caller:
    """Makes the calls of one process, at most `calls_max` at once."""

    def __init__(
        self,
        *,
        targets: TargetStore,
        schedule: RetrySchedule,
        clock: AsyncClock,
        owner: str,
        calls_max: int,
        stats: Counters,
    ) -> None:
        self._targets = targets
        self._schedule = schedule
        self._clock = clock
        self._owner = owner
        self._calls = anyio.CapacityLimiter(calls_max)
        self._stats = stats

    async def call_all(
        self,
        message: NotificationMessage,
        channel: Channel[Any],
        content: Content,
        targets: Sequence[Target],
    ) -> list[datetime]:
        """Call the provider for every target that can be claimed.

        Returns:
            When to come again for those that could not be claimed now.
        """
        waits: list[datetime] = []

        async def one(target: Target) -> None:
            async with self._calls:
                until = await self._call(message, channel, content, target)
            if until is not None:
                waits.append(until)

        async with anyio.create_task_group() as tasks:
            for target in targets:
                tasks.start_soon(one, target)
        return waits

    async def _call(
        self,
        message: NotificationMessage,
        channel: Channel[Any],
        content: Content,
        target: Target,
    ) -> datetime | None:
        epoch = message.retry.epoch if message.retry else 0
        # From the claim to its end nothing is cancelled: the call is short, bounded, and its end is
        # worth more than leaving a little earlier.
        with anyio.CancelScope(shield=True):
            claim, interrupted = await self._targets.claim(
                target,
                epoch=epoch,
                owner=self._owner,
                now=utc_now(self._clock),
                unknown_policy=channel.unknown_policy,
            )
            if interrupted:
                self._stats.add("unknown")
                logger.warning("call_interrupted", extra=_names(target))
            if isinstance(claim, NotNow):
                return claim.until
            outcome = await self._ask(message, channel, content, claim)
            await self._finish(message, channel, claim, outcome)
        return None

    @staticmethod
    async def _ask(
        message: NotificationMessage, channel: Channel[Any], content: Content, claim: Claim
    ) -> ProviderResult | ProviderError:
        target = claim.target
        outgoing = OutgoingMessage(
            reference=target.target_id,
            tenant_id=message.tenant_id,
            notification_uuid=message.notification_uuid,
            content=content,
        )
        contact = TargetContact(contact_id=target.contact_id, address=target.address)
        try:
            with anyio.fail_after(channel.attempt_timeout_seconds):
                return await channel.send(outgoing, contact)
        except ProviderError as error:
            return error
        except TimeoutError:
            return UnknownOutcomeError(
                "timeout", "the call took too long", reference=target.target_id
            )

    async def _finish(
        self,
        message: NotificationMessage,
        channel: Channel[Any],
        claim: Claim,
        outcome: ProviderResult | ProviderError,
    ) -> None:
        now = utc_now(self._clock)
        step = after_call(
            outcome,
            attempt=claim.attempt,
            tries=claim.try_number,
            now=now,
            schedule=self._schedule,
            unknown_policy=channel.unknown_policy,
        )
        written = await self._targets.finish(
            claim, step, retry_message=self._next_message(message, claim, step), now=now
        )
        if not written:
            self._stats.add("lease_lost")
            return
        if step.status == RETRY and not step.spent:
            self._stats.add("limited")
        elif step.status in _COUNTED:
            self._stats.add(_COUNTED[step.status])
        logger.info(
            "call_ended",
            extra=_names(claim.target) | {"status": step.status, "error_code": step.error_code},
        )

    def _next_message(self, message: NotificationMessage, claim: Claim, step: Step) -> bytes | None:
        if step.next_attempt_at is None:
            return None
        waiting = attrs.evolve(
            claim.target,
            next_attempt_at=step.next_attempt_at,
            attempt=claim.attempt,
            error_code=step.error_code,
        )
        return retry_message(message, [waiting], self._schedule).to_json()


def _names(target: Target) -> dict[str, str]:
    return {
        "tenant_id": target.tenant_id,
        "notification_uuid": target.notification_uuid,
        "target_id": target.target_id,
    }
