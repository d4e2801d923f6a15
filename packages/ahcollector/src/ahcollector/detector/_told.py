"""What is counted and logged of events that the outbox has taken."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ahcollector import metrics as names
from ahcollector.metrics import Metrics
from ahcollector.presence.base import Transition
from ahwire import Event

__all__ = ["count", "is_repeat", "tell"]

_log = logging.getLogger("ahcollector.detector")

_REPEATS: Final = frozenset({"silence_ended", "group_ended"})


def is_repeat(event: Event) -> bool:
    """Whether an event tells again what was told, or recorded, before."""
    return event.reason in _REPEATS


def count(metrics: Metrics, events: Iterable[Event]) -> None:
    """Count events, those that tell something again apart."""
    for event in events:
        if is_repeat(event):
            metrics.inc(names.EVENTS_REPEATED, reason=str(event.reason))
        else:
            metrics.inc(names.EVENTS_EMITTED, type=event.type.value)


def tell(transition: Transition) -> None:
    """Log a transition whose event the outbox has."""
    _log.info(
        "agent is %s",
        transition.kind.value,
        extra={
            "agent_id": transition.agent.agent_id,
            "company_id": transition.agent.company_id,
            "server_id": transition.agent.server_id,
            "event_id": transition.event_id,
        },
    )
