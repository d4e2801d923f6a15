"""What a template sees, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class EventView:
    """One event.

    Attributes:
        event_id: Its id.
        event_type: Such as `agent_down`.
        severity: low, middle or high.
        occurred_at: When, UTC.
        host: The server it is about; empty when unknown.
        ip_address: Its address; empty when unknown.
        details: Short facts of the payload, as name and text, in order.
        since: Since when the server is silent, where the event says so.
    """

    event_id: str
    event_type: str
    severity: str
    occurred_at: datetime
    host: str = ""
    ip_address: str = ""
    details: Sequence[tuple[str, str]] = ()
    since: datetime | None = None


@attrs.frozen(kw_only=True)
class InstantContext:
    """One event, told at once."""

    event: EventView
    rule_name: str


@attrs.frozen(kw_only=True)
class DigestContext:
    """Many events of one period.

    Attributes:
        events: Those that are shown.
        events_count: All of them.
        rendered_events_count: How many are shown.
        hidden_events_count: How many are not.
        missing_event_ids: Shown by id only: their details were not yet available.
        events_audit_url: Where all of them can be seen; empty when no public address is set.
        overflow: They were meant to be told at once, but there were too many.
        supplement: A digest of this period went out before; these came later.
        period_start: First instant of the period.
        period_end: First instant after it.
        rule_name: Which rule.
    """

    events: Sequence[EventView]
    events_count: int
    rendered_events_count: int
    hidden_events_count: int
    missing_event_ids: Sequence[str]
    events_audit_url: str
    overflow: bool
    supplement: bool
    period_start: datetime
    period_end: datetime
    rule_name: str


def context_values(context: InstantContext | DigestContext) -> Mapping[str, Any]:
    """The context as Jinja2's variables."""
    return attrs.asdict(context, recurse=False)
