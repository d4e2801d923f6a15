"""Events until the hub has them."""

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

__all__ = [
    "REASON_EXPIRED",
    "REASON_REFUSED",
    "REASON_REJECTED",
    "REASON_UNREADABLE",
    "DeadLetter",
    "Outbox",
    "OutboxEntry",
    "OutboxStats",
    "SenderLease",
    "reason_kind",
]
