"""From what a range is answered: samples as they came, or rollups of 5 minutes or an hour.

============================  ==================================  ===========
age of the beginning          step                                from
============================  ==================================  ===========
to 7 days                     any                                 raw samples
to 30 days                    5 minutes or more                   5m
longer                        an hour or more                     1h
longer                        5 minutes or more                   5m
longer than 7 days            under 5 minutes                     raw samples
============================  ==================================  ===========

A rollup with nothing in it falls back to the samples, since rules may not have run. The newest
value is always read from the samples: rollups do not have it.

A rollup's sample at T stands for the window that ends at T. So the point at t has all windows that
end in (t - step, t], each once; where t is no end of a window, the point's edges are off by less
than the window.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ahcollector.store._selectors import ROLLUP_MARK, selector
from ahcollector.store.base import Aggregate

__all__ = [
    "ROLLUP_AGGREGATES",
    "WINDOW_MS",
    "Source",
    "range_expression",
    "range_sources",
    "rollup_name",
]

_DAY_MS: Final = 86_400_000
_RAW_AGE_MS: Final = 7 * _DAY_MS
_FIVE_MINUTES_AGE_MS: Final = 30 * _DAY_MS

ROLLUP_AGGREGATES: Final = (Aggregate.SUM, Aggregate.COUNT, Aggregate.MIN, Aggregate.MAX)
"""What rules record; the average is sum over count."""


class Source(StrEnum):
    """Where the points of a range come from; the values stand in names of rollups."""

    RAW = "raw"
    FIVE_MINUTES = "5m"
    HOUR = "1h"


WINDOW_MS: Final = {Source.FIVE_MINUTES: 300_000, Source.HOUR: 3_600_000}
"""The width of a rollup's windows, whose ends are multiples of it."""

_OVER_ROLLUPS: Final = {
    Aggregate.SUM: ("sum_over_time", Aggregate.SUM),
    Aggregate.COUNT: ("sum_over_time", Aggregate.COUNT),
    Aggregate.MIN: ("min_over_time", Aggregate.MIN),
    Aggregate.MAX: ("max_over_time", Aggregate.MAX),
}


def range_sources(
    *, start_ms: int, step_ms: int, aggregate: Aggregate, now_ms: int
) -> tuple[Source, ...]:
    """Return what to ask, in order: the next when the one before has nothing."""
    age_ms = now_ms - start_ms
    if aggregate is Aggregate.LAST or age_ms <= _RAW_AGE_MS:
        return (Source.RAW,)
    allowed = [Source.FIVE_MINUTES]
    if age_ms > _FIVE_MINUTES_AGE_MS:
        allowed.insert(0, Source.HOUR)
    for source in allowed:
        if step_ms >= WINDOW_MS[source]:
            return source, Source.RAW
    return (Source.RAW,)


def rollup_name(name: str, source: Source, aggregate: Aggregate) -> str:
    """Return the stored name of a rollup, for example ``ah_cpu_percent:5m_max``."""
    return f"{name}{ROLLUP_MARK}{source}_{aggregate}"


def range_expression(
    company_id: str,
    server_id: str,
    name: str,
    *,
    source: Source,
    step_ms: int,
    aggregate: Aggregate,
) -> str:
    """Return the query whose value at t is the aggregate of (t - step, t]."""
    if source is Source.RAW:
        chosen = selector(company_id, server_id=server_id, name=name)
        return f"{aggregate}_over_time({chosen}[{step_ms}ms])"
    if aggregate is Aggregate.AVG:
        parts = [
            range_expression(
                company_id, server_id, name, source=source, step_ms=step_ms, aggregate=part
            )
            for part in (Aggregate.SUM, Aggregate.COUNT)
        ]
        return " / ".join(parts)
    function, recorded = _OVER_ROLLUPS[aggregate]
    chosen = selector(company_id, server_id=server_id, name=rollup_name(name, source, recorded))
    return f"{function}({chosen}[{step_ms}ms])"
