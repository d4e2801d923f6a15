"""Time series: what stores samples and answers queries over them.

The law that every implementation keeps:

* A sample is identified by its series (all labels) and its timestamp in milliseconds; writing one
  again changes nothing, so a write may be repeated whole.
* Every query and every deletion names its company; nothing of another company can be in the answer.
* Only finite values are stored. NaN and the infinities are left out and counted. Whole numbers up
  to 2**53 and numbers of up to nine digits are kept as they are, all others to twelve digits at
  least; an implementation may take -0.0 and what is next to nothing (under 1e-290) for 0.
* What was written can be read soon, and an implementation says when.
"""

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
