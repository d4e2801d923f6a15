"""The names that others may use; a change here is a change of the public interface."""

import ahrules
import ahrules.errors
import ahrules.testing


def test_ahrules_exports_exactly_these_names():
    assert sorted(ahrules.__all__) == [
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
        "GROUP_DOWN_DEFAULTS",
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
        "OVERFLOW_SCHEDULE",
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


def test_errors_exports_exactly_these_names():
    assert sorted(ahrules.errors.__all__) == [
        "AmbiguousRuleError",
        "FieldError",
        "InstantError",
        "RuleValidationError",
        "RulesError",
        "ScheduleError",
        "SnapshotError",
        "UnknownZoneError",
    ]


def test_testing_exports_exactly_these_names():
    assert ahrules.testing.__all__ == ["LimiterContract"]


def test_every_exported_name_exists():
    for module in (ahrules, ahrules.errors, ahrules.testing):
        for name in module.__all__:
            assert hasattr(module, name)
