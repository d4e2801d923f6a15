"""Events until the hub has them."""

from ahcollector.outbox._queue import OutboxBounds
from ahcollector.outbox.base import (
    REASON_EXPIRED,
    REASON_REFUSED,
    REASON_REJECTED,
    REASON_UNREADABLE,
    DeadLetter,
    Outbox,
    OutboxEntry,
    OutboxStats,
    SenderLease,
    reason_kind,
)
from ahcollector.outbox.choice import OpenedOutbox, OutboxBackend, choose_backend, open_outbox
from ahcollector.outbox.discard import DiscardOutbox
from ahcollector.outbox.file import FileOutbox
from ahcollector.outbox.lease import LocalLease
from ahcollector.outbox.memory import MemoryOutbox
from ahcollector.outbox.sender import OutboxSender, SendRound

__all__ = [
    "REASON_EXPIRED",
    "REASON_REFUSED",
    "REASON_REJECTED",
    "REASON_UNREADABLE",
    "DeadLetter",
    "DiscardOutbox",
    "FileOutbox",
    "LocalLease",
    "MemoryOutbox",
    "OpenedOutbox",
    "Outbox",
    "OutboxBackend",
    "OutboxBounds",
    "OutboxEntry",
    "OutboxSender",
    "OutboxStats",
    "SendRound",
    "SenderLease",
    "choose_backend",
    "open_outbox",
    "reason_kind",
]
