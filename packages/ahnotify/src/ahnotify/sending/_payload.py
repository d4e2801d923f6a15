"""Reads payloads: what others wrote becomes lines of bounded length, numbers and times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ahnotify.templates._context import AlertView, GroupView

_VALUE_CHARS_MAX: Final = 200
_SERIES_CHARS_MAX: Final = 500
_NAME_CHARS_MAX: Final = 64
_LABELS_MAX: Final = 16
_AGENTS_MAX: Final = 20
_DURATION_SECONDS_MAX: Final = 100 * 366 * 86_400.0
_ALERT_PREFIX: Final = "alert_"
_FLAP_TYPES: Final = frozenset({"alert_flapping", "alert_settled"})
_GROUP_TYPES: Final = frozenset({"group_down", "group_up"})
#: What the flapping of an alert puts among its labels; told in lines of its own.
_OF_FLAPPING: Final = frozenset({"alert_state", "flap_changes"})
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def alert_view(event_type: str, payload: Mapping[str, Any]) -> AlertView | None:
    """What texts say of an alert; None when the event is none, or names no rule."""
    rule_id = text(payload.get("rule_id"))
    if not event_type.startswith(_ALERT_PREFIX) or not rule_id:
        return None
    key = payload.get("series_key")
    key = key if isinstance(key, str) else ""
    labels = _labels(payload)
    flaps = event_type in _FLAP_TYPES
    hidden = _OF_FLAPPING if flaps else frozenset[str]()
    value, threshold = _number(payload.get("value")), _number(payload.get("threshold"))
    peak = _number(payload.get("peak_value"))
    state = labels.get("alert_state") if flaps else None
    return AlertView(
        rule_id=rule_id,
        series=line(key, _SERIES_CHARS_MAX),
        labels=_labels_line({k: v for k, v in labels.items() if k not in hidden}, key),
        value=_written(value, threshold),
        relation=_relation(value, threshold),
        peak=_written(peak, threshold),
        changes=text(labels.get("flap_changes")) if event_type == "alert_flapping" else "",
        firing={"firing": True, "ok": False}.get(state) if isinstance(state, str) else None,
        duration_seconds=_duration(payload),
    )


def group_view(event_type: str, payload: Mapping[str, Any]) -> GroupView | None:
    """What texts say of a group; None when the event is none, or does not say how many."""
    labels = _labels(payload)
    count = labels.get("members_count")
    if event_type not in _GROUP_TYPES or not isinstance(count, int) or isinstance(count, bool):
        return None
    members = labels.get("members")
    named = members[:_AGENTS_MAX] if isinstance(members, list) else []
    agents = ", ".join(filter(None, map(text, named)))
    more = count - len(named)
    if agents and more > 0:
        agents = f"{agents} and {more} more"
    return GroupView(
        key=text(payload.get("group_key")),
        count=count,
        agents=agents,
        duration_seconds=_duration(payload),
    )


def moment(value: object) -> datetime | None:
    """A time with its zone, in UTC; None for what is none."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def text(value: object) -> str:
    """One line for a plain value, empty for what is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return line(str(value), _VALUE_CHARS_MAX)
    return ""


def name(value: str) -> str:
    """The name of a fact, as one short line."""
    return line(value, _NAME_CHARS_MAX)


def line(value: str, chars_max: int) -> str:
    """One line of at most `chars_max` characters; what is cut ends with an ellipsis."""
    whole = " ".join(value.split())
    return whole if len(whole) <= chars_max else f"{whole[: chars_max - 1]}…"


def _labels(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    labels = payload.get("labels")
    return labels if isinstance(labels, Mapping) else {}


def _labels_line(labels: Mapping[str, Any], key: str) -> str:
    """The labels that the series' key does not show already."""
    shown = []
    for label, value in labels.items():
        pair = f'{label}="{value.translate(_ESCAPES)}"' if isinstance(value, str) else None
        if pair is not None and (f"{{{pair}" in key or f",{pair}" in key):
            continue
        told = text(value)
        if told:
            shown.append(f'{name(label)}="{told}"')
    return ", ".join(shown[:_LABELS_MAX])


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _written(value: float | None, beside: float | None = None) -> str:
    """A number for people; with all its digits where it would look like another one beside it."""
    if value is None:
        return ""
    short = _short(value)
    looks_equal = beside is not None and beside != value and _short(beside) == short
    return repr(value) if looks_equal else short


def _short(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.15g}"


def _relation(value: float | None, threshold: float | None) -> str:
    # The event does not carry the rule's operator; where the value lies is true whatever it is.
    if value is None or threshold is None:
        return ""
    where = "above" if value > threshold else "below" if value < threshold else "at"
    return f"{where} {_written(threshold, value)}"


def _duration(payload: Mapping[str, Any]) -> float | None:
    seconds = _number(payload.get("duration_seconds"))
    return seconds if seconds is not None and 0 <= seconds <= _DURATION_SECONDS_MAX else None
