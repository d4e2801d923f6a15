"""Times and lengths of time in words, and an event's facts as the lines that a person reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ahnotify.templates._context import AlertView, EventView, GroupView, RuleView

_At = Callable[[datetime | None], str]
_TIME: Final = "%Y-%m-%d %H:%M:%S"
_CLOCK: Final = "%H:%M:%S"
_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def facts(event: EventView, rule: RuleView) -> list[tuple[str, str]]:
    """Names and texts: the server first, what only support asks for last."""

    def at(moment: datetime | None) -> str:
        return "" if moment is None else when_both(moment, rule.timezone)

    rows = [("Server", event.host), ("Address", event.ip_address), ("Company", rule.company)]
    if event.event_type == "agent_down":
        rows += [("Last heard", at(event.last_seen_at)), ("Noticed", at(event.occurred_at))]
    elif event.event_type == "agent_up":
        ended = "Removed" if event.reason == "removed" else "Heard again"
        rows += [
            ("Last heard", at(event.last_seen_at)),
            ("Noticed", at(event.down_since)),
            (ended, at(event.occurred_at)),
        ]
    elif event.alert is not None:
        rows += _alert_facts(event, event.alert, at)
    elif event.group is not None:
        rows += _group_facts(event, event.group, at)
    else:
        rows += [("Time", at(event.occurred_at))]
    if event.silent_seconds is not None:
        rows += [("Silent for", span(event.silent_seconds))]
    elif event.down_seconds is not None:
        rows += [("Down for", span(event.down_seconds))]
    rows += [("Reason", event.reason_text), ("Severity", event.severity)]
    rows += event.details
    rows += [("Agent", event.agent_id)]
    return [(name, text) for name, text in rows if text]


def _alert_facts(event: EventView, alert: AlertView, at: _At) -> list[tuple[str, str]]:
    """Which alert, what holds, and since when."""
    rows = [("Rule", alert.rule_id), ("Series", alert.series), ("Labels", alert.labels)]
    rows += [("Condition", condition(event, alert)), ("Peak", alert.peak)]
    began, lasted = _began(event, alert.duration_seconds)
    match event.event_type:
        case "alert_opened":
            rows += [("Since", at(event.occurred_at))]
        case "alert_resolved":
            rows += [
                ("Since", at(began)),
                ("Resolved", at(event.occurred_at)),
                ("Open for", lasted),
            ]
        case "alert_reminder":
            rows += [("Since", at(began)), ("Open for", lasted), ("Time", at(event.occurred_at))]
        case "alert_settled":
            rows += [
                ("Flapped since", at(began)),
                ("Settled", at(event.occurred_at)),
                ("Flapped for", lasted),
            ]
        case _:
            rows += [("Since", at(event.occurred_at)), ("Changes", alert.changes)]
    return rows


def _group_facts(event: EventView, group: GroupView, at: _At) -> list[tuple[str, str]]:
    """How many and who, and since when."""
    began, lasted = _began(event, group.duration_seconds)
    rows = [("Silent", f"{group.count} agent{'' if group.count == 1 else 's'}")]
    rows += [("Agents", group.agents), ("Group", group.key)]
    if event.event_type == "group_down":
        return [*rows, ("Time", at(event.occurred_at))]
    return [*rows, ("Since", at(began)), ("Ended", at(event.occurred_at)), ("Lasted", lasted)]


def condition(event: EventView, alert: AlertView) -> str:
    """What was compared last: `95, above 90`; in words where there was nothing to compare."""
    if event.reason == "no_data":
        return "no data"
    return f"{alert.value}, {alert.relation}" if alert.relation else alert.value


def _began(event: EventView, seconds: float | None) -> tuple[datetime | None, str]:
    """When what lasted so long began, and how long that is in words."""
    if seconds is None:
        return None, ""
    try:
        return event.occurred_at - timedelta(seconds=seconds), span(seconds)
    except OverflowError:
        # The calendar has no such day; the length alone says it.
        return None, span(seconds)


def when(value: datetime, zone: str = "UTC") -> str:
    """An instant for people: `2026-06-15 12:20:30 Europe/Berlin`."""
    local, name = _local(value, zone)
    return f"{local:{_TIME}} {name}"


def when_both(value: datetime, zone: str = "UTC") -> str:
    """The same with UTC beside it where the two differ: `… Europe/Berlin (10:20:30 UTC)`."""
    local, name = _local(value, zone)
    text = f"{local:{_TIME}} {name}"
    if not local.utcoffset():
        return text
    utc = value.astimezone(UTC)
    return f"{text} ({utc:{_TIME if utc.date() != local.date() else _CLOCK}} UTC)"


def _local(value: datetime, zone: str) -> tuple[datetime, str]:
    try:
        return value.astimezone(ZoneInfo(zone)), zone
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # The zone was one when it was stored; a mail in UTC is better than none.
        return value.astimezone(UTC), "UTC"


def span(seconds: float) -> str:
    """A length of time for people, in its two largest units: `3 minutes`, `2 hours 5 minutes`."""
    rest, texts = int(seconds), []
    for size, name in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            texts.append(f"{count} {name}" if count == 1 else f"{count} {name}s")
        if texts and (not count or len(texts) == 2):
            # Hours without minutes, not hours and seconds.
            break
    return " ".join(texts) or "less than a second"
