"""How notifications ended: one row of delivery_results each, and the digest's rows with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ahnotify._identity import name_id
from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.database._insert import upsert
from ahnotify.sending._retry import FAILED, overall
from ahnotify.sending._targets import Target
from ahwire import NotificationMessage


class ResultStore:
    """Results in the database."""

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def record(
        self, message: NotificationMessage, targets: Sequence[Target], now: datetime
    ) -> tuple[str, bool]:
        """Write the state of the whole notification.

        Returns:
            Its status and whether it is final.
        """
        status, final = overall([(target.status, target.final) for target in targets])
        failed = next((x for x in targets if x.status == status and x.error_code), None)
        sent = next((x for x in targets if x.provider_message_id), None)
        values = {
            "status": status,
            "attempt": max((target.attempt for target in targets), default=0),
            "error_code": failed.error_code if failed else None,
            "provider_message_id": sent.provider_message_id if sent else None,
            "finished_at": now if final else None,
        }
        async with self._database.write() as connection:
            await _write(connection, message, values, now)
        return status, final

    async def fail(
        self, message: NotificationMessage, *, code: str, reason: str, now: datetime
    ) -> None:
        """The whole notification failed; targets that still waited fail with it."""
        targets = t.delivery_targets
        async with self._database.write() as connection:
            await connection.execute(
                sa.update(targets)
                .where(
                    targets.c.tenant_id == message.tenant_id,
                    targets.c.notification_uuid == message.notification_uuid,
                    targets.c.finished_at.is_(None),
                )
                .values(
                    status=FAILED,
                    owner=None,
                    lease_until=None,
                    next_attempt_at=None,
                    message=None,
                    error_code=code,
                    finished_at=now,
                    updated_at=now,
                )
            )
            attempt = message.retry.attempt if message.retry else 0
            values = {
                "status": FAILED,
                "attempt": attempt,
                "error_code": code,
                "error_message": reason[:500],
                "finished_at": now,
            }
            await _write(connection, message, values, now)

    async def recorded(self, message: NotificationMessage) -> tuple[str, int] | None:
        """The recorded status and attempts, None before the first record."""
        r = t.delivery_results
        query = sa.select(r.c.status, r.c.attempt).where(
            r.c.tenant_id == message.tenant_id,
            r.c.delivery_message_id == _result_id(message),
        )
        async with self._database.read() as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else (row.status, row.attempt)


def _result_id(message: NotificationMessage) -> str:
    return name_id(message.tenant_id, "result", message.notification_uuid)


async def _write(
    connection: AsyncConnection,
    message: NotificationMessage,
    values: dict[str, Any],
    now: datetime,
) -> None:
    digest = message.digest
    event_ids = [event.event_id for event in message.incident]
    row = {
        "tenant_id": message.tenant_id,
        "delivery_message_id": _result_id(message),
        "notification_uuid": message.notification_uuid,
        "batch_uuid": digest.batch_uuid if digest else None,
        "event_id": None if digest else event_ids[0],
        "rule_id": message.rule_id,
        "events_count": digest.events_count if digest else 1,
        "event_ids": event_ids,
        "recipient_type": str(message.recipient.recipient_type),
        "recipient_id": message.recipient.recipient_id,
        "channel": str(message.channel.channel),
        "epoch": message.retry.epoch if message.retry else 0,
        "created_at": now,
        **values,
    }
    await upsert(connection, t.delivery_results, row)
    decisions = t.notification_decisions
    await connection.execute(
        sa.update(decisions)
        .where(
            decisions.c.tenant_id == message.tenant_id,
            decisions.c.notification_uuid == message.notification_uuid,
            decisions.c.settled_at.is_(None),
        )
        .values(settled_at=now)
    )
    if digest is not None and values["finished_at"] is not None:
        await _close_digest(connection, message, values["status"], now)


async def _close_digest(
    connection: AsyncConnection, message: NotificationMessage, status: str, now: datetime
) -> None:
    """The batch and its rows follow; an unknown end counts as failed there."""
    ended = "sent" if status == "sent" else "failed"
    assert message.digest is not None
    rows, batches = t.notification_batches, t.digest_batches
    batch_uuid = message.digest.batch_uuid
    await connection.execute(
        sa.update(rows)
        .where(rows.c.tenant_id == message.tenant_id, rows.c.batch_uuid == batch_uuid)
        .values(status=ended, sent_at=now if ended == "sent" else None, updated_at=now)
    )
    await connection.execute(
        sa.update(batches)
        .where(batches.c.tenant_id == message.tenant_id, batches.c.batch_uuid == batch_uuid)
        .values(status=ended, finished_at=now)
    )
