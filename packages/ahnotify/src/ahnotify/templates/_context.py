"""What a template sees, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class RuleView:
    """What texts say of a rule.

    Attributes:
        name: The rule's name.
        company: The tenant's name.
        timezone: In which zone its times are told.
    """

    name: str
    company: str
    timezone: str = "UTC"


@attrs.frozen(kw_only=True)
class AlertView:
    """What texts say of an alert.

    Attributes:
        rule_id: The threshold rule that judged.
        series: What it judged, as `ah_disk_used_percent{mount="/"}`; empty when unknown.
        labels: What its labels say besides: those that the rule put on it, as one line.
        value: What was compared last, as a text; empty where there was none.
        relation: Where the value lies, as "above 90"; empty without a value or a threshold.
        peak: The farthest that the value was, as a text; empty where that is not known.
        changes: How often it changed, when it was found to flap; empty for other events.
        firing: Whether a flapping or settled alert is open; None for other events.
        duration_seconds: How long it had been open, or flapping when it settled; None at first.
    """

    rule_id: str
    series: str = ""
    labels: str = ""
    value: str = ""
    relation: str = ""
    peak: str = ""
    changes: str = ""
    firing: bool | None = None
    duration_seconds: float | None = None


@attrs.frozen(kw_only=True)
class GroupView:
    """What texts say of many agents that are silent at once.

    Attributes:
        key: The group's key.
        count: How many are silent.
        agents: Their ids as one line, cut with the number of those that are not named.
        duration_seconds: How long the group had lasted; None while it does.
    """

    key: str
    count: int
    agents: str
    duration_seconds: float | None = None


@attrs.frozen(kw_only=True)
class EventView:
    """One event.

    Attributes:
        event_id: Its id.
        event_type: Such as `agent_down`.
        severity: info, warning or critical where a rule said so, else low, middle or high.
        occurred_at: When, UTC.
        host: The server it is about; empty when unknown.
        ip_address: Its address; empty when unknown.
        agent_id: The agent it is about; empty when unknown.
        reason: The reason as the event has it; empty without one.
        reason_text: The same in words.
        details: Short facts of the payload that a person reads, as name and text, in order.
        last_seen_at: The last sign of life before a silence, where the event says so.
        down_since: When the silence was noticed, where the event says so.
        alert: What else is told of an alert; None for other events.
        group: What else is told of a group; None for other events.
    """

    event_id: str
    event_type: str
    severity: str
    occurred_at: datetime
    host: str = ""
    ip_address: str = ""
    agent_id: str = ""
    reason: str = ""
    reason_text: str = ""
    details: Sequence[tuple[str, str]] = ()
    last_seen_at: datetime | None = None
    down_since: datetime | None = None
    alert: AlertView | None = None
    group: GroupView | None = None

    @property
    def silent_seconds(self) -> float | None:
        """From the last sign of life to this event, not below 0; None when that is not known."""
        return self._seconds_since(self.last_seen_at)

    @property
    def down_seconds(self) -> float | None:
        """From when the silence was noticed to this event, likewise."""
        return self._seconds_since(self.down_since)

    def _seconds_since(self, moment: datetime | None) -> float | None:
        return None if moment is None else max(0.0, (self.occurred_at - moment).total_seconds())


@attrs.frozen(kw_only=True)
class InstantContext:
    """One event, told at once."""

    event: EventView
    rule: RuleView


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
        rule: Which rule.
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
    rule: RuleView


def context_values(context: InstantContext | DigestContext) -> Mapping[str, Any]:
    """The context as Jinja2's variables."""
    return attrs.asdict(context, recurse=False) | {"zone": context.rule.timezone}
