"""Where events wait for the hub: in Redis where one is set, else in a file of this process."""

import logging
from contextlib import AsyncExitStack

from ah_server.settings import ServerSettings
from ah_server.wiring._seams import Seams
from ahcollector.metrics import PrometheusMetrics
from ahcollector.outbox import (
    FileOutbox,
    OpenedOutbox,
    Outbox,
    OutboxBackend,
    OutboxBounds,
    open_outbox,
)
from ahcollector.redis import RedisClient

_PAGE = 200
_log = logging.getLogger("ah_server.wiring")


async def outbox_of(
    settings: ServerSettings,
    seams: Seams,
    metrics: PrometheusMetrics,
    redis: RedisClient | None,
    stack: AsyncExitStack,
) -> OpenedOutbox:
    """Opens the outbox that is set; what an earlier one in a file holds goes to it.

    Raises:
        OutboxError: it cannot be used.
    """
    clock = seams.clock
    directory = settings.outbox.dir or settings.state_dir / "outbox"
    bounds = OutboxBounds(
        dead_max=settings.outbox.dead_max,
        dead_retention_seconds=settings.outbox.dead_retention_days * 86_400,
    )
    opened = await stack.enter_async_context(
        open_outbox(
            backend=OutboxBackend(settings.outbox_backend),
            hub=True,
            client=redis,
            directory=directory,
            bounds=bounds,
            lease_seconds=settings.outbox.lease_seconds,
            clock=clock,
            metrics=metrics,
        )
    )
    if opened.backend is OutboxBackend.REDIS and (directory / "outbox.log").exists():
        earlier = await FileOutbox.open(directory, now=clock.time(), bounds=bounds)
        try:
            await _move(earlier, opened.outbox, clock.time())
        finally:
            await earlier.close()
    return opened


async def _move(earlier: FileOutbox, outbox: Outbox, now: float) -> None:
    """Moves the events that wait; dead letters stay, since nobody waits for them."""
    moved = 0
    while entries := await earlier.peek(_PAGE):
        await outbox.append([entry.event for entry in entries], now)
        moved += await earlier.ack([entry.event.event_id for entry in entries], None)
    if moved:
        _log.info("events of the outbox in a file were moved to Redis", extra={"events": moved})
    left = (await earlier.stats(now)).dead
    if left:
        _log.warning(
            "the outbox in a file still has dead letters, which are shown and replayed with"
            " outbox.backend: file",
            extra={"letters": left},
        )
