"""From a message to its text: instant from what it carries, digest from the incident store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import sqlalchemy as sa

from ahnotify.database import Database
from ahnotify.database import _runtime_tables as t
from ahnotify.incidents.base import IncidentStore
from ahnotify.providers.base import Content
from ahnotify.sending import _payload
from ahnotify.templates._builtin import BuiltinRenderer
from ahnotify.templates._context import DigestContext, EventView, InstantContext, RuleView
from ahwire import Event, EventType, IncidentEvent, NotificationMessage

_DETAILS_MAX: Final = 16
#: Events about servers, whose payload is an `ahwire.Event`; any other payload is its publisher's.
_HUB_TYPES: Final = frozenset(kind.value.replace(".", "_") for kind in EventType)
#: What of an `ahwire.Event` is for programs, or is told in its own place.
_IN_AN_ALERT: Final = frozenset({"value", "threshold", "peak_value"})
_NOT_FOR_PEOPLE: Final = frozenset(each.name for each in attrs.fields(Event)) - _IN_AN_ALERT
_REASONS: Final = {
    "never_reported": "nothing was ever received from its agent",
    "removed": "the agent was removed",
    # The line of the condition says it.
    "condition": "",
    "no_data": "no data comes",
    "data_returned": "data comes again",
    "rule_changed": "the rule was changed",
    "rule_removed": "the rule was removed",
    "rule_disabled": "the rule was disabled",
    "rule_refused": "the rule's new version cannot be used",
    "forgotten": "the server was taken away",
    "silence_ended": "a silence that hid it has ended",
    "group_ended": "it is told by itself, for the group that it belonged to has ended",
}
_NO_DATA_RESOLVED: Final = "no data comes any more, which the rule calls fine"


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
        self, message: NotificationMessage, *, rule: RuleView, render_limit: int, now: datetime
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
            return self._renderer.render(InstantContext(event=view(event), rule=rule))
        return self._renderer.render(await self._digest(message, rule, render_limit, now))

    async def _digest(
        self, message: NotificationMessage, rule: RuleView, render_limit: int, now: datetime
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
            rule=rule,
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
    payload = event.payload
    labels = payload.get("labels")
    facts: dict[str, Any] = {**payload, **(labels if isinstance(labels, Mapping) else {})}
    of_hub = event.event_type in _HUB_TYPES
    reason = _payload.text(payload.get("reason")) if of_hub else ""
    alert = _payload.alert_view(event.event_type, payload) if of_hub else None
    hidden = _NOT_FOR_PEOPLE if of_hub else frozenset[str]()
    if alert is not None:
        hidden |= _IN_AN_ALERT
    return EventView(
        event_id=event.event_id,
        event_type=event.event_type,
        severity=(of_hub and _payload.text(payload.get("severity"))) or str(event.severity),
        occurred_at=event.occurred_at,
        host=event.host or "",
        ip_address=event.ip_address or "",
        agent_id=_payload.text(payload.get("agent_id")) if of_hub else "",
        reason=reason,
        reason_text=_reason_text(event.event_type, reason),
        details=_details({k: v for k, v in payload.items() if k not in hidden}),
        last_seen_at=_payload.moment(facts.get("last_seen_at")),
        down_since=_payload.moment(facts.get("down_since")),
        alert=alert,
        group=_payload.group_view(event.event_type, payload) if of_hub else None,
    )


def _details(payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Top-level facts that fit on a line; nested ones are for the audit."""
    found = []
    for name, value in payload.items():
        text = _payload.text(value)
        if text:
            found.append((_payload.name(name), text))
    return found[:_DETAILS_MAX]


def _reason_text(event_type: str, reason: str) -> str:
    if reason == "no_data" and event_type == "alert_resolved":
        return _NO_DATA_RESOLVED
    return _REASONS.get(reason, reason.replace("_", " "))
