"""Waiting for what is started beside the server: a machine that boots starts all at once."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ah_server.wiring._seams import Seams
from ahcollector.errors import CollectorError

_log = logging.getLogger("ah_server.wiring")

_WAIT_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
_TOLD_EACH_SECONDS = 10.0
T = TypeVar("T")


async def reached(
    what: str,
    look: Callable[[], Awaitable[T]],
    seams: Seams,
    *,
    name: str,
    away: Callable[[CollectorError], bool],
) -> T:
    """Looks until it works, each second of a minute at most.

    The log has a line at once and every 10 s; the probes tell it all the while.

    Args:
        what: what is waited for, for the log.
        look: one try.
        seams: the clock, whether to wait at all, and who is told.
        name: how `/readyz` calls it.
        away: whether waiting can help against what `look` raised.

    Raises:
        CollectorError: the last one after the minute; one against which waiting does not help, at
            once.
    """
    began = seams.clock.monotonic()
    told: float | None = None
    while True:
        seams.awaited.asked(name)
        try:
            found = await look()
        except CollectorError as error:
            seams.awaited.answered(name, str(error) or type(error).__name__)
            waited = seams.clock.monotonic() - began
            if not seams.patient or not away(error) or waited >= _WAIT_SECONDS:
                raise
            if told is None or waited - told >= _TOLD_EACH_SECONDS:
                told = waited
                _log.warning(
                    "waiting for %s",
                    what,
                    extra={"seconds_left": round(_WAIT_SECONDS - waited), "error": str(error)},
                )
            await seams.clock.sleep(_AGAIN_SECONDS)
        else:
            seams.awaited.answered(name)
            return found
