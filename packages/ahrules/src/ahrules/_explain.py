"""Why a rule does or does not match an event."""

from attrs import fields, frozen

from ahrules._arguments import expect, refuse
from ahrules._evaluate import NO_ANSWERS, Payload, compile_predicate, find, is_missing
from ahrules._index import TenantIndex
from ahrules._patterns import PatternCache
from ahrules._predicates import All, AnyOf, Condition, Not, Predicate
from ahrules._reading import shown
from ahrules._rule import NotificationRule
from ahrules._rule_parts import Filters
from ahwire.notification import IncidentEvent


@frozen(kw_only=True)
class ConditionResult:
    """One condition of a rule, asked about one event.

    Attributes:
        path: Where it stands in the rule, as `filters.severity` or `predicates[0].any[1]`.
        holds: Whether it holds; None where that must be asked elsewhere.
        reason: What the event has and what the rule wants, for a person.
    """

    path: str
    holds: bool | None
    reason: str


@frozen(kw_only=True)
class Explanation:
    """What each condition of a rule says to an event.

    Attributes:
        matches: Whether the rule matches; None where that hangs on a lookup.
        conditions: Every condition, in the rule's order; those inside `not`, `all` and `any` follow
            their group.
    """

    matches: bool | None
    conditions: tuple[ConditionResult, ...]

    @property
    def failed(self) -> tuple[ConditionResult, ...]:
        """The top conditions that do not hold: each of them alone keeps the rule from matching."""
        return tuple(each for each in self.conditions if each.holds is False and _is_top(each.path))


def explain(rule: NotificationRule, event: IncidentEvent) -> Explanation:
    """Ask every condition of a rule about an event, also after one has failed.

    Args:
        rule: A rule, made by `NotificationRule.from_dict`.
        event: What happened.

    Returns:
        The answers; `matches` is not False exactly when a rule set of this rule alone matches the
        event.
    """
    expect("rule", rule, NotificationRule, "give what NotificationRule.from_dict(rule) returns")
    if not hasattr(event, "tenant_id"):
        refuse("event", event, "give an IncidentEvent, such as from_json reads")
    results = [
        ConditionResult(
            path="enabled",
            holds=rule.enabled,
            reason="the rule is enabled" if rule.enabled else "the rule is disabled",
        ),
        ConditionResult(
            path="tenant_id",
            holds=event.tenant_id == rule.tenant_id,
            reason=f"the event is of {shown(event.tenant_id)}, the rule of {shown(rule.tenant_id)}",
        ),
    ]
    patterns = PatternCache()
    for name in (each.name for each in fields(Filters)):
        values = getattr(rule.filters, name)
        if values is not None:
            # The index of this filter alone is asked, so that both answers have one source.
            alone = NotificationRule(
                rule_id="", tenant_id="", name="", filters=Filters(**{name: values})
            )
            index = TenantIndex(patterns=patterns).replace([alone], ())
            holds = bool(index.match(event))
            value = getattr(event, name)
            has = "has none" if value is None else f"has {shown(str(value))}"
            wants = shown([str(each) for each in values])
            results.append(
                ConditionResult(
                    path=f"filters.{name}",
                    holds=holds,
                    reason=f"the event {has}; wanted is one of {wants}",
                )
            )
    payload = event.payload or {}
    for number, predicate in enumerate(rule.predicates):
        results.extend(_results(f"predicates[{number}]", predicate, payload, patterns))
    top = [each.holds for each in results if _is_top(each.path)]
    matches = False if False in top else None if None in top else True
    return Explanation(matches=matches, conditions=tuple(results))


def _is_top(path: str) -> bool:
    return not path.startswith("predicates[") or (path.endswith("]") and path.count("[") == 1)


def _results(
    path: str, predicate: Predicate, payload: Payload, patterns: PatternCache
) -> list[ConditionResult]:
    holds = compile_predicate(predicate, patterns).ask(payload, NO_ANSWERS)
    own = ConditionResult(path=path, holds=holds, reason=_reason(predicate, payload))
    match predicate:
        case Not():
            return [own, *_results(f"{path}.not", predicate.predicate, payload, patterns)]
        case All() | AnyOf():
            name = "all" if isinstance(predicate, All) else "any"
            inner = [
                result
                for index, member in enumerate(predicate.predicates)
                for result in _results(f"{path}.{name}[{index}]", member, payload, patterns)
            ]
            return [own, *inner]
        case _:
            return [own]


def _reason(predicate: Predicate, payload: Payload) -> str:
    match predicate:
        case Condition():
            value = find(payload, predicate.field.split("."))
            has = "is missing" if is_missing(value) else f"is {shown(value)}"
            wanted = (
                list(predicate.value) if isinstance(predicate.value, tuple) else predicate.value
            )
            return f"{predicate.field} {has}; wanted is {predicate.op.value} {shown(wanted)}"
        case Not():
            return "wanted is that the predicate inside does not hold"
        case All():
            return "wanted is that all predicates inside hold"
        case AnyOf():
            return "wanted is that at least one predicate inside holds"
    return f"{predicate.name} must be asked elsewhere"
