"""Silences and maintenance windows: which events are suppressed, and what is owed afterwards."""

from ahrules.silences._held import HeldEvent
from ahrules.silences._matching import EventFields
from ahrules.silences._set import SilenceError, SilenceSet, check_silence, compile_silences
from ahrules.silences._tracker import SuppressionTracker, mark_event
from ahrules.silences._window import SilenceWindow, windows_between

__all__ = [
    "EventFields",
    "HeldEvent",
    "SilenceError",
    "SilenceSet",
    "SilenceWindow",
    "SuppressionTracker",
    "check_silence",
    "compile_silences",
    "mark_event",
    "windows_between",
]
