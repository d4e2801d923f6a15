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
    deadline_threshold,
)

__all__ = [
    "AgentPresence",
    "AgentRef",
    "IngestSight",
    "Presence",
    "PresenceCounts",
    "PresenceState",
    "SeenAgent",
    "SeenLease",
    "Transition",
    "TransitionKind",
    "deadline_threshold",
]
