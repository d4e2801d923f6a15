"""Every contract that crosses a process: schema, limits, names, error codes, ids, retry schedule.

Pure: nothing here does I/O, reads a clock or rolls dice of its own; time and chance are arguments.

- `ahwire.agent_pb2`: the messages between agent and collector (import it by its own name).
- `ahwire.limits`, `ahwire.status`, `ahwire.names`: the numbers, the status table, the names.
- `ahwire.codec`, `ahwire.batch`: bodies inflated within bounds, batches judged, split and merged.
- `ahwire.hub`, `ahwire.notification`: the JSON contracts.
"""

from ahwire.backoff import Backoff, parse_retry_after, phase_offset
from ahwire.clock import Clock, Rng, now_ms
from ahwire.errors import (
    BadBodyError,
    DecodeError,
    TooLargeError,
    UnsupportedEncodingError,
    WireError,
)
from ahwire.hub import AgentRecord, AgentState, Event, EventType
from ahwire.ids import UUID7Generator, next_seq
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
