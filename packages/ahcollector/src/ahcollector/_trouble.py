"""Tells of a trouble that lasts: once a minute at most, and with one line when it is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Trouble"]

_PAUSE_SECONDS: Final = 60.0


class Trouble:
    """One kind of trouble of one owner, in its log.

    A trouble that comes and goes is told no more often than one that stays; its end is told only
    where its beginning was. A line that stands for several occurrences says so: `times` are those
    since the line before.

    Args:
        log: Where it is told.
        begins: The line that tells of it.
        ends: The line that tells that it is over.
        level: Level of the first line; the other one is an info.
    """

    def __init__(
        self, log: logging.Logger, begins: str, ends: str, *, level: int = logging.WARNING
    ) -> None:
        self._log = log
        self._begins = begins
        self._ends = ends
        self._level = level
        self._told_at: float | None = None
        self._told = False
        self._untold = 0

    def goes_on(self, steady: float, extra: Mapping[str, Any]) -> bool:
        """Tell of it, unless it was told within the last minute of steady time; return whether."""
        self._untold += 1
        if self._told_at is not None and steady - self._told_at < _PAUSE_SECONDS:
            return False
        self._told_at, self._told = steady, True
        self._log.log(self._level, self._begins, extra={**extra, **self._times(1)})
        return True

    def is_over(self) -> None:
        """Tell that it is over, if it was told."""
        if self._told:
            self._told = False
            self._log.info(self._ends, extra=self._times(0))

    def _times(self, least: int) -> dict[str, int]:
        """Return how often it was since the last line, where that is more than `least`."""
        times, self._untold = self._untold, 0
        return {"times": times} if times > least else {}
