"""The contract suites, for tests of implementations: see `ahcollector.testing._contracts`."""

from ahcollector.testing._contracts import (
    AlertStateContract,
    BudgetStoreContract,
    BusContract,
    DeadBatchesContract,
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
    "OutboxContract",
    "PresenceContract",
    "RegistryContract",
    "StoreContract",
]
