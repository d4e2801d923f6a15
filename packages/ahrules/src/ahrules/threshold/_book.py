"""The threshold rules of one company, read once and kept by what asks for them."""

from collections.abc import Iterable, Mapping
from math import inf

from attrs import field, frozen

from ahrules._arguments import expect
from ahrules._ruleset import RuleError
from ahrules.errors import FieldError
from ahrules.threshold._by_metric import MetricRules
from ahrules.threshold._rules import Compiled, compile_rule, refused
from ahwire.hub import ThresholdRule


@frozen(kw_only=True)
class RuleBook:
    """The rules of one company, made ready.

    Attributes:
        rules: Those that are enabled and can be used, by id.
        disabled: Ids of those that are not enabled.
        refused: Those that cannot be used, in the order they came.
        by_metric: The rules again, by the metric they watch.
        refused_ids: Ids of those that cannot be used.
        patience: The shortest silence that one of them tells of; infinity: there are none.
    """

    rules: Mapping[str, Compiled]
    disabled: frozenset[str]
    refused: tuple[RuleError, ...]
    by_metric: Mapping[str, MetricRules]
    refused_ids: frozenset[str] = field(init=False)
    patience: float = field(init=False)

    @refused_ids.default
    def _refused_ids(self) -> frozenset[str]:
        return frozenset(error.rule_id for error in self.refused)

    @patience.default
    def _patience(self) -> float:
        return min((rule.no_data_after for rule in self.rules.values()), default=inf)

    def added(self, before: "RuleBook") -> Mapping[str, MetricRules]:
        """Return the rules that are new or changed since another book, by the metric they watch."""
        known = before.rules
        return _by_metric(
            rule for rule_id, rule in self.rules.items() if known.get(rule_id) is not rule
        )


def empty_book() -> RuleBook:
    """Return the book without rules."""
    return RuleBook(rules={}, disabled=frozenset(), refused=(), by_metric={})


def make_book(
    rules: Iterable[ThresholdRule],
    *,
    company_id: str,
    no_data_after_seconds: float,
    before: Mapping[str, Compiled],
) -> RuleBook:
    """Make the company's rules ready; a rule that is as before stays the same object.

    Other companies' rules are passed over. Of two rules with one id the first is taken.
    """
    found: dict[str, Compiled] = {}
    disabled: set[str] = set()
    faults: list[RuleError] = []
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        expect(
            f"rules[{index}]", rule, ThresholdRule, "give a ThresholdRule, such as from_json reads"
        )
        if rule.company_id not in (None, company_id):
            continue
        rule_id = rule.rule_id
        if rule_id in seen:
            message = f"{rule_id!r} is given twice; the first is taken, give the other its own id"
            faults.append(refused(rule, FieldError("rule_id", message)))
            continue
        seen.add(rule_id)
        old = before.get(rule_id)
        if not rule.enabled:
            disabled.add(rule_id)
        elif old is not None and old.rule == rule:
            found[rule_id] = old
        else:
            made = compile_rule(rule, no_data_after_seconds)
            if isinstance(made, RuleError):
                faults.append(made)
            else:
                found[rule_id] = made
    return RuleBook(
        rules=found,
        disabled=frozenset(disabled),
        refused=tuple(faults),
        by_metric=_by_metric(found.values()),
    )


def _by_metric(rules: Iterable[Compiled]) -> dict[str, MetricRules]:
    found: dict[str, list[Compiled]] = {}
    for compiled in rules:
        found.setdefault(compiled.rule.metric, []).append(compiled)
    return {metric: MetricRules(each) for metric, each in found.items()}
