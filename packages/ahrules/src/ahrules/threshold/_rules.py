"""Threshold rules made ready: which series one meets, and what it says of a value."""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from attrs import define

from ahrules._matchers import Test, compile_each
from ahrules._patterns import Pattern, PatternError, compile_glob, is_glob
from ahrules._ruleset import RuleError
from ahrules.errors import FieldError
from ahrules.threshold._series import Series
from ahrules.threshold._window import AGGREGATES, Window
from ahwire.errors import DecodeError
from ahwire.hub import Aggregation, LabelMatcher, NoData, ThresholdOp, ThresholdRule

Compare = Callable[[float, float], bool]
_Matcher = tuple[str, Test]

_COMPARISONS: Final[Mapping[ThresholdOp, Compare]] = MappingProxyType(
    {
        ThresholdOp.GT: operator.gt,
        ThresholdOp.GTE: operator.ge,
        ThresholdOp.LT: operator.lt,
        ThresholdOp.LTE: operator.le,
        ThresholdOp.EQ: operator.eq,
        ThresholdOp.NE: operator.ne,
    }
)
_DIGITS_MAX: Final = 400
_BEYOND: Final = 10**_DIGITS_MAX
_UPWARDS: Final = frozenset({ThresholdOp.GT, ThresholdOp.GTE})
_DOWNWARDS: Final = frozenset({ThresholdOp.LT, ThresholdOp.LTE})


@define(eq=False, kw_only=True)
class Compiled:
    """A rule that can be used. `series` is the number of series that it watches now."""

    rule: ThresholdRule
    matchers: tuple[_Matcher, ...]
    server_ids: frozenset[str] | None
    server_globs: tuple[Pattern, ...]
    compare: Compare
    threshold: float
    ends_at: float
    no_data_after: float
    series: int = 0

    def meets(self, server: str, series: Series) -> bool:
        """Tell whether the rule watches this series of this server."""
        rule = self.rule
        if rule.metric != series.name:
            return False
        if self.server_ids is not None and server not in self.server_ids:  # noqa: SIM102 - one condition a line
            if not any(glob.matches_whole(server) for glob in self.server_globs):
                return False
        # An absent label is the empty string.
        return all(test(series.labels.get(label, "")) for label, test in self.matchers)

    def window(self, points_max: int) -> Window | None:
        """Return an empty window for one series, or None where the last point says all."""
        seconds = self.rule.agg_seconds
        if self.rule.agg is Aggregation.LAST or seconds is None:
            return None
        return Window(seconds, points_max)

    def aggregate(self, window: Window) -> float:
        """Return what the window's points say together; NaN where that is no number."""
        return AGGREGATES[self.rule.agg](window.values)

    def farther(self, value: float, peak: float | None) -> float:
        """Return whichever of the two is farther on the alert's side."""
        assert peak is not None, "the condition holds, so it began with a value"
        op = self.rule.op
        if op in _UPWARDS:
            return max(value, peak)
        if op in _DOWNWARDS:
            return min(value, peak)
        threshold = self.threshold
        return value if abs(value - threshold) > abs(peak - threshold) else peak

    @property
    def tells_silence(self) -> bool:
        """Whether silence is an alert."""
        return self.rule.no_data is NoData.ALERT


def _matchers(matchers: Sequence[LabelMatcher], errors: list[FieldError]) -> tuple[_Matcher, ...]:
    return tuple((matcher.label, test) for _, matcher, test in compile_each(matchers, errors))


def _globs(servers: Sequence[str], errors: list[FieldError]) -> tuple[Pattern, ...]:
    found = []
    for index, server in enumerate(servers):
        if not is_glob(server):
            continue
        try:
            found.append(compile_glob(server))
        except PatternError as error:
            errors.append(FieldError(f"servers[{index}]", str(error)))
    return tuple(found)


def _resolve_fault(rule: ThresholdRule) -> FieldError | None:
    ends_at, threshold = rule.resolve_threshold, rule.threshold
    if ends_at is None:
        return None
    if rule.op in _UPWARDS:
        wrong, side = ends_at > threshold, "at or below"
    elif rule.op in _DOWNWARDS:
        wrong, side = ends_at < threshold, "at or above"
    else:
        message = f"has no meaning with {rule.op}; leave it out"
        return FieldError("resolve_threshold", message)
    if not wrong:
        return None
    message = (
        f"{ends_at} would end the alert before it begins; with {rule.op} it is {side} "
        f"the threshold, {threshold}"
    )
    return FieldError("resolve_threshold", message)


def compile_rule(rule: ThresholdRule, no_data_after_seconds: float) -> Compiled | RuleError:
    """Return the rule ready to be asked, or what is wrong with it."""
    errors: list[FieldError] = []
    servers = rule.servers or ()
    globs = _globs(servers, errors)
    matchers = _matchers(rule.matchers, errors)
    fault = _resolve_fault(rule)
    if fault:
        errors.append(fault)
    if errors:
        return refused(rule, *errors)
    ends_at = rule.resolve_threshold
    after = rule.no_data_after_seconds
    return Compiled(
        rule=rule,
        matchers=matchers,
        server_ids=frozenset(servers) if servers else None,
        server_globs=globs,
        compare=_COMPARISONS[rule.op],
        threshold=rule.threshold,
        ends_at=rule.threshold if ends_at is None else ends_at,
        no_data_after=no_data_after_seconds if after is None else after,
    )


def refused(rule: ThresholdRule, *errors: FieldError) -> RuleError:
    """Return what is wrong with a rule, beside its name."""
    return RuleError(tenant_id=rule.company_id or "", rule_id=rule.rule_id, errors=errors)


def read_threshold_rules(data: bytes) -> tuple[tuple[ThresholdRule, ...], tuple[RuleError, ...]]:
    """Read the hub's answer rule by rule, so that one that is not well formed costs no other.

    Args:
        data: UTF-8 JSON, `{"rules": [...]}`, also inside of `{"data": ...}`.

    Returns:
        The rules, and for each that does not keep the contract its faults by field path.

    Raises:
        DecodeError: The document itself cannot be read.
    """
    try:
        document = json.loads(data, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise DecodeError(field="", reason=f"the rules are no JSON ({error})") from error
    if isinstance(document, dict) and "rules" not in document:
        document = document.get("data")
    items = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise DecodeError(field="rules", reason="is missing or no array; it holds the rules")
    rules, faults = [], []
    for index, item in enumerate(items):
        try:
            rules.append(ThresholdRule.from_json(json.dumps(item).encode()))
        except DecodeError as error:
            faults.append(_unread(index, item, error))
    return tuple(rules), tuple(faults)


def _integer(text: str) -> int:
    """Read a whole number; one of more digits than Python reads as one that no field takes.

    So it spoils its own rule and no other.
    """
    return int(text) if len(text) <= _DIGITS_MAX else _BEYOND


def _unread(index: int, item: object, error: DecodeError) -> RuleError:
    given = item if isinstance(item, dict) else {}
    names = [given.get(name) for name in ("company_id", "rule_id")]
    company_id, rule_id = (name if isinstance(name, str) else "" for name in names)
    path = f"rules[{index}].{error.field}" if error.field else f"rules[{index}]"
    return RuleError(
        tenant_id=company_id, rule_id=rule_id, errors=(FieldError(path, error.reason),)
    )
