"""An agent library: a crash-proof queue on disk and a sender that delivers at least once.

Take all of it (`Agent`), or a part: only the queue (`WAL`, `MemoryQueue`), only the sender
(`Sender` with a `Client`). Parts that are slow to import are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

from ahwal._sample import Sample
from ahwal.errors import (
    AgentRevokedError,
    AhwalError,
    AlreadyEnrolledError,
    BusyError,
    ConfigError,
    CredentialsError,
    EnrolError,
    EnrolRefusedError,
    EnrolTemporaryError,
    EntryTooLargeError,
    NotEnrolledError,
    QueueClosedError,
    QueueError,
    TokenError,
    TransportError,
    WALClosedError,
    WALError,
    WALFormatError,
    WALLockedError,
    WALOpenError,
    WALReadError,
    WALWriteError,
)
from ahwal.queue import Entry, MemoryQueue, Queue, Stats
from ahwal.wal import WAL

if TYPE_CHECKING:
    from ahwal.agent import Agent, AgentConfig, AgentState, AgentStatus, Collector, enroll
    from ahwal.sender import Appended, DeliveryState, DropReason, Enqueued, Sender, SenderStatus
    from ahwal.transport import Client

_LATER = {
    "Agent": "ahwal.agent",
    "AgentConfig": "ahwal.agent",
    "AgentState": "ahwal.agent",
    "AgentStatus": "ahwal.agent",
    "Appended": "ahwal.sender",
    "Client": "ahwal.transport",
    "Collector": "ahwal.agent",
    "DeliveryState": "ahwal.sender",
    "DropReason": "ahwal.sender",
    "Enqueued": "ahwal.sender",
    "Sender": "ahwal.sender",
    "SenderStatus": "ahwal.sender",
    "enroll": "ahwal.agent",
}

__all__ = [
    "WAL",
    "Agent",
    "AgentConfig",
    "AgentRevokedError",
    "AgentState",
    "AgentStatus",
    "AhwalError",
    "AlreadyEnrolledError",
    "Appended",
    "BusyError",
    "Client",
    "Collector",
    "ConfigError",
    "CredentialsError",
    "DeliveryState",
    "DropReason",
    "Enqueued",
    "EnrolError",
    "EnrolRefusedError",
    "EnrolTemporaryError",
    "Entry",
    "EntryTooLargeError",
    "MemoryQueue",
    "NotEnrolledError",
    "Queue",
    "QueueClosedError",
    "QueueError",
    "Sample",
    "Sender",
    "SenderStatus",
    "Stats",
    "TokenError",
    "TransportError",
    "WALClosedError",
    "WALError",
    "WALFormatError",
    "WALLockedError",
    "WALOpenError",
    "WALReadError",
    "WALWriteError",
    "enroll",
]


def __getattr__(name: str) -> object:
    """Load a part of the package when it is first used."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)
