"""What is public, word for word: a change here is a change that others see."""

import importlib
import subprocess
import sys

import pytest

PUBLIC = {
    "ahcollector": [
        "AgentRef",
        "Bus",
        "CollectorError",
        "Outbox",
        "Presence",
        "Registry",
        "SampleBatch",
        "Store",
        "StoredSeries",
        "admin_app",
        "ingest_app",
        "shard_for",
    ],
    "ahcollector.admin": ["Check", "Reload", "TenantAlerts", "admin_app", "openapi_document"],
    "ahcollector.alerts": [
        "AlertChange",
        "AlertEngine",
        "AlertImage",
        "AlertSettings",
        "AlertStateStore",
        "FileAlertStateStore",
        "FileKeptLists",
        "FlapStage",
        "KeptLists",
        "MemoryAlertStateStore",
        "MemoryKeptLists",
        "ObservingWriter",
        "Pipeline",
        "RulePuller",
        "RulesInForce",
        "SampleObserver",
        "SilencePuller",
        "SilenceStage",
        "SilencesInForce",
        "Stage",
        "UnitKey",
        "rules_in_force",
        "silences_in_force",
    ],
    "ahcollector.alerts.redis": ["RedisAlertStateStore", "RedisKeptLists"],
    "ahcollector.budget": [
        "AgentSeries",
        "BudgetKeeper",
        "BudgetStore",
        "FileBudgetStore",
        "MemoryBudgetStore",
        "SeriesBudget",
        "SeriesChange",
        "Window",
    ],
    "ahcollector.budget.redis": ["RedisBudgetStore"],
    "ahcollector.clock": ["AsyncClock", "SystemClock"],
    "ahcollector.enroll": ["EnrollProxy", "Renewal", "enroll_refusal"],
    "ahcollector.hub": ["HttpHub", "Hub", "RulesReply", "SettingsReply", "SilencesReply"],
    "ahcollector.ingest": [
        "Check",
        "IPNetwork",
        "IngestLimits",
        "SeriesBudget",
        "ingest_app",
        "openapi_document",
    ],
    "ahcollector.metrics": [
        "ALL_METRICS",
        "Kind",
        "Metric",
        "Metrics",
        "NullMetrics",
        "PrometheusMetrics",
    ],
    "ahcollector.bus": [
        "AtEnd",
        "Bus",
        "BusDeadLetter",
        "BusDeadLetters",
        "Delivery",
        "Handler",
        "InProcessBus",
        "ReadyHandler",
        "Receipt",
        "SHARDS",
        "SampleBatch",
        "StoredSeries",
        "TRIES_MAX",
        "shard_for",
    ],
    "ahcollector.bus.jetstream": ["BufferSize", "JetStreamBus", "buffer_bytes"],
    "ahcollector.bus.redis": ["RedisBus"],
    "ahcollector.departures": [
        "Departure",
        "Departures",
        "FileDepartures",
        "Left",
        "MemoryDepartures",
        "ServerKey",
        "Sieve",
        "SparingWriter",
    ],
    "ahcollector.departures.redis": ["RedisDepartures"],
    "ahcollector.detector": [
        "AGENTS_SHARD",
        "AgentEventStage",
        "Carried",
        "Detector",
        "DetectorTurn",
        "IntentCarrier",
        "Reporter",
        "ScanReport",
        "TrafficTotals",
    ],
    "ahcollector.detector.redis": ["RedisDetectorTurn"],
    "ahcollector.nats": ["NatsClient", "NatsConfig"],
    "ahcollector.outbox": [
        "DeadLetter",
        "DiscardOutbox",
        "FileOutbox",
        "LocalLease",
        "MemoryOutbox",
        "OpenedOutbox",
        "Outbox",
        "OutboxBackend",
        "OutboxBounds",
        "OutboxEntry",
        "OutboxSender",
        "OutboxStats",
        "REASON_EXPIRED",
        "REASON_REFUSED",
        "REASON_REJECTED",
        "REASON_UNREADABLE",
        "SendRound",
        "SenderLease",
        "choose_backend",
        "open_outbox",
        "reason_kind",
    ],
    "ahcollector.outbox.redis": ["RedisLease", "RedisOutbox"],
    "ahcollector.presence": [
        "AgentPresence",
        "AgentRef",
        "IngestBeacon",
        "IngestSight",
        "MemoryPresence",
        "Presence",
        "PresenceCounts",
        "PresenceState",
        "SeenAgent",
        "SeenLease",
        "Transition",
        "TransitionKind",
        "WatchRule",
        "deadline_threshold",
    ],
    "ahcollector.presence.redis": ["RedisPresence"],
    "ahcollector.store": [
        "Aggregate",
        "Deleter",
        "LatestSample",
        "MemoryStore",
        "RANGE_POINTS_MAX",
        "RangeSeries",
        "Reader",
        "Restarts",
        "SeriesInfo",
        "Store",
        "StoreSnapshot",
        "Writer",
    ],
    "ahcollector.store.victoria_metrics": ["VictoriaMetricsStore", "rollup_rules"],
    "ahcollector.testing": ["FakeClock", "FakeHub"],
    "ahcollector.testing.contracts": [
        "AlertStateContract",
        "BudgetStoreContract",
        "BusContract",
        "DeadBatchesContract",
        "DeparturesContract",
        "OutboxContract",
        "PresenceContract",
        "RegistryContract",
        "StoreContract",
    ],
    "ahcollector.worker": [
        "DeadBatch",
        "DeadBatches",
        "FileDeadBatches",
        "MemoryDeadBatches",
        "Worker",
        "WorkerStats",
        "replay_dead_batches",
    ],
    "ahcollector.worker.redis": ["RedisDeadBatches"],
    "ahcollector.registry": [
        "AgentEntry",
        "CachedRegistry",
        "Change",
        "ChangeFeed",
        "CompanyConfig",
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
    ],
    "ahcollector.registry.redis": ["RedisCompanySettings", "RedisRegistry"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == sorted(PUBLIC[module])
    for name in found.__all__:
        assert getattr(found, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    import ahcollector

    with pytest.raises(AttributeError, match="nothing"):
        _ = ahcollector.nothing


def test_the_package_imports_without_its_extras():
    script = """
import sys
for name in ("starlette", "prometheus_client", "redis", "nats", "cramjam"):
    sys.modules[name] = None  # importing it fails
import ahcollector, ahcollector.metrics, ahcollector.registry, ahcollector.enroll, ahcollector.hub
import ahcollector.bus, ahcollector.store, ahcollector.presence, ahcollector.outbox
import ahcollector.worker, ahcollector.detector, ahcollector.errors, ahcollector.alerts
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
