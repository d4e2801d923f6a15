"""Batches between ingest and workers."""

from ahcollector.bus.base import (
    SHARDS,
    TRIES_MAX,
    Bus,
    BusDeadLetter,
    BusDeadLetters,
    Delivery,
    Handler,
    SampleBatch,
    StoredSeries,
    shard_for,
)
from ahcollector.bus.memory import InProcessBus

__all__ = [
    "SHARDS",
    "TRIES_MAX",
    "Bus",
    "BusDeadLetter",
    "BusDeadLetters",
    "Delivery",
    "Handler",
    "InProcessBus",
    "SampleBatch",
    "StoredSeries",
    "shard_for",
]
