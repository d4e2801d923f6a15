"""Which process of VictoriaMetrics answers, from what it tells of itself at ``/metrics``.

It tells its start in whole seconds of a clock that may be set back. So a start is known by its
seconds, and by an uptime that goes on as time does: who starts anew begins at nothing. In its first
seconds both may be those of a process that was killed a moment ago, and then no start is told.

Several nodes behind one address have several starts, which tell nothing: the epoch changes with
each answer.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import attrs

from ahcollector.clock import AsyncClock
from ahcollector.errors import PermanentStoreError, TemporaryStoreError

__all__ = ["StartWatch"]

_YOUNG_SECONDS: Final = 3
# The clocks of two machines do not run alike, and an uptime is told in whole seconds.
_DRIFT: Final = 0.001
_ROUNDING_SECONDS: Final = 1.0
_UNKNOWN: Final = (
    "nobody knows whether it was started again and lost samples, and nothing would be written: let "
    "its url lead to it, /metrics too, and not to a proxy that has that page to itself; or set "
    "durable_after_seconds to 0, and what it took just before a kill is lost"
)
_LINE: Final = re.compile(
    rb"^(vm_app_start_timestamp|process_start_time_seconds|vm_app_uptime_seconds"
    rb"|vm_free_disk_space_bytes)(?:\{[^}\n]*\})? +([0-9.e+]+)$",
    re.MULTILINE,
)


@attrs.frozen(kw_only=True)
class _Sight:
    """What was seen of a process: its start, and how long it ran at some steady time."""

    start: str
    uptime_seconds: float
    at: float


class StartWatch:
    """Tells one start of a VictoriaMetrics from another.

    Args:
        ask: Returns its page of metrics.
        clock: Tells how much time went by between two answers.
    """

    def __init__(self, *, ask: Callable[[], Awaitable[bytes]], clock: AsyncClock) -> None:
        self._ask = ask
        self._clock = clock
        self._seen: _Sight | None = None
        self._turns = 0

    async def check(self) -> None:
        """Return when there is a page that tells the start, be it the one of a moment ago.

        Raises:
            PermanentStoreError: Somebody answers, and not with that: nobody will ever tell.
            TemporaryStoreError: It cannot be asked now, or wants a login for it.
        """
        try:
            page = await self._ask()
        except TemporaryStoreError as error:
            raise TemporaryStoreError(f"{error}; without that page {_UNKNOWN}") from error
        except PermanentStoreError as error:
            raise PermanentStoreError(
                f"GET /metrics of its url is refused ({error}), so {_UNKNOWN}"
            ) from error
        try:
            _read(page)
        except TemporaryStoreError as error:
            raise PermanentStoreError(str(error)) from error

    async def epoch(self) -> str:
        """Return a text that no other start has.

        Raises:
            TemporaryStoreError: It cannot be asked, started a moment ago, or is not what keeps the
                samples itself.
        """
        seen = self._seen
        asked_at = self._clock.monotonic()
        try:
            found = _read(await self._ask())
        except PermanentStoreError as error:
            raise TemporaryStoreError(str(error)) from error
        uptime_seconds = found["vm_app_uptime_seconds"]
        start = "{vm_app_start_timestamp:.0f}/{process_start_time_seconds:.0f}".format_map(found)
        if seen is not None and (
            seen.start != start or _least_uptime(seen, asked_at) > uptime_seconds
        ):
            # Counted, because a clock that was set back may bring the seconds of an old one again.
            self._turns += 1
        # Also what is too young: the next one is told from it.
        self._seen = _Sight(start=start, uptime_seconds=uptime_seconds, at=self._clock.monotonic())
        if uptime_seconds < _YOUNG_SECONDS:
            raise TemporaryStoreError(
                f"VictoriaMetrics started {uptime_seconds:g} s ago; after {_YOUNG_SECONDS} s its "
                "start can be told from another one, and samples be entrusted to it"
            )
        return f"{start}/{self._turns}"


def _least_uptime(seen: _Sight, now: float) -> float:
    """Return what a process that was seen has run by now, at least."""
    return seen.uptime_seconds + (now - seen.at) * (1 - _DRIFT) - _ROUNDING_SECONDS


def _read(page: bytes) -> dict[str, float]:
    try:
        found = {name.decode(): float(value) for name, value in _LINE.findall(page)}
    except ValueError:
        found = {}
    if not found.keys() >= {
        "vm_app_start_timestamp",
        "process_start_time_seconds",
        "vm_app_uptime_seconds",
        "vm_free_disk_space_bytes",
    }:
        raise TemporaryStoreError(
            "GET /metrics of its url does not answer as a single-node VictoriaMetrics does, so "
            f"{_UNKNOWN}"
        )
    return found
