"""A sample batch as JSON, for dead letters. The members are those of `SampleBatch`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ahcollector.bus.base import SampleBatch, StoredSeries

__all__ = ["batch_from_json", "batch_to_json"]

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def batch_to_json(batch: SampleBatch) -> dict[str, Any]:
    """Return a JSON object; values that JSON does not have are the words nan, inf and -inf."""
    return {
        "company_id": batch.company_id,
        "server_id": batch.server_id,
        "agent_id": batch.agent_id,
        "request_id": batch.request_id,
        "received_at_ms": batch.received_at_ms,
        "series": [
            {
                "labels": [list(pair) for pair in series.labels],
                "points": [
                    [timestamp_ms, value if math.isfinite(value) else str(value)]
                    for timestamp_ms, value in series.points
                ],
            }
            for series in batch.series
        ],
    }


def batch_from_json(record: Mapping[str, Any]) -> SampleBatch:
    """Return the batch of an object made by `batch_to_json`.

    Raises:
        KeyError, TypeError, ValueError: It is none.
    """
    return SampleBatch(
        company_id=record["company_id"],
        server_id=record["server_id"],
        agent_id=record["agent_id"],
        request_id=record["request_id"],
        received_at_ms=int(record["received_at_ms"]),
        series=tuple(
            StoredSeries(
                labels=tuple((str(name), str(value)) for name, value in series["labels"]),
                points=tuple(
                    (int(timestamp_ms), _number(value)) for timestamp_ms, value in series["points"]
                ),
            )
            for series in record["series"]
        ),
    )


def _number(value: float | str) -> float:
    return _NOT_FINITE[value] if isinstance(value, str) else float(value)
