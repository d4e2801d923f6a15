"""What all tenures of a subscription on NATS share."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import attrs

from ahcollector.bus._alone import Alone
from ahcollector.bus._jetstream_api import JetStreamApi
from ahcollector.bus._jetstream_dead import JetStreamBusDeadLetters
from ahcollector.bus._jetstream_setup import Names
from ahcollector.bus.base import Handler
from ahcollector.clock import AsyncClock
from ahcollector.errors import BusError
from ahcollector.metrics import Metrics

__all__ = ["TenureParts"]


@attrs.frozen(kw_only=True)
class TenureParts:
    """What all tenures of a subscription share.

    Attributes:
        tag: Six hexadecimal digits of the worker.
        retry_seconds: Pause before an entry is tried again, and before NATS is asked again.
        pull_seconds: How long NATS is asked for entries at a time.
        alone: Held while an entry is tried that may have ended a process.
        room: Of the bus: taken by each large entry that is under way.
        came: Told the shard of an entry that came, and when NATS took it.
        changed: Told when there is something to settle.
        tell: Told of errors that are waited out.
    """

    api: JetStreamApi
    names: Names
    letters: JetStreamBusDeadLetters
    handler: Handler
    clock: AsyncClock
    metrics: Metrics
    dead_max: int
    tag: str
    retry_seconds: float
    pull_seconds: float
    alone: Alone
    room: anyio.Semaphore
    came: Callable[[int, float], None]
    changed: Callable[[], None]
    tell: Callable[[BusError], None]
