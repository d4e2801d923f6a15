"""Batches between ingest and workers.

The law that every implementation keeps:

* What `publish` returned from is handed to a subscriber at least once, as long as the backend lives
  (the in-process bus lives as long as its process).
* Order holds within a shard: entries of a shard are handed over one after the other, in the order
  in which they were published, and a shard has one subscriber at a time.
* An entry handed over is *held* until its delivery is acknowledged. A handler that raises has its
  entry handed over again; the fifth failure makes it a dead letter and its neighbours flow on. What
  is held when a subscription ends is handed to the next one, in the old order.
* On a shared bus a process that dies costs what it held a try, since one of these entries may be
  what it died of; see `Delivery.clear_tries`. A further try is counted when the handler is ready
  for it; see `ReadyHandler`.
"""

from ahcollector.bus.base import (
    SHARDS,
    TRIES_MAX,
    AtEnd,
    Bus,
    BusDeadLetter,
    BusDeadLetters,
    Delivery,
    Handler,
    ReadyHandler,
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
    "ReadyHandler",
    "Receipt",
    "SampleBatch",
    "StoredSeries",
    "shard_for",
]
