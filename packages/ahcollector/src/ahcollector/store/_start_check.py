"""What is written at the start to see whether this VictoriaMetrics keeps what it is given.

One series at every limit of the door: the most labels, the longest names and values. Its company
and server begin with ``_``, which no id does, so it is nobody's. It is the same series at each
start, with one more sample.
"""

from __future__ import annotations

from typing import Final

from ahcollector.bus.base import SampleBatch, StoredSeries
from ahcollector.errors import PermanentStoreError
from ahcollector.store._selectors import selector
from ahwire.limits import MAX_LABEL_VALUE_BYTES, MAX_LABELS_PER_SERIES, MAX_NAME_BYTES

__all__ = ["PROBE_SELECTOR", "check_probe", "dedup_warning", "probe"]

_TENANT: Final = "_ah_start_check"
_ID_CHARS: Final = 128
_COMPANY: Final = _TENANT.ljust(_ID_CHARS, "c")
_SERVER: Final = _TENANT.ljust(_ID_CHARS, "s")

PROBE_SELECTOR: Final = selector(_COMPANY, server_id=_SERVER)

# Quotes, a backslash, a line's end and characters of two and four bytes.
_AWKWARD: Final = "\"\\\n'{}=,é\U0001f600"


def _labels() -> tuple[tuple[str, str], ...]:
    filler = MAX_LABEL_VALUE_BYTES - len(_AWKWARD.encode())
    own = [
        (f"l{number:02d}".ljust(MAX_NAME_BYTES, "n"), _AWKWARD + "v" * filler)
        for number in range(MAX_LABELS_PER_SERIES)
    ]
    return (
        ("__name__", "ah_start_check_".ljust(MAX_NAME_BYTES + len("ah_"), "m")),
        ("company_id", _COMPANY),
        ("server_id", _SERVER),
        *own,
    )


def probe(now_ms: int) -> SampleBatch:
    """Return a batch with one sample of the series, now."""
    return SampleBatch(
        company_id=_COMPANY,
        server_id=_SERVER,
        agent_id=_TENANT,
        request_id=_TENANT,
        received_at_ms=now_ms,
        series=(StoredSeries(labels=_labels(), points=((now_ms, 1.0),)),),
    )


def check_probe(found: tuple[tuple[str, str], ...]) -> None:
    """Compare what was read back with what was written.

    Raises:
        PermanentStoreError: It is not the same.
    """
    expected = _labels()
    if found == expected:
        return
    held = dict(found)
    lost = sum(name not in held for name, _ in expected)
    cut = sum(held.get(name, value) != value for name, value in expected)
    raise PermanentStoreError(
        f"VictoriaMetrics keeps series otherwise than they are written: of {len(expected)} labels "
        f"it lost {lost} and changed {cut}; start it with -maxLabelsPerTimeseries=64 or more, and "
        f"-maxLabelValueLen of {MAX_LABEL_VALUE_BYTES} or more where it has that flag"
    )


def dedup_warning(total: float) -> str | None:
    """Return what to tell of the sum of a sample 1 that was written twice, None if it is right."""
    if total == 1.0:
        return None
    return (
        f"VictoriaMetrics counts a sample that is written twice {total:g} times, so sums, counts "
        "and averages are wrong after a retry: start it with -dedup.minScrapeInterval=1ms"
    )
