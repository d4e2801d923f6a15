"""Batches between ingest and workers."""

from ahcollector.bus.base import (
    SHARDS,
    TRIES_MAX,
    AtEnd,
    Bus,
    BusDeadLetter,
    BusDeadLetters,
    Delivery,
    Handler,
    Receipt,
    SampleBatch,
    StoredSeries,
    shard_for,
)
from ahcollector.bus.memory import InProcessBus

__all__ = [
    "SHARDS",
    "TRIES_MAX",
    "AtEnd",
    "Bus",
    "BusDeadLetter",
    "BusDeadLetters",
    "Delivery",
    "Handler",
    "InProcessBus",
    "Receipt",
    "SampleBatch",
    "StoredSeries",
    "shard_for",
]
