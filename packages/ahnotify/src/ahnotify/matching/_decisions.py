"""Decisions: who is told of an event, by what, in which way. Stored once, followed as they stand.

The law: a decision is inserted before anything is published, under the unique key (tenant, event,
rule, channel, recipient). What is stored wins over what would be decided now, so a redelivered
event or an edited rule changes nothing. A digest decision brings its row of notification_batches,
and that row's group, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import attrs
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ahnotify._identity import group_id
from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.database._insert import insert_into
from ahwire import IncidentEvent

INSTANT: Final = "instant"
_d = t.notification_decisions
_KEY: Final = ("tenant_id", "event_id", "rule_id", "channel", "recipient_type", "recipient_id")


@attrs.frozen
class DecisionKey:
    """One rule's match of an event, for one recipient by one channel."""

    rule_id: str
    channel: str
    recipient_type: str
    recipient_id: str


@attrs.frozen(kw_only=True)
class Decision:
    """What is to be done.

    Attributes:
        key: For what.
        notification_uuid: Its UUIDv5.
        mode: `instant`, `digest` or `instant_overflow`.
        period: First instant of the digest's period and first one after it; None for instant.
        message: The message of an instant one, encoded.
    """

    key: DecisionKey
    notification_uuid: str
    mode: str
    period: tuple[datetime, datetime] | None = None
    message: bytes | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class Unpublished:
    """An instant decision whose message is to be published."""

    tenant_id: str
    notification_uuid: str
    message: bytes = attrs.field(repr=False)


class DecisionStore:
    """Decisions in the database."""

    def __init__(self, *, database: Database) -> None:
        self._database = database

    async def existing(self, tenant_id: str, event_id: str) -> set[DecisionKey]:
        """The keys that are decided for this event."""
        query = sa.select(*(_d.c[name] for name in _KEY[2:])).where(
            _d.c.tenant_id == tenant_id, _d.c.event_id == event_id
        )
        async with self._database.read() as connection:
            return {DecisionKey(*row) for row in (await connection.execute(query)).all()}

    async def add(
        self, event: IncidentEvent, decisions: Sequence[Decision], now: datetime
    ) -> set[DecisionKey]:
        """Store what is not stored yet, all in one transaction.

        Returns:
            The keys that this call stored; the others were decided by somebody else before.
        """
        if not decisions:
            return set()
        rows = [_row(event, decision, now) for decision in decisions]
        async with self._database.write() as connection:
            statement = insert_into(connection, _d).on_conflict_do_nothing()
            returned = await connection.execute(
                statement.values(rows).returning(*(_d.c[name] for name in _KEY[2:]))
            )
            stored = {DecisionKey(*row) for row in returned.all()}
            for decision in decisions:
                if decision.key in stored and decision.period is not None:
                    await _add_to_digest(connection, event, decision, decision.period, now)
        return stored

    async def unpublished(
        self, tenant_id: str, *, outstanding_max: int, items_max: int
    ) -> list[Unpublished]:
        """The tenant's oldest unpublished messages, as many as its share has room for."""
        outstanding = (
            sa.select(sa.func.count())
            .select_from(_d)
            .where(
                _d.c.tenant_id == tenant_id,
                _d.c.mode == INSTANT,
                _d.c.published_at.is_not(None),
                _d.c.settled_at.is_(None),
            )
        )
        async with self._database.read() as connection:
            room = outstanding_max - (await connection.execute(outstanding)).scalar_one()
            if room <= 0:
                return []
            query = (
                sa.select(_d.c.notification_uuid, _d.c.message)
                .where(
                    _d.c.tenant_id == tenant_id,
                    _d.c.mode == INSTANT,
                    _d.c.published_at.is_(None),
                )
                .order_by(_d.c.created_at)
                .limit(min(room, items_max))
            )
            rows = (await connection.execute(query)).all()
        return [
            Unpublished(tenant_id=tenant_id, notification_uuid=uuid, message=message)
            for uuid, message in rows
        ]

    async def tenants_with_unpublished(self) -> list[str]:
        """Whose messages wait: the one question that is about tenants, not within one."""
        query = (
            sa.select(_d.c.tenant_id)
            .where(_d.c.mode == INSTANT, _d.c.published_at.is_(None))
            .distinct()
        )
        async with self._database.read() as connection:
            return sorted((await connection.execute(query)).scalars().all())

    async def mark_published(
        self, tenant_id: str, notification_uuids: Iterable[str], now: datetime
    ) -> None:
        """They are in the broker."""
        async with self._database.write() as connection:
            await connection.execute(
                sa.update(_d)
                .where(
                    _d.c.tenant_id == tenant_id,
                    _d.c.notification_uuid.in_(list(notification_uuids)),
                )
                .values(published_at=now)
            )


def _row(event: IncidentEvent, decision: Decision, now: datetime) -> dict[str, Any]:
    start, end = decision.period or (None, None)
    return {
        "tenant_id": event.tenant_id,
        "event_id": event.event_id,
        "rule_id": decision.key.rule_id,
        "channel": decision.key.channel,
        "recipient_type": decision.key.recipient_type,
        "recipient_id": decision.key.recipient_id,
        "notification_uuid": decision.notification_uuid,
        "mode": decision.mode,
        "period_start": start,
        "period_end": end,
        "message": decision.message,
        "created_at": now,
    }


async def _add_to_digest(
    connection: AsyncConnection,
    event: IncidentEvent,
    decision: Decision,
    period: tuple[datetime, datetime],
    now: datetime,
) -> None:
    """The event's row, and its group marked as collecting, within the decision's transaction."""
    group_key = {
        "rule_id": decision.key.rule_id,
        "recipient_type": decision.key.recipient_type,
        "recipient_id": decision.key.recipient_id,
        "channel": decision.key.channel,
        "schedule_mode": decision.mode,
        "period_start": period[0],
        "period_end": period[1],
    }
    group = group_id(event.tenant_id, **group_key)  # type: ignore[arg-type]  # one mapping for three uses
    groups = t.digest_groups
    statement = insert_into(connection, groups).values(
        tenant_id=event.tenant_id,
        group_id=group,
        **group_key,
        next_generation=0,
        collecting_since=now,
        last_row_at=now,
    )
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "group_id"],
            set_={
                "collecting_since": sa.func.coalesce(
                    groups.c.collecting_since, statement.excluded.collecting_since
                ),
                "last_row_at": statement.excluded.last_row_at,
            },
        )
    )
    await connection.execute(
        sa.insert(t.notification_batches).values(
            tenant_id=event.tenant_id,
            group_id=group,
            notification_uuid=decision.notification_uuid,
            **group_key,
            status="collecting",
            event_id=event.event_id,
            event_type=event.event_type,
            occurred_at=event.occurred_at,
            severity=str(event.severity),
            created_at=now,
            updated_at=now,
        )
    )
