"""One contract suite a protocol.

A suite is a class of asynchronous tests without a test framework's imports. To run one, derive from
it in a test module, give it what it tests, and mark it::

    @pytest.mark.anyio
    class TestMyBus(BusContract):
        async def new(self, clock):
            return MyBus(clock=clock)
"""

from ahcollector.testing._contracts.alerts import AlertStateContract
from ahcollector.testing._contracts.budget import BudgetStoreContract
from ahcollector.testing._contracts.bus import BusContract
from ahcollector.testing._contracts.dead_batches import DeadBatchesContract
from ahcollector.testing._contracts.departures import DeparturesContract
from ahcollector.testing._contracts.outbox import OutboxContract
from ahcollector.testing._contracts.presence import PresenceContract
from ahcollector.testing._contracts.registry import RegistryContract
from ahcollector.testing._contracts.store import StoreContract

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
