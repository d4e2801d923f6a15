"""The rules and silences of all companies as they are asked: immutable, made once for each pull."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Final, TypeAlias

import attrs

from ahrules import Evaluator, RuleError, SilenceError, SilenceSet, compile_silences
from ahwire.hub import Silence, ThresholdRule
from ahwire.names import metric_name

__all__ = ["RulesInForce", "SilencesInForce", "rules_in_force", "silences_in_force"]

_NOBODY: Final = "-"
_Placed: TypeAlias = tuple[int, ThresholdRule]


class _Either(AbstractSet[str]):
    """What is in one of two sets, without a third one of both."""

    def __init__(self, own: frozenset[str], shared: frozenset[str]) -> None:
        self._own = own
        self._shared = shared

    def __contains__(self, name: object) -> bool:
        return name in self._shared or name in self._own

    def __iter__(self) -> Iterator[str]:
        yield from self._shared
        yield from (name for name in self._own if name not in self._shared)

    def __len__(self) -> int:
        return len(self._shared) + sum(name not in self._shared for name in self._own)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RulesInForce:
    """Threshold rules by company, those of every company among them; each pull makes a new one.

    Rules of every company are held once, however many companies there are.

    Attributes:
        count: Rules that can be used, the disabled ones too.
        refused: Those that cannot, with their faults by field path.
    """

    count: int
    refused: tuple[RuleError, ...]
    _by_company: Mapping[str, Sequence[_Placed]] = attrs.field(alias="by_company")
    _metrics: Mapping[str, frozenset[str]] = attrs.field(alias="metrics")
    _of_all: Sequence[_Placed] = attrs.field(alias="of_all")
    _metrics_of_all: frozenset[str] = attrs.field(alias="metrics_of_all")

    def of(self, company_id: str) -> tuple[ThresholdRule, ...]:
        """Return the rules over a company's series, in the hub's order."""
        own = self._by_company.get(company_id, ())
        return tuple(rule for _, rule in _in_order(own, self._of_all))

    def metrics(self, company_id: str) -> AbstractSet[str]:
        """Return the stored names of the metrics that a company's enabled rules are on."""
        own = self._metrics.get(company_id)
        return _Either(own, self._metrics_of_all) if own else self._metrics_of_all


def rules_in_force(
    rules: Iterable[ThresholdRule], refused: Sequence[RuleError] = ()
) -> RulesInForce:
    """Make rules ready to be asked, in time linear in their number.

    A metric may be named as it was sent or as it is stored, with ``ah_``; it becomes the stored
    name. What cannot be used is found here once, not by each evaluator: patterns, globs, second
    rules of one id.

    Args:
        rules: In the hub's order.
        refused: Those that could not even be read.
    """
    of_all: list[_Placed] = []
    by_id: dict[str, list[_Placed]] = {}
    by_company: dict[str, list[_Placed]] = {}
    for place, given in enumerate(rules):
        rule = attrs.evolve(given, metric=metric_name(given.metric))
        if rule.company_id is None:
            of_all.append((place, rule))
            by_id.setdefault(rule.rule_id, []).append((place, rule))
        else:
            by_company.setdefault(rule.company_id, []).append((place, rule))
    faults: dict[object, RuleError] = {}
    for company_id, tried in _trials(of_all, by_id, by_company):
        for error in _faults(company_id, tried):
            # A rule of every company that cannot be used is so for each of them: told once.
            faults.setdefault((error.tenant_id, error.rule_id, error.errors), error)
    given_count = len(of_all) + sum(map(len, by_company.values()))
    return RulesInForce(
        count=given_count - len(faults),
        refused=(*refused, *faults.values()),
        by_company=by_company,
        metrics={company_id: _metrics(own) for company_id, own in by_company.items()},
        of_all=of_all,
        metrics_of_all=_metrics(of_all),
    )


def _trials(
    of_all: Sequence[_Placed],
    by_id: Mapping[str, Sequence[_Placed]],
    by_company: Mapping[str, Sequence[_Placed]],
) -> Iterator[tuple[str, Sequence[_Placed]]]:
    """Yield what is to be tried, by company.

    A company's own rules, and of those of every company only the ones that share an id: the others
    show no fault here that they do not show alone.
    """
    yield _NOBODY, of_all
    for company_id, own in sorted(by_company.items()):
        shared = {rule.rule_id for _, rule in own if rule.rule_id in by_id}
        met = [placed for rule_id in shared for placed in by_id[rule_id]]
        yield company_id, _in_order(own, met)


def _in_order(own: Sequence[_Placed], others: Sequence[_Placed]) -> Sequence[_Placed]:
    return sorted((*own, *others), key=itemgetter(0)) if own else others


def _faults(company_id: str, rules: Sequence[_Placed]) -> tuple[RuleError, ...]:
    trial = Evaluator(company_id=company_id)
    trial.set_rules([rule for _, rule in rules], 0.0)
    return trial.refused


def _metrics(rules: Iterable[_Placed]) -> frozenset[str]:
    return frozenset(rule.metric for _, rule in rules if rule.enabled)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SilencesInForce:
    """Silences of all companies; each pull makes a new one.

    Attributes:
        count: Silences that can be used.
        refused: Those that cannot, with their faults by field path.
        silences: Those that can, ready to be asked.
    """

    count: int
    refused: tuple[SilenceError, ...]
    silences: SilenceSet


def silences_in_force(
    silences: Iterable[Silence], refused: Sequence[SilenceError] = ()
) -> SilencesInForce:
    """Make silences ready to be asked.

    Args:
        silences: In the hub's order.
        refused: Those that could not even be read.
    """
    compiled = compile_silences(silences)
    return SilencesInForce(
        count=len(compiled), refused=(*refused, *compiled.errors), silences=compiled
    )
