"""Incidents to decisions."""

from ahnotify.matching._matching import Matching, publish_incidents

__all__ = ["Matching", "publish_incidents"]
