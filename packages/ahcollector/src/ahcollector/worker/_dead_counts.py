"""What is counted of dead batches, whatever keeps them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ahcollector import metrics as names
from ahcollector.bus.base import SampleBatch
from ahcollector.metrics import Metrics, NullMetrics

__all__ = ["AGE", "BYTES", "COUNT", "DeadCounts"]

AGE: Final = "age"
BYTES: Final = "bytes"
COUNT: Final = "count"
_TOO_LARGE: Final = "too_large"

_log = logging.getLogger("ahcollector.worker")


class DeadCounts:
    """Counts of one process.

    Args:
        metrics: Where to count; None: nowhere else.

    Attributes:
        total: Batches that were put.
        dropped: Letters that the bounds pushed out.
        damaged: Letters found damaged.
    """

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics if metrics is not None else NullMetrics()
        self.total = 0
        self.dropped = 0
        self.damaged = 0

    def put(self, dropped: Mapping[str, int]) -> None:
        """Count a put, and by reason what it pushed out."""
        self.total += 1
        for reason, count in dropped.items():
            if count:
                self.dropped += count
                self._metrics.inc(names.WORKER_DEAD_BATCHES_DROPPED, count, reason=reason)

    def put_too_large(self, batch: SampleBatch, size_bytes: int, bytes_max: int) -> None:
        """Count a batch that is larger than all the room."""
        self.put({_TOO_LARGE: 1})
        _log.error(
            "a refused batch is dropped: it alone is larger than bytes_max",
            extra={
                "request_id": batch.request_id,
                "size_bytes": size_bytes,
                "bytes_max": bytes_max,
            },
        )

    def found_damaged(self, count: int, where: str) -> None:
        """Count letters that were set aside; `where` says where they are now."""
        if count:
            self.damaged += count
            self._metrics.inc(names.WORKER_DEAD_BATCHES_DAMAGED, count)
            _log.error(
                "dead batches were damaged and are set aside",
                extra={"count": count, "where": where},
            )
