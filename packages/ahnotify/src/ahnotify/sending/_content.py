"""From a message to its text: instant from what it carries, digest from the incident store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.incidents.base import IncidentStore
from ahnotify.providers.base import Content
from ahnotify.templates._builtin import BuiltinRenderer
from ahnotify.templates._context import DigestContext, EventView, InstantContext
from ahwire import IncidentEvent, NotificationMessage

_DETAILS_MAX: Final = 16
_NAME_CHARS_MAX: Final = 64
_VALUE_CHARS_MAX: Final = 200
#: Where the bridge puts the time since which a server is silent.
_SINCE_NAMES: Final = ("last_seen_at", "down_since")


class EventsMissingError(Exception):
    """Some events of a digest are not yet in the incident store; stays within sending."""


class ContentMaker:
    """Makes the content of messages."""

    def __init__(
        self,
        *,
        database: Database,
        incidents: IncidentStore,
        public_url: str,
        missing_wait_seconds: float,
    ) -> None:
        self._database = database
        self._incidents = incidents
        self._public_url = public_url.rstrip("/")
        self._missing_wait = timedelta(seconds=missing_wait_seconds)
        self._renderer = BuiltinRenderer()

    async def make(
        self, message: NotificationMessage, *, rule_name: str, render_limit: int, now: datetime
    ) -> Content:
        """Subject, text and HTML of `message`.

        Raises:
            EventsMissingError: A digest's events are not all there, and it is early enough to wait.
            RenderError: A template of ours is wrong.
            DatabaseUnavailableError: The rows or the incidents could not be read.
        """
        if message.digest is None:
            event = message.incident[0]
            assert isinstance(event, IncidentEvent)
            return self._renderer.render(InstantContext(event=view(event), rule_name=rule_name))
        return self._renderer.render(await self._digest(message, rule_name, render_limit, now))

    async def _digest(
        self, message: NotificationMessage, rule_name: str, render_limit: int, now: datetime
    ) -> DigestContext:
        digest = message.digest
        assert digest is not None
        shown_ids, queued_at = await self._shown(message.tenant_id, digest.batch_uuid, render_limit)
        events = await self._incidents.read(message.tenant_id, shown_ids)
        there = {event.event_id for event in events}
        missing = [event_id for event_id in shown_ids if event_id not in there]
        if missing and now < queued_at + self._missing_wait:
            raise EventsMissingError(f"{len(missing)} events are not in the incident store yet")
        return DigestContext(
            events=[view(event) for event in events],
            events_count=digest.events_count,
            rendered_events_count=len(events),
            hidden_events_count=digest.events_count - len(shown_ids),
            missing_event_ids=missing,
            events_audit_url=self._audit_url(digest.batch_uuid),
            overflow=digest.schedule_mode == "instant_overflow",
            supplement=digest.generation > 0,
            period_start=digest.period_start,
            period_end=digest.period_end,
            rule_name=rule_name,
        )

    async def _shown(
        self, tenant_id: str, batch_uuid: str, limit: int
    ) -> tuple[Sequence[str], datetime]:
        """The ids to show and when the batch was queued, from its rows."""
        rows = t.notification_batches
        query = (
            sa.select(rows.c.event_id, rows.c.queued_at)
            .where(rows.c.tenant_id == tenant_id, rows.c.batch_uuid == batch_uuid)
            .order_by(rows.c.occurred_at, rows.c.id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            found = (await connection.execute(query)).all()
        epoch = datetime.fromtimestamp(0, tz=UTC)
        return [event_id for event_id, _ in found], max((at for _, at in found), default=epoch)

    def _audit_url(self, batch_uuid: str) -> str:
        return f"{self._public_url}/batches/{batch_uuid}" if self._public_url else ""


def view(event: IncidentEvent) -> EventView:
    """The event as templates see it."""
    labels = event.payload.get("labels")
    facts: dict[str, Any] = {**event.payload, **(labels if isinstance(labels, Mapping) else {})}
    since = next((at for name in _SINCE_NAMES if (at := _moment(facts.get(name)))), None)
    return EventView(
        event_id=event.event_id,
        event_type=event.event_type,
        severity=str(event.severity),
        occurred_at=event.occurred_at,
        host=event.host or "",
        ip_address=event.ip_address or "",
        details=_details(event.payload),
        since=since,
    )


def _moment(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None


def _details(payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Top-level facts that fit on a line; nested ones are for the audit."""
    found = []
    for name, value in payload.items():
        if isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
            text = str(value)
        else:
            continue
        if text:
            found.append((_line(name, _NAME_CHARS_MAX), _line(text, _VALUE_CHARS_MAX)))
    return found[:_DETAILS_MAX]


def _line(text: str, chars_max: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"
