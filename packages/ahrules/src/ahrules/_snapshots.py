"""States as plain JSON values, and back."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from ahrules._draft import EventKey
from ahrules._moments import check_aware
from ahrules.errors import SnapshotError
from ahwire.hub import Event

VERSION: Final = 1


@contextmanager
def reading(what: str, data: object) -> Iterator[dict[str, Any]]:
    """Give the snapshot's fields; whatever fails while they are read is a SnapshotError."""
    try:
        if not isinstance(data, Mapping):
            raise TypeError(f"it is {type(data).__name__}, not an object")
        if data.get("version") != VERSION:
            raise ValueError(f"its version is {data.get('version')!r}, not {VERSION}")
        yield dict(data)
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise SnapshotError(
            f"this snapshot of {what} cannot be read ({error!r}); set it aside and start without it"
        ) from error


def event_to_json(event: Event) -> Any:
    """Return an event's contract form."""
    return json.loads(event.to_json())


def event_from_json(data: object) -> Event:
    """Return the event; ValueError when it is none."""
    return Event.from_json(json.dumps(data).encode())


def time_to_json(moment: datetime) -> str:
    """Return an instant as text, to the microsecond."""
    return moment.astimezone(UTC).isoformat()


def time_from_json(text: object) -> datetime:
    """Return the instant; TypeError or ValueError when it is none."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no time")
    return check_aware(datetime.fromisoformat(text)).astimezone(UTC)


def flag_from_json(value: object) -> bool:
    """Return a boolean; TypeError when it is none."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def count_from_json(value: object) -> int:
    """Return a number of things; TypeError or ValueError when it is none."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no count")
    if value < 0:
        raise ValueError(f"{value!r} is below 0")
    return value


def key_from_json(value: object) -> EventKey:
    """Return an event's key; TypeError or ValueError when it is none."""
    company, server, rule, series, agent, group = map(text_from_json, list(value))  # type: ignore[call-overload]  # no list is a TypeError
    return (company, server, rule, series, agent, group)


def text_from_json(value: object) -> str:
    """Return a text; TypeError when it is none."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
