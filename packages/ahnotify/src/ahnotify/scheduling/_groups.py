"""Digest groups in the database: which are due, closing one generation, publishing a batch.

The law of a group (tenant, rule, recipient, channel, mode, period):

    rows collecting, not due         wait
    rows collecting, due             close: in one transaction under the group's lock the rows
                                     become `queued` with batch_uuid = UUIDv5(group, generation),
                                     and the generation is spent
    rows that come later             belong to the next generation: a supplement

Generation 0 is due `grace` after the period's end. A later one also waits until rows stopped coming
for `quiet`, but not longer than `supplement_wait` after its first row. A batch is published after
the commit, by its uuid and with its rows, as often as it takes until published_at is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ahnotify._identity import batch_id
from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahrules import batch_key
from ahwire import NotificationMessage, limits
from ahwire import notification as wire

_g = t.digest_groups
_b = t.digest_batches
_rows = t.notification_batches


@attrs.frozen(kw_only=True)
class DueRules:
    """When a generation may be closed."""

    grace: timedelta
    quiet: timedelta
    supplement_wait: timedelta

    def condition(self, now: datetime) -> sa.ColumnElement[bool]:
        """True of a group row that is due at `now`."""
        return sa.and_(
            _g.c.collecting_since.is_not(None),
            _g.c.period_end <= now - self.grace,
            sa.or_(
                _g.c.next_generation == 0,
                _g.c.last_row_at <= now - self.quiet,
                _g.c.collecting_since <= now - self.supplement_wait,
            ),
        )


class GroupStore:
    """Digest groups and batches."""

    def __init__(self, *, database: Database, rules: DueRules) -> None:
        self._database = database
        self._rules = rules

    async def due(self, now: datetime, *, items_max: int) -> list[tuple[str, str]]:
        """`(tenant_id, group_id)` of groups that are due, longest over first; of all tenants."""
        query = (
            sa.select(_g.c.tenant_id, _g.c.group_id)
            .where(self._rules.condition(now))
            .order_by(_g.c.period_end)
            .limit(items_max)
        )
        async with self._database.read() as connection:
            return [(tenant, group) for tenant, group in (await connection.execute(query)).all()]

    async def close(self, tenant_id: str, group_id: str, now: datetime) -> str | None:
        """Close the group's generation.

        Returns:
            The new batch's uuid; None when another scheduler was first or it is no longer due.
        """
        async with self._database.write() as connection:
            # The lock: on PostgreSQL this row, on SQLite the whole file.
            query = (
                sa.select(_g)
                .where(
                    _g.c.tenant_id == tenant_id,
                    _g.c.group_id == group_id,
                    self._rules.condition(now),
                )
                .with_for_update(skip_locked=True)
            )
            group = (await connection.execute(query)).mappings().one_or_none()
            if group is None:
                return None
            generation = group["next_generation"]
            batch_uuid = batch_id(tenant_id, group_id, generation)
            queued = await connection.execute(
                sa.update(_rows)
                .where(
                    _rows.c.tenant_id == tenant_id,
                    _rows.c.group_id == group_id,
                    _rows.c.status == "collecting",
                )
                .values(
                    status="queued",
                    batch_uuid=batch_uuid,
                    generation=generation,
                    queued_at=now,
                    updated_at=now,
                )
            )
            spent = 1 if queued.rowcount else 0
            await connection.execute(
                sa.update(_g)
                .where(_g.c.tenant_id == tenant_id, _g.c.group_id == group_id)
                .values(next_generation=generation + spent, collecting_since=None)
            )
            if not spent:
                return None
            await connection.execute(
                sa.insert(_b).values(
                    tenant_id=tenant_id,
                    batch_uuid=batch_uuid,
                    group_id=group_id,
                    generation=generation,
                    events_count=queued.rowcount,
                    status="queued",
                    queued_at=now,
                )
            )
        return batch_uuid

    async def unpublished(self, before: datetime, *, items_max: int) -> list[tuple[str, str]]:
        """`(tenant_id, batch_uuid)` of batches queued at or before `before` and not published."""
        query = (
            sa.select(_b.c.tenant_id, _b.c.batch_uuid)
            .where(_b.c.published_at.is_(None), _b.c.queued_at <= before)
            .order_by(_b.c.queued_at)
            .limit(items_max)
        )
        async with self._database.read() as connection:
            return [(tenant, batch) for tenant, batch in (await connection.execute(query)).all()]

    async def message(self, tenant_id: str, batch_uuid: str) -> NotificationMessage:
        """The batch as it is published, the same whenever it is asked for."""
        query = (
            sa.select(_g, _b.c.generation, _b.c.events_count)
            .join(_b, sa.and_(_b.c.tenant_id == _g.c.tenant_id, _b.c.group_id == _g.c.group_id))
            .where(_b.c.tenant_id == tenant_id, _b.c.batch_uuid == batch_uuid)
        )
        async with self._database.read() as connection:
            row = (await connection.execute(query)).mappings().one()
            ids: Sequence[str] = ()
            if row["events_count"] <= limits.MAX_INCIDENT_REFS:
                ids = await _event_ids(connection, tenant_id, batch_uuid)
        return _message(tenant_id, batch_uuid, row, ids)

    async def mark_published(self, tenant_id: str, batch_uuid: str, now: datetime) -> None:
        """The broker has it."""
        async with self._database.write() as connection:
            await connection.execute(
                sa.update(_b)
                .where(_b.c.tenant_id == tenant_id, _b.c.batch_uuid == batch_uuid)
                .values(published_at=now)
            )


async def _event_ids(connection: AsyncConnection, tenant_id: str, batch_uuid: str) -> Sequence[str]:
    query = (
        sa.select(_rows.c.event_id)
        .where(_rows.c.tenant_id == tenant_id, _rows.c.batch_uuid == batch_uuid)
        .order_by(_rows.c.occurred_at, _rows.c.id)
    )
    return (await connection.execute(query)).scalars().all()


def _message(
    tenant_id: str, batch_uuid: str, row: sa.RowMapping | dict[str, Any], ids: Sequence[str]
) -> NotificationMessage:
    key = batch_key(row["rule_id"], row["recipient_id"], row["channel"], row["period_start"])
    return NotificationMessage(
        notification_uuid=batch_uuid,
        tenant_id=tenant_id,
        incident=tuple(wire.EventRef(event_id=each) for each in ids),
        rule_id=row["rule_id"],
        recipient=wire.Recipient(
            recipient_type=wire.RecipientType(row["recipient_type"]),
            recipient_id=row["recipient_id"],
        ),
        channel=wire.Channel(channel=wire.ChannelType(row["channel"])),
        delivery_mode=wire.DeliveryMode.DIGEST,
        digest=wire.Digest(
            period_start=row["period_start"],
            period_end=row["period_end"],
            batch_key=key,
            batch_uuid=batch_uuid,
            generation=row["generation"],
            schedule_mode=wire.ScheduleMode(row["schedule_mode"]),
            events_count=row["events_count"],
        ),
    )
