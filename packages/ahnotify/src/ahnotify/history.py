"""What became of notifications: read-only questions about one tenant."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs
import sqlalchemy as sa

from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.errors import NotFoundError

__all__ = ["DeadLetter", "History", "Notification", "Story"]


@attrs.frozen(kw_only=True)
class Notification:
    """One notification's result.

    Attributes:
        notification_uuid: Its id.
        status: pending, retry, sent, failed or unknown.
        error_code: Why it is not sent, else None.
        events_count: How many events it tells of.
        event_ids: Their ids, at most 1,000.
        finished_at: When it ended, None while it goes on.
    """

    notification_uuid: str
    rule_id: str
    recipient_type: str
    recipient_id: str
    channel: str
    status: str
    attempt: int
    error_code: str | None
    events_count: int
    event_ids: list[str]
    batch_uuid: str | None
    created_at: datetime
    finished_at: datetime | None


@attrs.frozen(kw_only=True)
class Story:
    """One notification with its targets and every call for them, as plain rows."""

    notification: Notification
    targets: list[dict[str, Any]]
    attempts: list[dict[str, Any]]


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A message that could not be handled.

    Attributes:
        reason: Why.
        attempts: How often it was tried.
    """

    letter_id: str
    source_queue: str
    reason: str
    attempts: int
    created_at: datetime


class History:
    """Reads results, attempts and dead letters."""

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def recent(
        self, tenant_id: str, *, before: tuple[datetime, str] | None = None, limit: int = 100
    ) -> list[Notification]:
        """Notifications, newest first, from behind `before`: created_at and uuid of one."""
        r = t.delivery_results
        query = sa.select(r).where(r.c.tenant_id == tenant_id)
        if before is not None:
            at, uuid = before
            older = sa.and_(r.c.created_at == at, r.c.notification_uuid < uuid)
            query = query.where(sa.or_(r.c.created_at < at, older))
        query = query.order_by(r.c.created_at.desc(), r.c.notification_uuid.desc()).limit(limit)
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [_notification(row) for row in rows]

    async def story(self, tenant_id: str, notification_uuid: str) -> Story:
        """Everything about one notification.

        Raises:
            NotFoundError: The tenant has none of this id.
        """
        r, targets, calls = t.delivery_results, t.delivery_targets, t.delivery_attempts
        async with self._database.read() as connection:
            row = (
                (await connection.execute(_of(r, tenant_id, notification_uuid)))
                .mappings()
                .one_or_none()
            )
            if row is None:
                raise NotFoundError(f"there is no notification {notification_uuid!r}")
            target_rows = await connection.execute(
                _of(targets, tenant_id, notification_uuid).order_by(targets.c.contact_id)
            )
            call_rows = await connection.execute(
                _of(calls, tenant_id, notification_uuid).order_by(calls.c.id)
            )
            return Story(
                notification=_notification(row),
                targets=[_chosen(each, _TARGET_COLUMNS) for each in target_rows.mappings().all()],
                attempts=[_chosen(each, _CALL_COLUMNS) for each in call_rows.mappings().all()],
            )

    async def dead_letters(self, tenant_id: str, *, limit: int = 100) -> list[DeadLetter]:
        """The tenant's dead letters, newest first."""
        d = t.dead_letters
        query = (
            sa.select(d)
            .where(d.c.tenant_id == tenant_id)
            .order_by(d.c.created_at.desc(), d.c.letter_id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            DeadLetter(
                letter_id=row["letter_id"],
                source_queue=row["source_queue"],
                reason=row["reason"],
                attempts=row["attempts"],
                created_at=row["created_at"],
            )
            for row in rows
        ]


_TARGET_COLUMNS = (
    "target_id",
    "contact_id",
    "channel",
    "address",
    "status",
    "tries",
    "attempt",
    "unknown_count",
    "error_code",
    "next_attempt_at",
    "finished_at",
)
_CALL_COLUMNS = (
    "target_id",
    "try_number",
    "attempt",
    "status",
    "provider_message_id",
    "error_code",
    "error_message",
    "started_at",
    "finished_at",
)


def _of(table: sa.Table, tenant_id: str, notification_uuid: str) -> sa.Select[Any]:
    return sa.select(table).where(
        table.c.tenant_id == tenant_id, table.c.notification_uuid == notification_uuid
    )


def _chosen(row: sa.RowMapping, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _notification(row: sa.RowMapping) -> Notification:
    names = [field.name for field in attrs.fields(Notification)]
    return Notification(**{name: row[name] for name in names})
