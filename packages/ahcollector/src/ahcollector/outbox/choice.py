"""Which outbox a process has, and who may send from it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from ahcollector.clock import AsyncClock
from ahcollector.errors import OutboxError
from ahcollector.metrics import Metrics
from ahcollector.outbox._queue import OutboxBounds
from ahcollector.outbox.base import Outbox, SenderLease
from ahcollector.outbox.discard import DiscardOutbox
from ahcollector.outbox.file import FileOutbox
from ahcollector.outbox.lease import LocalLease
from ahcollector.outbox.memory import MemoryOutbox

if TYPE_CHECKING:
    from ahcollector.redis import RedisClient

__all__ = ["OpenedOutbox", "OutboxBackend", "choose_backend", "open_outbox"]

_log = logging.getLogger("ahcollector.outbox")


class OutboxBackend(StrEnum):
    """Where events wait for the hub."""

    MEMORY = "memory"
    FILE = "file"
    REDIS = "redis"
    DISCARD = "discard"


@attrs.frozen(kw_only=True)
class OpenedOutbox:
    """An outbox that is in use.

    Attributes:
        backend: What it is.
        outbox: The outbox.
        lease: For `OutboxSender`; None where nothing is ever sent.
    """

    backend: OutboxBackend
    outbox: Outbox
    lease: SenderLease | None


def choose_backend(*, hub: bool, redis: bool, directory: bool) -> OutboxBackend:
    """Return what ``auto`` means: where there is no hub, nothing is kept.

    Otherwise Redis where it is configured, else a file where there is a directory, else memory.
    """
    if not hub:
        return OutboxBackend.DISCARD
    if redis:
        return OutboxBackend.REDIS
    return OutboxBackend.FILE if directory else OutboxBackend.MEMORY


@asynccontextmanager
async def open_outbox(
    *,
    backend: OutboxBackend | None = None,
    hub: bool,
    client: RedisClient | None = None,
    directory: Path | None = None,
    bounds: OutboxBounds | None = None,
    lease_seconds: float = 15.0,
    clock: AsyncClock,
    metrics: Metrics | None = None,
) -> AsyncIterator[OpenedOutbox]:
    """Open an outbox with its lease; at the end of the block it is closed.

    Args:
        backend: Which; None (``auto``): as `choose_backend` says.
        hub: Whether there is a hub to send to.
        client: The Redis, where there is one; it stays the caller's to close.
        directory: Of a file outbox, for it alone.
        bounds: How large it may grow.
        lease_seconds: Of the sender's lease in Redis.
        clock: Dates and ages.
        metrics: Where to count.

    Raises:
        OutboxError: What the backend needs is not given or cannot be used.
    """
    if backend is None:
        backend = choose_backend(hub=hub, redis=client is not None, directory=directory is not None)
        if backend is OutboxBackend.MEMORY:
            _log.warning(
                "events for the hub are kept in memory and are lost with this process: give the "
                "outbox a directory, or Redis"
            )
    if backend is OutboxBackend.DISCARD:
        if hub:
            _log.warning(
                "there is a hub and no event goes to it, so nobody is told of what happens: the "
                "outbox discards them; choose a file, Redis or memory"
            )
        yield OpenedOutbox(backend=backend, outbox=DiscardOutbox(metrics=metrics), lease=None)
    elif backend is OutboxBackend.MEMORY:
        memory = MemoryOutbox(bounds=bounds)
        yield OpenedOutbox(backend=backend, outbox=memory, lease=LocalLease(clock=clock))
    elif backend is OutboxBackend.REDIS:
        yield _in_redis(client, bounds, lease_seconds, clock, metrics)
    else:
        if directory is None:
            raise OutboxError("an outbox in a file needs a directory, and none is given: name one")
        file = await FileOutbox.open(directory, now=clock.time(), bounds=bounds)
        try:
            yield OpenedOutbox(backend=backend, outbox=file, lease=LocalLease(clock=clock))
        finally:
            await file.close()


def _in_redis(
    client: RedisClient | None,
    bounds: OutboxBounds | None,
    lease_seconds: float,
    clock: AsyncClock,
    metrics: Metrics | None,
) -> OpenedOutbox:
    if client is None:
        raise OutboxError("an outbox in Redis needs a Redis, and none is configured: name one")
    from ahcollector.outbox.redis import (  # noqa: PLC0415 - an optional extra
        RedisLease,
        RedisOutbox,
    )

    return OpenedOutbox(
        backend=OutboxBackend.REDIS,
        outbox=RedisOutbox(client=client, bounds=bounds, clock=clock, metrics=metrics),
        lease=RedisLease(client=client, lease_seconds=lease_seconds, clock=clock, metrics=metrics),
    )
