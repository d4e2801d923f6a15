"""Threshold rules over what agents send: pulled from the hub, judged, and told exactly once.

`RulePuller` and `SilencePuller` keep what the hub says. `AlertEngine` judges the samples that an
`ObservingWriter` shows it, by the evaluator, the flap detector and the silences of `ahrules`, and
puts events in the outbox; an `AlertStateStore` carries its states from one process to the next.
"""

from ahcollector.alerts._in_force import (
    RulesInForce,
    SilencesInForce,
    rules_in_force,
    silences_in_force,
)
from ahcollector.alerts.base import AlertChange, AlertImage, AlertStateStore, StoreGlance, UnitKey
from ahcollector.alerts.engine import AlertEngine
from ahcollector.alerts.file import FileAlertStateStore
from ahcollector.alerts.kept import FileKeptLists, KeptLists, MemoryKeptLists
from ahcollector.alerts.lists import HubList, HubLists, ListTimes
from ahcollector.alerts.memory import MemoryAlertStateStore
from ahcollector.alerts.observing import ObservingWriter, SampleObserver
from ahcollector.alerts.puller import RulePuller, SilencePuller
from ahcollector.alerts.settings import AlertSettings, CompanyAlerts
from ahcollector.alerts.stages import FlapStage, Pipeline, SilenceStage, Stage
from ahcollector.alerts.watched import WatchedAlertStates

__all__ = [
    "AlertChange",
    "AlertEngine",
    "AlertImage",
    "AlertSettings",
    "AlertStateStore",
    "CompanyAlerts",
    "FileAlertStateStore",
    "FileKeptLists",
    "FlapStage",
    "HubList",
    "HubLists",
    "KeptLists",
    "ListTimes",
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
    "StoreGlance",
    "UnitKey",
    "WatchedAlertStates",
    "rules_in_force",
    "silences_in_force",
]
