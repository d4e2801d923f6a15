"""Delivery targets: one row a contact of a notification, moved by compare-and-set.

    row                                   a message of epoch e arrives
    final (finished_at set)               nothing to do
    epoch > e                             nothing to do: the message is an old copy
    owned, lease running                  wait for its end
    owned, lease over                     the owner died in a call: its end is unknown (counted);
                                          by policy a new claim, or final `unknown`
    waiting, next_attempt_at in future    wait for it
    otherwise                             claimed: owner, lease, tries + 1, an attempt row `started`

A claim is committed before the provider is called, and its end is written only by its owner in its
own try, so a process that comes back after its lease changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ahnotify._identity import target_id
from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.database._insert import insert_into
from ahnotify.directory import Contact
from ahnotify.errors import UnknownOutcomeError
from ahnotify.sending._retry import PENDING, RetrySchedule, Step, after_call
from ahwire import NotificationMessage

_t = t.delivery_targets
_a = t.delivery_attempts


@attrs.frozen(kw_only=True)
class Target:
    """One contact of one notification, as its row is."""

    tenant_id: str
    notification_uuid: str
    target_id: str
    contact_id: str
    address: str = attrs.field(repr=False)
    status: str
    owner: str | None
    lease_until: datetime | None
    tries: int
    attempt: int
    epoch: int
    next_attempt_at: datetime | None
    error_code: str | None
    provider_message_id: str | None
    final: bool


@attrs.frozen(kw_only=True)
class Claim:
    """The right to call the provider once."""

    target: Target
    owner: str
    try_number: int
    attempt: int


@attrs.frozen(kw_only=True)
class NotNow:
    """No claim; come again at `until`, or never when it is None."""

    until: datetime | None


class TargetStore:
    """Targets and attempts in the database."""

    def __init__(
        self, *, database: Database, schedule: RetrySchedule, lease_seconds: float
    ) -> None:
        self._database = database
        self._schedule = schedule
        self._lease = timedelta(seconds=lease_seconds)

    async def load(self, message: NotificationMessage) -> list[Target]:
        """The frozen targets; empty before the first attempt."""
        async with self._database.read() as connection:
            return await _load(connection, message.tenant_id, message.notification_uuid)

    async def freeze(
        self, message: NotificationMessage, contacts: Sequence[Contact], now: datetime
    ) -> list[Target]:
        """Make one row a contact, unless somebody did so before; what is there stays."""
        rows = [_row(message, contact, now) for contact in contacts]
        async with self._database.write() as connection:
            there = await _load(connection, message.tenant_id, message.notification_uuid)
            if there or not rows:
                return there
            await connection.execute(insert_into(connection, _t).on_conflict_do_nothing(), rows)
            return await _load(connection, message.tenant_id, message.notification_uuid)

    async def claim(
        self, target: Target, *, epoch: int, owner: str, now: datetime, unknown_policy: str
    ) -> tuple[Claim | NotNow, bool]:
        """Try to get the right to call the provider for `target`.

        Returns:
            The claim or when to come again, and whether a dead owner's call was found unknown.
        """
        async with self._database.write() as connection:
            row = await _lock(connection, target)
            if row.final or row.epoch > epoch:
                return NotNow(until=None), False
            taken_over = row.owner is not None
            if taken_over:
                assert row.lease_until is not None
                if row.lease_until > now:
                    return NotNow(until=row.lease_until), False
                step = await self._give_up(connection, row, now, unknown_policy)
                if step.next_attempt_at is None:
                    return NotNow(until=None), True
            elif row.next_attempt_at is not None and row.next_attempt_at > now:
                return NotNow(until=row.next_attempt_at), False
            claim = Claim(
                target=row, owner=owner, try_number=row.tries + 1, attempt=row.attempt + 1
            )
            await self._write_claim(connection, claim, epoch, now)
        return claim, taken_over

    async def _give_up(
        self, connection: AsyncConnection, row: Target, now: datetime, unknown_policy: str
    ) -> Step:
        """The owner died in its call: say so in its attempt and, by policy, in the row."""
        error = UnknownOutcomeError(
            "interrupted", "the process ended during the call", reference=""
        )
        step = after_call(
            error,
            attempt=row.attempt,
            tries=row.tries,
            now=now,
            schedule=self._schedule,
            unknown_policy=unknown_policy,
        )
        await connection.execute(_attempt_end(row, row.tries, step, now))
        await connection.execute(
            sa.update(_t)
            .where(_same(row))
            .values(
                status=step.status,
                owner=None,
                lease_until=None,
                unknown_count=_t.c.unknown_count + 1,
                error_code=step.error_code,
                finished_at=now if step.next_attempt_at is None else None,
                updated_at=now,
            )
        )
        return step

    async def _write_claim(
        self, connection: AsyncConnection, claim: Claim, epoch: int, now: datetime
    ) -> None:
        row = claim.target
        await connection.execute(
            sa.update(_t)
            .where(_same(row))
            .values(
                status=PENDING,
                owner=claim.owner,
                lease_until=now + self._lease,
                tries=claim.try_number,
                attempt=claim.attempt,
                epoch=epoch,
                next_attempt_at=None,
                message=None,
                updated_at=now,
            )
        )
        await connection.execute(
            sa.insert(_a).values(
                tenant_id=row.tenant_id,
                notification_uuid=row.notification_uuid,
                target_id=row.target_id,
                try_number=claim.try_number,
                attempt=claim.attempt,
                epoch=epoch,
                owner=claim.owner,
                status="started",
                started_at=now,
            )
        )

    async def finish(
        self, claim: Claim, step: Step, *, retry_message: bytes | None, now: datetime
    ) -> bool:
        """Write how the claimed call ended.

        Args:
            claim: What was claimed.
            step: Where the row goes.
            retry_message: What is published for the next attempt, kept for the sweep.
            now: The time.

        Returns:
            False when the lease passed to somebody else meanwhile: then nothing was written.
        """
        final = step.next_attempt_at is None
        async with self._database.write() as connection:
            result = await connection.execute(
                sa.update(_t)
                .where(
                    _same(claim.target),
                    _t.c.owner == claim.owner,
                    _t.c.tries == claim.try_number,
                )
                .values(
                    status=step.status,
                    owner=None,
                    lease_until=None,
                    attempt=claim.attempt if step.spent else claim.attempt - 1,
                    unknown_count=_t.c.unknown_count + (1 if step.status == "unknown" else 0),
                    provider_message_id=step.provider_message_id,
                    error_code=step.error_code,
                    next_attempt_at=step.next_attempt_at,
                    message=None if final else retry_message,
                    finished_at=now if final else None,
                    updated_at=now,
                )
            )
            if result.rowcount == 0:
                return False
            await connection.execute(_attempt_end(claim.target, claim.try_number, step, now))
        return True

    async def advance_epoch(self, message: NotificationMessage, epoch: int, now: datetime) -> None:
        """The retry of `epoch` is in the broker: copies of earlier ones are old from now on."""
        async with self._database.write() as connection:
            await connection.execute(
                sa.update(_t)
                .where(
                    _t.c.tenant_id == message.tenant_id,
                    _t.c.notification_uuid == message.notification_uuid,
                    _t.c.finished_at.is_(None),
                    _t.c.owner.is_(None),
                    _t.c.epoch < epoch,
                )
                .values(epoch=epoch, updated_at=now)
            )

    async def overdue(
        self, before: datetime, now: datetime, *, items_max: int
    ) -> list[tuple[str, bytes]]:
        """`(tenant_id, message)` of retries that should have come before `before`."""
        query = (
            sa.select(_t.c.tenant_id, _t.c.notification_uuid, _t.c.target_id, _t.c.message)
            .where(_t.c.next_attempt_at <= before, _t.c.message.is_not(None))
            .order_by(_t.c.next_attempt_at)
            .limit(items_max)
        )
        async with self._database.write() as connection:
            rows = (await connection.execute(query)).all()
            for tenant, notification, target, _ in rows:
                # Moved on, so that the next look finds it only if this repair was lost too.
                await connection.execute(
                    sa.update(_t)
                    .where(
                        _t.c.tenant_id == tenant,
                        _t.c.notification_uuid == notification,
                        _t.c.target_id == target,
                    )
                    .values(next_attempt_at=now)
                )
        unique = {(tenant, notification): message for tenant, notification, _, message in rows}
        return [(tenant, message) for (tenant, _), message in unique.items()]


def _same(target: Target) -> sa.ColumnElement[bool]:
    return sa.and_(
        _t.c.tenant_id == target.tenant_id,
        _t.c.notification_uuid == target.notification_uuid,
        _t.c.target_id == target.target_id,
    )


async def _lock(connection: AsyncConnection, target: Target) -> Target:
    query = sa.select(_t).where(_same(target)).with_for_update()
    return _target((await connection.execute(query)).mappings().one())


async def _load(
    connection: AsyncConnection, tenant_id: str, notification_uuid: str
) -> list[Target]:
    query = (
        sa.select(_t)
        .where(_t.c.tenant_id == tenant_id, _t.c.notification_uuid == notification_uuid)
        .order_by(_t.c.contact_id)
    )
    return [_target(row) for row in (await connection.execute(query)).mappings().all()]


def _target(row: sa.RowMapping) -> Target:
    names = [each.name for each in attrs.fields(Target) if each.name != "final"]
    values: dict[str, Any] = {name: row[name] for name in names}
    return Target(**values, final=row["finished_at"] is not None)


def _attempt_end(target: Target, try_number: int, step: Step, now: datetime) -> sa.sql.dml.Update:
    return (
        sa.update(_a)
        .where(
            _a.c.tenant_id == target.tenant_id,
            _a.c.notification_uuid == target.notification_uuid,
            _a.c.target_id == target.target_id,
            _a.c.try_number == try_number,
        )
        .values(
            status=step.status,
            provider_message_id=step.provider_message_id,
            error_code=step.error_code,
            error_message=step.error_message,
            finished_at=now,
        )
    )


def _row(message: NotificationMessage, contact: Contact, now: datetime) -> dict[str, Any]:
    return {
        "tenant_id": message.tenant_id,
        "notification_uuid": message.notification_uuid,
        "target_id": target_id(
            message.tenant_id, message.notification_uuid, contact.channel, contact.address
        ),
        "contact_id": contact.contact_id,
        "channel": contact.channel,
        "address": contact.address,
        "status": PENDING,
        "tries": 0,
        "attempt": 0,
        "epoch": message.retry.epoch if message.retry else 0,
        "unknown_count": 0,
        "created_at": now,
        "updated_at": now,
    }
