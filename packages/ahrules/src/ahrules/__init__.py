"""Which rule matches an event, which time bucket it falls in, how much may be told at once.

Besides: when alerts of series open and end, which events silences suppress, which alerts flap,
which agents went down as a group.

Pure functions and immutable values: no I/O but the installed time-zone data, no clock, no state of
its own (what the limiter, the detector and the tracker keep is their owner's). Every answer depends
on the arguments only.
"""

from ahrules._buckets import Bucket, batch_key, bucket, next_buckets
from ahrules._compiled import RuleMatch
from ahrules._draft import EventDraft, EventKey, event_key
from ahrules._explain import ConditionResult, Explanation, explain
from ahrules._limiter import Limiter, LocalLimiter, RateLimit, TokenBucketLimiter
from ahrules._misspelt import unknown_fields
from ahrules._predicates import All, AnyOf, Condition, Lookup, Not, Op, Predicate
from ahrules._rule import NotificationRule
from ahrules._rule_parts import Filters, RuleSchedule
from ahrules._ruleset import RuleError, RuleKey, RuleSet, compile_rules
from ahrules._schedule import OVERFLOW_SCHEDULE, Schedule, Unit
from ahrules._zones import check_zone, load_zone, zone_names
from ahrules.errors import (
    AmbiguousRuleError,
    FieldError,
    InstantError,
    RulesError,
    RuleValidationError,
    ScheduleError,
    SnapshotError,
    UnknownZoneError,
)
from ahrules.flapping import (
    FlapDetector,
    FlapSettings,
    FlapState,
    FlapStep,
    observe_alert,
    settle_alert,
)
from ahrules.group_down import (
    GROUP_DOWN_DEFAULTS,
    DownGroup,
    GroupDownState,
    GroupDownStep,
    GroupMember,
    observe_agents,
)
from ahrules.silences import (
    EventFields,
    HeldEvent,
    SilenceError,
    SilenceSet,
    SilenceWindow,
    SuppressionTracker,
    check_silence,
    compile_silences,
    mark_event,
    windows_between,
)
from ahrules.threshold import (
    AlertState,
    Evaluator,
    EvaluatorBounds,
    Series,
    Transition,
    TransitionKind,
    TransitionReason,
    Unjudged,
    read_threshold_rules,
    series_key,
)

__all__ = [
    "GROUP_DOWN_DEFAULTS",
    "OVERFLOW_SCHEDULE",
    "AlertState",
    "All",
    "AmbiguousRuleError",
    "AnyOf",
    "Bucket",
    "Condition",
    "ConditionResult",
    "DownGroup",
    "Evaluator",
    "EvaluatorBounds",
    "EventDraft",
    "EventFields",
    "EventKey",
    "Explanation",
    "FieldError",
    "Filters",
    "FlapDetector",
    "FlapSettings",
    "FlapState",
    "FlapStep",
    "GroupDownState",
    "GroupDownStep",
    "GroupMember",
    "HeldEvent",
    "InstantError",
    "Limiter",
    "LocalLimiter",
    "Lookup",
    "Not",
    "NotificationRule",
    "Op",
    "Predicate",
    "RateLimit",
    "RuleError",
    "RuleKey",
    "RuleMatch",
    "RuleSchedule",
    "RuleSet",
    "RuleValidationError",
    "RulesError",
    "Schedule",
    "ScheduleError",
    "Series",
    "SilenceError",
    "SilenceSet",
    "SilenceWindow",
    "SnapshotError",
    "SuppressionTracker",
    "TokenBucketLimiter",
    "Transition",
    "TransitionKind",
    "TransitionReason",
    "Unit",
    "Unjudged",
    "UnknownZoneError",
    "batch_key",
    "bucket",
    "check_silence",
    "check_zone",
    "compile_rules",
    "compile_silences",
    "event_key",
    "explain",
    "load_zone",
    "mark_event",
    "next_buckets",
    "observe_agents",
    "observe_alert",
    "read_threshold_rules",
    "series_key",
    "settle_alert",
    "unknown_fields",
    "windows_between",
    "zone_names",
]
