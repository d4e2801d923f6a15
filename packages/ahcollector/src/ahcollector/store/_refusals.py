"""What every store refuses: batches that are not wholly one tenant's, and ranges out of bounds."""

from __future__ import annotations

from typing import Final

from ahcollector.bus.base import SampleBatch
from ahcollector.errors import PermanentStoreError
from ahcollector.store.base import RANGE_POINTS_MAX

__all__ = ["STEP_MS_MIN", "check_range", "check_tenant"]

STEP_MS_MIN: Final = 1_000


def check_tenant(batch: SampleBatch) -> None:
    """Refuse a batch that is not wholly one tenant's. Raises PermanentStoreError."""
    if not batch.company_id or not batch.server_id:
        raise PermanentStoreError(
            f"batch {batch.request_id} names no company or no server: it is not stored, because "
            "everybody could read it"
        )
    tenant = (("company_id", batch.company_id), ("server_id", batch.server_id))
    for series in batch.series:
        if series.labels[1:3] != tenant or series.labels[0][0] != "__name__":
            raise PermanentStoreError(
                f"batch {batch.request_id} of {batch.company_id}/{batch.server_id} has a series "
                "whose labels do not begin with its name and this tenant: nothing of it is stored"
            )
        if len(dict(series.labels)) < len(series.labels):
            raise PermanentStoreError(
                f"batch {batch.request_id} names a label twice in one series, which could be its "
                "tenant's: nothing of it is stored"
            )


def check_range(
    start_ms: int, end_ms: int, step_ms: int, *, step_ms_min: int = STEP_MS_MIN
) -> None:
    """Refuse a range that no store answers. Raises ValueError."""
    if step_ms < step_ms_min:
        raise ValueError(f"step_ms is {step_ms}; it must be at least {step_ms_min}")
    if end_ms < start_ms:
        raise ValueError(f"the range ends at {end_ms}, before its start {start_ms}")
    steps = (end_ms - start_ms) // step_ms + 1
    if steps > RANGE_POINTS_MAX:
        raise ValueError(
            f"the range has {steps} steps, at most {RANGE_POINTS_MAX} are answered: take a longer "
            "step or a shorter range"
        )
