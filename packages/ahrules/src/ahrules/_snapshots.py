"""States as plain JSON values, and back."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ahrules._draft import EventKey
from ahrules._moments import check_aware
from ahrules._reading import is_unicode, shown
from ahrules.errors import SnapshotError
from ahwire.hub import Event

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

VERSION: Final = 1
COUNT_MAX: Final = 1 << 53
"""No state counts farther; so a count can be reckoned with as a double."""


@contextmanager
def reading(what: str, data: object) -> Iterator[object]:
    """Give the snapshot; whatever is wrong with it, while it is read, is a SnapshotError."""
    try:
        version = field_from_json(data, "version")
        if type(version) is not int or version != VERSION:
            raise ValueError(f"its version is {shown(version)}, and this release reads {VERSION}")
        yield data
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SnapshotError(
            f"this snapshot of {what} cannot be read: {error}; set it aside and start without it"
        ) from error


def field_from_json(data: object, name: str, *, default: object = None) -> Any:
    """Return a field of an object; TypeError or ValueError when there is none and no default."""
    if not isinstance(data, Mapping):
        raise TypeError(f"{shown(data)} is no object")
    if name not in data:
        if default is not None:
            return default
        raise ValueError(f"the field {name!r} is missing")
    return data[name]


def list_from_json(data: object, what: str) -> Sequence[Any]:
    """Return a list; TypeError when it is none."""
    if not isinstance(data, list | tuple):
        raise TypeError(f"{shown(data)} is no list of {what}")
    return data


def row_from_json(data: object, *names: str) -> Sequence[Any]:
    """Return a list of as many values as there are names; TypeError or ValueError when not."""
    found = list_from_json(data, ", ".join(names))
    if len(found) != len(names):
        raise ValueError(f"{shown(data)} is no list of {', '.join(names)}")
    return found


def unique(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """Return what is kept by key; ValueError when a key is there twice."""
    found: dict[K, V] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{shown(key)} is there twice")
        found[key] = value
    return found


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
        raise TypeError(f"{shown(text)} is no time")
    return check_aware(datetime.fromisoformat(text)).astimezone(UTC)


def flag_from_json(value: object) -> bool:
    """Return a boolean; TypeError when it is none."""
    if not isinstance(value, bool):
        raise TypeError(f"{shown(value)} is neither true nor false")
    return value


def count_from_json(value: object) -> int:
    """Return a number of things; TypeError or ValueError when it is none."""
    if type(value) is not int:
        raise TypeError(f"{shown(value)} is no count")
    if not 0 <= value <= COUNT_MAX:
        raise ValueError(f"{shown(value)} is not from 0 to {COUNT_MAX}")
    return value


def key_from_json(value: object) -> EventKey:
    """Return an event's key; TypeError or ValueError when it is none."""
    row = row_from_json(value, "company", "server", "rule", "series", "agent", "group")
    company, server, rule, series, agent, group = map(text_from_json, row)
    return (company, server, rule, series, agent, group)


def text_from_json(value: object) -> str:
    """Return a text; TypeError when it is none."""
    if not isinstance(value, str):
        raise TypeError(f"{shown(value)} is no text")
    if not is_unicode(value):
        raise ValueError(f"{shown(value)} holds half a surrogate pair")
    return value
