"""Who is who: identities by token, and how they follow the hub.

The shared registry is in `ahcollector.registry.redis` (extra ``[redis]``), imported by itself.
"""

from ahcollector.registry.base import (
    AgentEntry,
    Change,
    ChangeFeed,
    Put,
    Registry,
    RegistryCounts,
    ScanPage,
    TokenEntry,
    Verdict,
    admits,
    settled,
    token_entries,
)
from ahcollector.registry.cache import CachedRegistry
from ahcollector.registry.directory import Directory, NegativeCache
from ahcollector.registry.full_sync import FullSync, FullSyncResult
from ahcollector.registry.memory import MemoryRegistry, RegistryImage
from ahcollector.registry.resolver import Resolver
from ahcollector.registry.settings import (
    CompanyConfig,
    CompanyDefaults,
    CompanySettingsCache,
    CompanySettingsStore,
    KeptSettings,
    agent_config,
)
from ahcollector.registry.snapshot import SnapshotKeeper
from ahcollector.registry.sync import Syncer, SyncResult

__all__ = [
    "AgentEntry",
    "CachedRegistry",
    "Change",
    "ChangeFeed",
    "CompanyConfig",
    "CompanyDefaults",
    "CompanySettingsCache",
    "CompanySettingsStore",
    "Directory",
    "FullSync",
    "FullSyncResult",
    "KeptSettings",
    "MemoryRegistry",
    "NegativeCache",
    "Put",
    "Registry",
    "RegistryCounts",
    "RegistryImage",
    "Resolver",
    "ScanPage",
    "SnapshotKeeper",
    "SyncResult",
    "Syncer",
    "TokenEntry",
    "Verdict",
    "admits",
    "agent_config",
    "settled",
    "token_entries",
]
