"""Waiting for what is started beside the server: a machine that boots starts all at once."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ah_server.wiring._seams import Seams
from ahcollector.errors import CollectorError

_log = logging.getLogger("ah_server.wiring")

_WAIT_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
T = TypeVar("T")


async def reached(
    what: str,
    look: Callable[[], Awaitable[T]],
    seams: Seams,
    *,
    away: Callable[[CollectorError], bool],
) -> T:
    """Looks until it works, for a minute at most with a line in the log for each time.

    Args:
        what: what is waited for, for the log.
        look: one try.
        seams: the clock, and whether to wait at all.
        away: whether waiting can help against what `look` raised.

    Raises:
        CollectorError: the last one after the minute; one against which waiting does not help, at
            once.
    """
    began = seams.clock.monotonic()
    while True:
        try:
            return await look()
        except CollectorError as error:
            waited = seams.clock.monotonic() - began
            if not seams.patient or not away(error) or waited >= _WAIT_SECONDS:
                raise
            _log.warning(
                "waiting for %s",
                what,
                extra={"seconds_left": round(_WAIT_SECONDS - waited), "error": str(error)},
            )
            await seams.clock.sleep(_AGAIN_SECONDS)
