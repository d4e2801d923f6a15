"""Which rule matches an event, which time bucket it falls in, how much may be told at once.

Pure functions and immutable values: no I/O but the installed time-zone data, no clock, no state of
its own (the limiter's is its owner's). Every answer depends on the arguments only.
"""

from ahrules._buckets import Bucket, batch_key, bucket, next_buckets
from ahrules._compiled import RuleMatch
from ahrules._explain import ConditionResult, Explanation, explain
from ahrules._limiter import Limiter, RateLimit, TokenBucketLimiter
from ahrules._predicates import All, AnyOf, Condition, Lookup, Not, Op, Predicate
from ahrules._rule import (
    Filters,
    NotificationRule,
    RuleSchedule,
)
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
    UnknownZoneError,
)

__all__ = [
    "OVERFLOW_SCHEDULE",
    "All",
    "AmbiguousRuleError",
    "AnyOf",
    "Bucket",
    "Condition",
    "ConditionResult",
    "Explanation",
    "FieldError",
    "Filters",
    "InstantError",
    "Limiter",
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
    "TokenBucketLimiter",
    "Unit",
    "UnknownZoneError",
    "batch_key",
    "bucket",
    "check_zone",
    "compile_rules",
    "explain",
    "load_zone",
    "next_buckets",
    "zone_names",
]
