"""Threshold rules and silences, as the hub gives them. Public as names of `ahwire.hub`.

These are the contracts: their types, ranges and what must stand together. What a rule or a silence
means, and whether its globs, regular expressions and time zone can be used, is judged by ahrules.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum, unique
from typing import ClassVar

import attrs
from attrs import field
from attrs.validators import optional

from ahwire import _fields as check
from ahwire import limits
from ahwire._event import EventSeverity
from ahwire._json import JSON_NAME, JsonContract
from ahwire.errors import DecodeError

_SERVERS_MAX = 1_000
_MATCHERS_MAX = 64
_LABELS_MAX = 64
_RULES_MAX = 100_000
_SILENCES_MAX = 100_000
_SECONDS_MAX = 366 * 24 * 3600


@unique
class MatchOp(StrEnum):
    """How a matcher compares: equal, not equal, matches the regular expression, does not."""

    EQ = "eq"
    NE = "ne"
    RE = "re"
    NRE = "nre"


@unique
class Aggregation(StrEnum):
    """What becomes of the points of a window before they are compared."""

    LAST = "last"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    SUM = "sum"


@unique
class ThresholdOp(StrEnum):
    """How a value is compared with the threshold."""

    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    EQ = "eq"
    NE = "ne"


@unique
class NoData(StrEnum):
    """What silence of a series means: it is fine, its state stays, or it is an alert."""

    OK = "ok"
    KEEP = "keep"
    ALERT = "alert"


@unique
class Weekday(StrEnum):
    """A day of the week."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


@attrs.frozen(kw_only=True)
class LabelMatcher(JsonContract):
    """A condition on a label; an absent label is the empty string.

    Attributes:
        label: name of the label.
        op: how it is compared.
        value: with what: a text, or the regular expression (RE2, the whole text must match).
    """

    label: str = field(validator=check.text(chars_max=limits.MAX_NAME_BYTES))
    op: MatchOp = field(validator=check.instance(MatchOp))
    value: str = field(validator=check.text(chars_min=0, chars_max=check.TEXT_CHARS_MAX))


@attrs.frozen(kw_only=True)
class ThresholdRule(JsonContract):
    """When a series of a server becomes an alert.

    No number of seconds is above 31,622,400 (366 days).

    Attributes:
        rule_id: its name, which stands in its events.
        version: rises with each change of the rule; at least 0.
        company_id: None: every company.
        servers: ids or globs; None: every server. Never empty.
        matchers: all must hold.
        metric: name of the metric, with or without the `ah_` of stored names.
        agg: what becomes of the points of a window; last: no window.
        agg_seconds: window of the aggregation, from 1 on; there unless `agg` is last.
        op: how a value is compared with the threshold; what holds is an alert.
        threshold: any number that a double holds, as is `resolve_threshold`.
        resolve_threshold: where an alert ends; None: at the threshold.
        for_seconds: how long the condition must hold; 0: one point does.
        keep_firing_seconds: how long an alert stays after the condition is over; 0: ends at once.
        severity: of its events.
        reminder_seconds: how often an alert is told again, from 1 on; None: never.
        no_data: what silence of a series means.
        no_data_after_seconds: silence that counts as no data, from 1 on; None: the collector's own.
        labels: put on the rule's events.
        enabled: whether it is judged; one that is not ends its alerts.
    """

    rule_id: str = field(validator=check.text())
    version: int = field(validator=check.integer(least=0))
    company_id: str | None = field(default=None, validator=optional(check.identity))
    servers: tuple[str, ...] | None = field(
        default=None, validator=optional(check.items(check.text(), 1, _SERVERS_MAX))
    )
    matchers: tuple[LabelMatcher, ...] = field(
        default=(), validator=check.items(check.instance(LabelMatcher), 0, _MATCHERS_MAX)
    )
    metric: str = field(validator=check.text(chars_max=limits.MAX_NAME_BYTES))
    agg: Aggregation = field(default=Aggregation.LAST, validator=check.instance(Aggregation))
    agg_seconds: float | None = field(
        default=None,
        converter=check.as_float,
        validator=optional(check.number(least=1, most=_SECONDS_MAX)),
    )
    op: ThresholdOp = field(validator=check.instance(ThresholdOp))
    threshold: float = field(converter=check.as_number, validator=check.number())
    resolve_threshold: float | None = field(
        default=None, converter=check.as_float, validator=optional(check.number())
    )
    for_seconds: float = field(
        default=0.0,
        converter=check.as_number,
        validator=check.number(least=0, most=_SECONDS_MAX),
    )
    keep_firing_seconds: float = field(
        default=0.0,
        converter=check.as_number,
        validator=check.number(least=0, most=_SECONDS_MAX),
    )
    severity: EventSeverity = field(validator=check.instance(EventSeverity))
    reminder_seconds: float | None = field(
        default=None,
        converter=check.as_float,
        validator=optional(check.number(least=1, most=_SECONDS_MAX)),
    )
    no_data: NoData = field(default=NoData.OK, validator=check.instance(NoData))
    no_data_after_seconds: float | None = field(
        default=None,
        converter=check.as_float,
        validator=optional(check.number(least=1, most=_SECONDS_MAX)),
    )
    labels: Mapping[str, str] = field(
        factory=dict,
        converter=check.as_json,
        validator=check.mapping(
            check.text(chars_max=limits.MAX_NAME_BYTES),
            check.text(chars_min=0, chars_max=limits.MAX_LABEL_VALUE_BYTES),
            _LABELS_MAX,
        ),
        hash=False,
    )
    enabled: bool = field(default=True, validator=check.boolean)

    def __attrs_post_init__(self) -> None:
        if self.agg is not Aggregation.LAST and self.agg_seconds is None:
            reason = f"is missing; {self.agg} is taken over a window"
            raise DecodeError(field="agg_seconds", reason=reason)


