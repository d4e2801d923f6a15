"""Threshold rules over what agents send: pulled from the hub, judged, and told exactly once."""

from ahcollector.alerts._in_force import (
    RulesInForce,
    SilencesInForce,
    rules_in_force,
    silences_in_force,
)
from ahcollector.alerts.kept import FileKeptLists, KeptLists, MemoryKeptLists
from ahcollector.alerts.puller import RulePuller, SilencePuller

__all__ = [
    "FileKeptLists",
    "KeptLists",
    "MemoryKeptLists",
    "RulePuller",
    "RulesInForce",
    "SilencePuller",
    "SilencesInForce",
    "rules_in_force",
    "silences_in_force",
]
