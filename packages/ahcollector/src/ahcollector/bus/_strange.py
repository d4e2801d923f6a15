"""Tells of what no worker wrote in the state that workers of a bus share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ahcollector import metrics as names
from ahcollector._trouble import Trouble
from ahcollector.clock import AsyncClock
from ahcollector.metrics import Metrics

__all__ = ["Strange"]

_SHOWN: Final = 5

_log = logging.getLogger("ahcollector.bus")


class Strange:
    """Counts what is found, and tells of it once a minute at most."""

    def __init__(self, *, clock: AsyncClock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._trouble = Trouble(
            _log,
            "the bus has keys that no worker wrote so: they count for nothing",
            "the keys of the bus are in order again",
        )

    def found(self, findings: Sequence[tuple[str, str]]) -> None:
        """Take what one look found: the kind of each key, and a text that names it."""
        for kind, _ in findings:
            self._metrics.inc(names.BUS_STRANGE, key=kind)
        if findings:
            texts = [text for _, text in findings[:_SHOWN]]
            self._trouble.goes_on(self._clock.monotonic(), {"error": "; ".join(texts)})
        else:
            self._trouble.is_over()
