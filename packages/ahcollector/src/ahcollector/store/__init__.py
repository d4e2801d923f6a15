"""Time series: what stores samples and answers queries over them."""

from ahcollector.store.base import (
    RANGE_POINTS_MAX,
    Aggregate,
    Deleter,
    LatestSample,
    RangeSeries,
    Reader,
    Restarts,
    SeriesInfo,
    Store,
    Writer,
)
from ahcollector.store.memory import MemoryStore
from ahcollector.store.snapshot import StoreSnapshot

__all__ = [
    "RANGE_POINTS_MAX",
    "Aggregate",
    "Deleter",
    "LatestSample",
    "MemoryStore",
    "RangeSeries",
    "Reader",
    "Restarts",
    "SeriesInfo",
    "Store",
    "StoreSnapshot",
    "Writer",
]
