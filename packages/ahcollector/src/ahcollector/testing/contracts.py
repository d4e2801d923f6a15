"""One contract suite a protocol, for tests of implementations.

A suite is a class of asynchronous tests without a test framework's imports. To run one, derive from
it in a test module, give it what it tests, and mark it::

    @pytest.mark.anyio
    class TestMyBus(BusContract):
        async def new(self, *, queue_batches_max=256):
            return MyBus(queue_batches_max=queue_batches_max)

What a suite has to be given:

* `BusContract`: ``new(*, queue_batches_max=256)``, an empty bus with this bound of a shard, on the
  system's clock.
* `StoreContract`: ``new()``, an empty store that keeps at least a day, and ``now_ms()``, its
  present; ``visible(store)`` where reading takes time, ``same(found, sent)`` where not every double
  is kept as it is.
* `RegistryContract`: ``new()``, an empty registry.
* `PresenceContract`: ``new()``, an empty presence with a least threshold of 90 s, a usual interval
  of 30 s, and beacons good for 15 s; ``durable = True`` and ``reopen(presence)`` where something
  outlives the process.
* `OutboxContract`: ``new(bounds)``, an empty outbox of these bounds; ``durable`` and
  ``reopen(outbox)`` likewise.
* `BudgetStoreContract` and `AlertStateContract`: ``new()``, an empty store, and ``reopen(store)``.
* `DeadBatchesContract`: ``new(*, letters_max, bytes_max, retention_seconds)``, one that holds
  nothing, with these bounds, and ``reopen(dead)``.
* `DeparturesContract`: ``new(*, keep_seconds, departures_max)``, one that remembers nobody, with
  these bounds, and ``reopen(departures)``.

`reopen` returns what another process finds where the given one wrote; a kill came between them.
"""

from ahcollector.testing._contracts import (
    AlertStateContract,
    BudgetStoreContract,
    BusContract,
    DeadBatchesContract,
    DeparturesContract,
    OutboxContract,
    PresenceContract,
    RegistryContract,
    StoreContract,
)

__all__ = [
    "AlertStateContract",
    "BudgetStoreContract",
    "BusContract",
    "DeadBatchesContract",
    "DeparturesContract",
    "OutboxContract",
    "PresenceContract",
    "RegistryContract",
    "StoreContract",
]
