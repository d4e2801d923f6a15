"""Silence becomes events; contacts and counts become reports."""

from ahcollector.detector.detector import Detector, ScanReport
from ahcollector.detector.reporter import Reporter, TrafficTotals

__all__ = ["Detector", "Reporter", "ScanReport", "TrafficTotals"]
