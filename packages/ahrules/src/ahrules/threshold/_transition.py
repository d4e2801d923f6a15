"""What the evaluator says: an alert was opened, is still there, or was resolved."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum, unique

from attrs import field, frozen

from ahrules._draft import EventDraft
from ahwire.hub import EventSeverity, EventType


@unique
class TransitionKind(StrEnum):
    """What happened to the alert; `alert.<kind>` is the type of the event that tells it."""

    OPENED = "opened"
    REMINDER = "reminder"
    RESOLVED = "resolved"


@unique
class TransitionReason(StrEnum):
    """Why it happened."""

    CONDITION = "condition"
    """The condition holds (opened, reminder), or is over (resolved)."""
    NO_DATA = "no_data"
    """The series is silent: an alert of its own, or the end of one that the rule calls fine."""
    DATA_RETURNED = "data_returned"
    """The series that was silent has a new point."""
    RULE_CHANGED = "rule_changed"
    """Under the new version of the rule the condition does not hold, or it is another's series."""
    RULE_REMOVED = "rule_removed"
    RULE_DISABLED = "rule_disabled"
    RULE_REFUSED = "rule_refused"
    """The rule's new version cannot be used."""
    FORGOTTEN = "forgotten"
    """The server was taken away."""


@frozen(kw_only=True)
class Transition:
    """An alert opened, is told again, or is resolved.

    Attributes:
        kind: What happened.
        reason: Why.
        rule_id: The rule.
        rule_version: Its version when this happened.
        company_id: The tenant.
        server_id: The server.
        series_key: The series, as `series_key` writes it.
        labels: The series' labels with the rule's over them; read-only.
        severity: The rule's.
        value: What was compared last; None while an alert of silence is open.
        threshold: The rule's.
        started_at: When the alert opened, in Unix seconds: the time of the point that opened it,
            or of the tick that found the silence.
        duration_seconds: From `started_at` to `at`; at least 0.
        peak_value: The farthest that the value was on the alert's side since the condition began;
            None for an alert of silence. Kept when the rule changes: each value was judged by the
            version that saw it, and with another operator the peak begins anew.
        at: When this happened, in Unix seconds: the time of the point, or of the tick.
    """

    kind: TransitionKind
    reason: TransitionReason
    rule_id: str
    rule_version: int
    company_id: str
    server_id: str
    series_key: str
    labels: Mapping[str, str] = field(hash=False)
    severity: EventSeverity
    value: float | None
    threshold: float
    started_at: float
    duration_seconds: float
    peak_value: float | None
    at: float

    def draft(self) -> EventDraft:
        """Return the event that tells it, `alert.opened` and so on; only opened has no duration.

        Raises:
            ValueError: `at` lies outside of the years 1 to 9999.
        """
        is_opened = self.kind is TransitionKind.OPENED
        try:
            occurred_at = datetime.fromtimestamp(self.at, UTC)
        except (OverflowError, OSError) as error:
            raise ValueError(f"{self.at} is no time of the calendar in Unix seconds") from error
        return EventDraft(
            type=EventType(f"alert.{self.kind}"),
            occurred_at=occurred_at,
            company_id=self.company_id,
            server_id=self.server_id,
            rule_id=self.rule_id,
            rule_version=self.rule_version,
            series_key=self.series_key,
            severity=self.severity,
            value=self.value,
            threshold=self.threshold,
            duration_seconds=None if is_opened else self.duration_seconds,
            peak_value=self.peak_value,
            reason=self.reason.value,
            labels=dict(self.labels),
        )
