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
    where its beginning was.

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

    def goes_on(self, steady: float, extra: Mapping[str, Any]) -> None:
        """Tell of it, unless it was told within the last minute of steady time."""
        if self._told_at is None or steady - self._told_at >= _PAUSE_SECONDS:
            self._told_at, self._told = steady, True
            self._log.log(self._level, self._begins, extra=extra)

    def is_over(self) -> None:
        """Tell that it is over, if it was told."""
        if self._told:
            self._told = False
            self._log.info(self._ends)
