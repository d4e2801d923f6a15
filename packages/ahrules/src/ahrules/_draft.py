"""Events that follow from other events, before they have an id of their own."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Self

import attrs

from ahwire.hub import Event, EventSeverity, EventType, JsonValue

ALERT_STATE_LABEL: Final = "alert_state"
"""Label of alert.flapping and alert.settled: `firing` or `ok`."""
STATE_FIRING: Final = "firing"
STATE_OK: Final = "ok"

EventKey = tuple[str, str, str, str, str, str]
"""Company, server, rule, series, agent, group: what is absent is the empty text."""


def event_key(event: "Event | EventDraft") -> EventKey:
    """Return what the hub keeps a state by: company, server, rule, series, agent, group."""
    return (
        event.company_id,
        event.server_id or "",
        event.rule_id or "",
        event.series_key or "",
        event.agent_id or "",
        (event.group_key or "") if event.type.is_group else "",
    )


@attrs.frozen(kw_only=True)
class EventDraft:
    """An event that is due, without `event_id` and `seq`, which only the caller can give.

    The attributes are those of `ahwire.hub.Event`; they are checked when the event is made.
    """

    type: EventType
    occurred_at: datetime
    company_id: str
    server_id: str | None = None
    agent_id: str | None = None
    rule_id: str | None = None
    rule_version: int | None = None
    series_key: str | None = None
    severity: EventSeverity | None = None
    value: float | None = None
    threshold: float | None = None
    duration_seconds: float | None = None
    peak_value: float | None = None
    reason: str | None = None
    suppressed: bool = False
    suppress_reason: str | None = None
    group_key: str | None = None
    labels: Mapping[str, JsonValue] = attrs.field(factory=dict, hash=False)

    @classmethod
    def again(cls, event: Event, *, occurred_at: datetime, reason: str | None) -> Self:
        """Return the same event told once more and unsuppressed, for a reason of its own."""
        kept = _values(event) | {
            "occurred_at": occurred_at,
            "reason": reason,
            "suppressed": False,
            "suppress_reason": None,
            # A group's key says which group it is; on others it says which group hides them.
            "group_key": event.group_key if event.type.is_group else None,
        }
        del kept["event_id"], kept["seq"]
        return cls(**kept)

    def event(self, *, event_id: str, seq: int) -> Event:
        """Return the event.

        Args:
            event_id: A new UUIDv7. To be stored with the state that made the draft, so that a
                repetition after a crash has the same.
            seq: Above that of the last event of the same `event_key`.

        Raises:
            ahwire.errors.DecodeError: An attribute breaks the contract of events.
        """
        return Event(event_id=event_id, seq=seq, **_values(self))


def _values(value: Event | EventDraft) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in attrs.fields(type(value))}
