"""Events, and the request that brings them to the hub. Public as names of `ahwire.hub`."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum, unique
from typing import ClassVar

import attrs
from attrs import field
from attrs.validators import optional

from ahwire import _fields as check
from ahwire import limits
from ahwire._fields import JsonValue
from ahwire._json import JsonContract
from ahwire.errors import DecodeError


@unique
class EventType(StrEnum):
    """What an event tells."""

    AGENT_DOWN = "agent.down"
    AGENT_UP = "agent.up"
    ALERT_OPENED = "alert.opened"
    ALERT_RESOLVED = "alert.resolved"
    ALERT_REMINDER = "alert.reminder"
    ALERT_FLAPPING = "alert.flapping"
    ALERT_SETTLED = "alert.settled"
    GROUP_DOWN = "group.down"
    GROUP_UP = "group.up"

    @property
    def is_group(self) -> bool:
        """Whether the event is about many servers of a company, and so names none."""
        return self in {EventType.GROUP_DOWN, EventType.GROUP_UP}


@unique
class EventSeverity(StrEnum):
    """How bad what an event tells is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@attrs.frozen(kw_only=True)
class Event(JsonContract):
    """Something that happened to a server, an agent or a series.

    Attributes:
        event_id: UUIDv7; the hub takes each once.
        type: what it tells.
        seq: rises per (company, server, rule, series, agent); a lower one changes no state.
        occurred_at: when it was decided, by the collector's clock.
        company_id: whose event it is.
        server_id: the server; absent only in group events.
        agent_id: the agent, in events that are about one.
        rule_id: the threshold rule; `agent_down` for agents, `group_down` for groups.
        rule_version: of that rule, when it was decided.
        series_key: which series of the server; `agent` in events of agents.
        severity: the rule's; critical for downs, info for ups.
        value: what was compared.
        threshold: with what it was compared.
        duration_seconds: how long it had lasted then; absent where something begins.
        peak_value: the farthest that the value was on the wrong side since it began.
        reason: why it was decided, in one word, where it was not only the condition.
        suppressed: whether it is recorded only, and nobody is to be called.
        suppress_reason: by what: `silence:<id>`, a group, flapping.
        group_key: which group, in group events and in those that a group suppressed.
        labels: any JSON values: `last_seen_at`, `down_since`, `down_duration_s`, `members` (a list
            of at most 1,000 ids), `members_count`, and a series' own. Copied; treat as read-only.
    """

    event_id: str = field(validator=check.uuid7)
    type: EventType = field(validator=check.instance(EventType))
    seq: int = field(validator=check.integer())
    occurred_at: datetime = field(converter=check.as_utc, validator=check.moment)
    company_id: str = field(validator=check.identity)
    server_id: str | None = field(default=None, validator=optional(check.identity))
    agent_id: str | None = field(default=None, validator=optional(check.identity))
    rule_id: str | None = field(default=None, validator=optional(check.text()))
    rule_version: int | None = field(default=None, validator=optional(check.integer(least=0)))
    series_key: str | None = field(
        default=None, validator=optional(check.text(chars_max=check.SERIES_KEY_CHARS_MAX))
    )
    severity: EventSeverity | None = field(
        default=None, validator=optional(check.instance(EventSeverity))
    )
    value: float | None = field(
        default=None, converter=check.as_float, validator=optional(check.number())
    )
    threshold: float | None = field(
        default=None, converter=check.as_float, validator=optional(check.number())
    )
    duration_seconds: float | None = field(
        default=None, converter=check.as_float, validator=optional(check.number(least=0))
    )
    peak_value: float | None = field(
        default=None, converter=check.as_float, validator=optional(check.number())
    )
    reason: str | None = field(
        default=None, validator=optional(check.text(chars_max=check.TEXT_CHARS_MAX))
    )
    suppressed: bool = field(validator=check.boolean)
    suppress_reason: str | None = field(
        default=None, validator=optional(check.text(chars_max=check.TEXT_CHARS_MAX))
    )
    group_key: str | None = field(default=None, validator=optional(check.text()))
    labels: Mapping[str, JsonValue] = field(
        factory=dict, converter=check.as_json, validator=check.json_object, hash=False
    )

    def __attrs_post_init__(self) -> None:
        if self.server_id is None and not self.type.is_group:
            reason = f"is missing; only group events have none, and this is {self.type}"
            raise DecodeError(field="server_id", reason=reason)
        members = self.labels.get("members")
        if isinstance(members, list) and len(members) > limits.MAX_GROUP_MEMBERS:
            reason = f"has {len(members)} items; at most {limits.MAX_GROUP_MEMBERS} are taken"
            raise DecodeError(field="labels.members", reason=reason)


@attrs.frozen(kw_only=True)
class EventsRequest(JsonContract):
    """Body of `POST /events`: 1 to 200 events.

    Attributes:
        events: in the order in which they were decided; each may have been sent before.
    """

    events: tuple[Event, ...] = field(
        validator=check.items(check.instance(Event), 1, limits.MAX_EVENTS_PER_REQUEST)
    )


@attrs.frozen(kw_only=True)
class RejectedEvent(JsonContract):
    """An event that the hub will never take.

    Attributes:
        event_id: its id, as it was sent.
        reason: why, for people; cut at 1,024 characters.
    """

    event_id: str = field(validator=check.text())
    reason: str = field(
        converter=check.as_short_text,
        validator=check.text(chars_min=0, chars_max=check.TEXT_CHARS_MAX),
    )


@attrs.frozen(kw_only=True)
class EventsReply(JsonContract):
    """Answer to `POST /events`: what became of each event of the request.

    An event that is named in neither is sent again.

    Attributes:
        accepted: ids of the events that the hub has now, or had already: it keeps them.
        rejected: those it will never take; the collector sets them aside as dead letters.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    accepted: tuple[str, ...] = field(
        validator=check.items(check.text(), 0, limits.MAX_EVENTS_PER_REQUEST)
    )
    rejected: tuple[RejectedEvent, ...] = field(
        validator=check.items(check.instance(RejectedEvent), 0, limits.MAX_EVENTS_PER_REQUEST)
    )
