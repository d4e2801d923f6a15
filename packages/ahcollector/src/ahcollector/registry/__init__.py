"""Who is who: identities by token, and how they follow the hub."""

from ahcollector.registry.base import (
    AgentEntry,
    Put,
    Registry,
    RegistryCounts,
    TokenEntry,
    Verdict,
    admits,
    token_entries,
)
from ahcollector.registry.directory import Directory, NegativeCache
from ahcollector.registry.memory import MemoryRegistry, RegistryImage
from ahcollector.registry.resolver import Resolver
from ahcollector.registry.settings import CompanyConfig, CompanySettingsCache, agent_config
from ahcollector.registry.snapshot import SnapshotKeeper
from ahcollector.registry.sync import Syncer, SyncResult

__all__ = [
    "AgentEntry",
    "CompanyConfig",
    "CompanySettingsCache",
    "Directory",
    "MemoryRegistry",
    "NegativeCache",
    "Put",
    "Registry",
    "RegistryCounts",
    "RegistryImage",
    "Resolver",
    "SnapshotKeeper",
    "SyncResult",
    "Syncer",
    "TokenEntry",
    "Verdict",
    "admits",
    "agent_config",
    "token_entries",
]
