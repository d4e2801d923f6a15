"""Silence becomes events; contacts and counts become reports."""

from ahcollector.detector.carrier import Carried, IntentCarrier
from ahcollector.detector.detector import Detector, ScanReport
from ahcollector.detector.reporter import Reporter, TrafficTotals
from ahcollector.detector.stage import AGENTS_SHARD, AgentEventStage
from ahcollector.detector.turn import DetectorTurn

__all__ = [
    "AGENTS_SHARD",
    "AgentEventStage",
    "Carried",
    "Detector",
    "DetectorTurn",
    "IntentCarrier",
    "Reporter",
    "ScanReport",
    "TrafficTotals",
]
