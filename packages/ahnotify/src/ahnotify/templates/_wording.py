"""Times and lengths of time in words, and an event's facts as the lines that a person reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ahnotify.templates._context import EventView, RuleView

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
