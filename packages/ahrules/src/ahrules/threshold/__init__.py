"""Threshold rules over series: when an alert opens, is told again, and ends."""

from ahrules.threshold._evaluator import Evaluator
from ahrules.threshold._rules import read_threshold_rules
from ahrules.threshold._series import Series, series_key
from ahrules.threshold._tracked import EvaluatorBounds
from ahrules.threshold._transition import Transition, TransitionKind, TransitionReason
from ahrules.threshold._unjudged import Unjudged
from ahrules.threshold._watch import AlertState

__all__ = [
    "AlertState",
    "Evaluator",
    "EvaluatorBounds",
    "Series",
    "Transition",
    "TransitionKind",
    "TransitionReason",
    "Unjudged",
    "read_threshold_rules",
    "series_key",
]
