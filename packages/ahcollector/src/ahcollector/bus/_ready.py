"""Asks a handler whether an entry may be tried once more."""

from __future__ import annotations

import logging

from ahcollector.bus.base import Handler, ReadyHandler

__all__ = ["until_ready", "writable"]

_log = logging.getLogger("ahcollector.bus")


async def until_ready(handler: Handler, shard: int) -> None:
    """Return when a handler takes a further try of an entry of a shard, as far as it tells."""
    if not isinstance(handler, ReadyHandler):
        return
    try:
        await handler.ready(shard)
    except Exception:  # noqa: BLE001 - the supervisor of the handler, see below
        # The entries behind it must not wait for ever for what is a fault of the handler.
        _log.exception("a handler could not tell whether it is ready", extra={"shard": shard})


def writable(reason: str) -> str:
    """Return a reason that every backend can keep: half a surrogate pair has no UTF-8."""
    return reason.encode("utf-8", "backslashreplace").decode()
