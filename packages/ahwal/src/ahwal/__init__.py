"""An agent library: a crash-proof queue on disk and a sender that delivers at least once.

Take all of it (`Agent`), or a part: only the queue (`WAL`, `MemoryQueue`), only the sender
(`Sender` with a `Client`). Parts that are slow to import are loaded when they are first used, and
so are the modules beside them: `ahwal.host`, `ahwal.prometheus`, `ahwal.opentelemetry` and
`ahwal.testing` need no import of their own.
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
    from ahwal import agent as agent
    from ahwal import host as host
    from ahwal import opentelemetry as opentelemetry
    from ahwal import prometheus as prometheus
    from ahwal import sender as sender
    from ahwal import transport as transport
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
# After `import ahwal` alone these are attributes too; the first three need the extra of their name.
_MODULES = ("host", "opentelemetry", "prometheus", "agent", "sender", "testing", "transport")

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
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _MODULES:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            # Whoever looks through all names must not fail where an extra is not installed.
            raise AttributeError(f"ahwal.{name} cannot be imported: {error}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what is loaded later too."""
    return sorted({*globals(), *__all__, *_MODULES})
