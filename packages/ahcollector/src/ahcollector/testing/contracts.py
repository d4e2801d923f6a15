"""The contract suites, for tests of implementations: see `ahcollector.testing._contracts`."""

from ahcollector.testing._contracts import (
    BusContract,
    OutboxContract,
    PresenceContract,
    RegistryContract,
    StoreContract,
)

__all__ = ["BusContract", "OutboxContract", "PresenceContract", "RegistryContract", "StoreContract"]
