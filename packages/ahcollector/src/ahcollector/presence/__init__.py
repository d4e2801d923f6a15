"""Who was heard when, and which agents fell silent."""

from ahcollector.presence.base import (
    AgentPresence,
    AgentRef,
    IngestSight,
    Presence,
    PresenceCounts,
    PresenceState,
    SeenAgent,
    SeenLease,
    Transition,
    TransitionKind,
    WatchRule,
    deadline_threshold,
)
from ahcollector.presence.beacon import IngestBeacon
from ahcollector.presence.memory import MemoryPresence

__all__ = [
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
]
