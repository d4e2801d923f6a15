"""Every contract that crosses a process: schema, limits, names, error codes, ids, retry schedule.

Pure: nothing here does I/O, reads a clock or rolls dice of its own; time and chance are arguments.

- `ahwire.agent_pb2`: the messages between agent and collector.
- `ahwire.limits`, `ahwire.status`, `ahwire.names`: the numbers, the status table, the names.
- `ahwire.codec`, `ahwire.batch`: bodies inflated within bounds, batches judged, split and merged.
- `ahwire.hub`, `ahwire.notification`: the JSON contracts. Their names that stand here too are
  imported when they are first asked for: an agent needs none of them, and starts sooner.
"""

from typing import TYPE_CHECKING

from ahwire.backoff import Backoff, parse_retry_after, phase_offset
from ahwire.clock import Clock, Rng, now_ms
from ahwire.errors import (
    BadBodyError,
    DecodeError,
    TooLargeError,
    UnsupportedEncodingError,
    WireError,
)
from ahwire.ids import UUID7Generator, next_seq

if TYPE_CHECKING:
    from ahwire.hub import AgentRecord, AgentState, Event, EventType
    from ahwire.notification import IncidentEvent, NotificationMessage

__all__ = [
    "AgentRecord",
    "AgentState",
    "Backoff",
    "BadBodyError",
    "Clock",
    "DecodeError",
    "Event",
    "EventType",
    "IncidentEvent",
    "NotificationMessage",
    "Rng",
    "TooLargeError",
    "UUID7Generator",
    "UnsupportedEncodingError",
    "WireError",
    "next_seq",
    "now_ms",
    "parse_retry_after",
    "phase_offset",
]

_LATE = {
    "AgentRecord": "ahwire.hub",
    "AgentState": "ahwire.hub",
    "Event": "ahwire.hub",
    "EventType": "ahwire.hub",
    "IncidentEvent": "ahwire.notification",
    "NotificationMessage": "ahwire.notification",
}


def __getattr__(name: str) -> object:
    """Imports a late name; the import system keeps its module, so this costs once."""
    if name not in _LATE:
        msg = f"module 'ahwire' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415  # only here

    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