@attrs.frozen(kw_only=True)
class ThresholdRules(JsonContract):
    """Answer to `GET /rules`.

    Attributes:
        rules: those of all companies, at most 100,000.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    rules: tuple[ThresholdRule, ...] = field(
        validator=check.items(check.instance(ThresholdRule), 0, _RULES_MAX)
    )


@attrs.frozen(kw_only=True)
class Recurrence(JsonContract):
    """A window that comes again: on some weekdays, from one time of the wall clock to another.

    Attributes:
        weekdays: the days on which a window begins.
        from_: `HH:MM`; in JSON its name is `from`.
        to: `HH:MM`; when it is not after `from`, the window ends on the next day.
        timezone: IANA name.
    """

    weekdays: tuple[Weekday, ...] = field(
        validator=check.items(check.instance(Weekday), 1, len(Weekday))
    )
    from_: str = field(validator=check.wall_time, metadata={JSON_NAME: "from"})
    to: str = field(validator=check.wall_time)
    timezone: str = field(validator=check.text())


@attrs.frozen(kw_only=True)
class Silence(JsonContract):
    """When events are marked as suppressed.

    Attributes:
        silence_id: its name, which stands in `suppress_reason` as `silence:<id>`.
        company_id: whose events.
        matchers: on server_id, agent_id, rule_id, severity, type or a label; all must hold.
        starts_at: first instant in it.
        ends_at: first instant after it; None: it has no end.
        recurrence: only inside these windows; None: all the time from `starts_at` to `ends_at`.
        reason: why, for people; cut at 1,024 characters.
        created_by: who, for people.
        all: said by a silence without matchers, which matches everything of its company.
    """

    silence_id: str = field(validator=check.text())
    company_id: str = field(validator=check.identity)
    matchers: tuple[LabelMatcher, ...] = field(
        validator=check.items(check.instance(LabelMatcher), 0, _MATCHERS_MAX)
    )
    starts_at: datetime = field(converter=check.as_utc, validator=check.moment)
    ends_at: datetime | None = field(
        default=None, converter=check.as_utc, validator=optional(check.moment)
    )
    recurrence: Recurrence | None = field(
        default=None, validator=optional(check.instance(Recurrence))
    )
    reason: str = field(
        default="",
        converter=check.as_short_text,
        validator=check.text(chars_min=0, chars_max=check.TEXT_CHARS_MAX),
    )
    created_by: str = field(default="", validator=check.text(chars_min=0))
    all: bool = field(default=False, validator=check.boolean)

    def __attrs_post_init__(self) -> None:
        if self.ends_at is not None and self.ends_at <= self.starts_at:
            raise DecodeError(field="ends_at", reason="is not after starts_at")
        if not self.matchers and not self.all:
            reason = "is empty; a silence of everything in a company says so with all: true"
            raise DecodeError(field="matchers", reason=reason)


@attrs.frozen(kw_only=True)
class Silences(JsonContract):
    """Answer to `GET /silences`.

    Attributes:
        silences: those of all companies, at most 100,000.
    """

    _json_may_be_wrapped: ClassVar[bool] = True

    silences: tuple[Silence, ...] = field(
        validator=check.items(check.instance(Silence), 0, _SILENCES_MAX)
    )
