"""The rules and silences of all companies as they are asked: immutable, made once for each pull."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ahrules import Evaluator, RuleError, SilenceError, SilenceSet, compile_silences
from ahwire.hub import Silence, ThresholdRule
from ahwire.names import metric_name

__all__ = ["RulesInForce", "SilencesInForce", "rules_in_force", "silences_in_force"]

_NOBODY: Final = "-"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RulesInForce:
    """Threshold rules by company, those of every company among them; each pull makes a new one.

    Attributes:
        count: Rules that can be used, the disabled ones too.
        refused: Those that cannot, with their faults by field path.
    """

    count: int
    refused: tuple[RuleError, ...]
    _by_company: Mapping[str, tuple[ThresholdRule, ...]] = attrs.field(alias="by_company")
    _metrics: Mapping[str, frozenset[str]] = attrs.field(alias="metrics")
    _of_all: tuple[ThresholdRule, ...] = attrs.field(alias="of_all")
    _metrics_of_all: frozenset[str] = attrs.field(alias="metrics_of_all")

    def of(self, company_id: str) -> tuple[ThresholdRule, ...]:
        """Return the rules over a company's series, in the hub's order."""
        return self._by_company.get(company_id, self._of_all)

    def metrics(self, company_id: str) -> frozenset[str]:
        """Return the stored names of the metrics that a company's enabled rules are on."""
        return self._metrics.get(company_id, self._metrics_of_all)


def rules_in_force(
    rules: Iterable[ThresholdRule], refused: Sequence[RuleError] = ()
) -> RulesInForce:
    """Make rules ready to be asked.

    A metric may be named as it was sent or as it is stored, with ``ah_``; it becomes the stored
    name. What cannot be used is found here once, not by each evaluator: patterns, globs, second
    rules of one id.

    Args:
        rules: In the hub's order.
        refused: Those that could not even be read.
    """
    stored = [attrs.evolve(rule, metric=metric_name(rule.metric)) for rule in rules]
    of_all = tuple(rule for rule in stored if rule.company_id is None)
    companies = {rule.company_id for rule in stored if rule.company_id is not None}
    members: dict[str, list[ThresholdRule]] = {company: [] for company in companies}
    for rule in stored:
        if rule.company_id is not None:
            members[rule.company_id].append(rule)
        else:
            for own in members.values():
                own.append(rule)
    faults: dict[object, RuleError] = {}
    tried = {company_id: _with_own_ids(own) for company_id, own in sorted(members.items())}
    for company_id, own in [(_NOBODY, list(of_all)), *tried.items()]:
        for error in _faults(company_id, own):
            # A rule of every company that cannot be used is so for each of them: told once.
            faults.setdefault((error.tenant_id, error.rule_id, error.errors), error)
    return RulesInForce(
        count=len(stored) - len(faults),
        refused=(*refused, *faults.values()),
        by_company={company_id: tuple(own) for company_id, own in members.items()},
        metrics={company_id: _metrics(own) for company_id, own in members.items()},
        of_all=of_all,
        metrics_of_all=_metrics(of_all),
    )


def _with_own_ids(rules: Sequence[ThresholdRule]) -> list[ThresholdRule]:
    """Return a company's own rules, and of those of every company only the ones that share an id.

    The others show no fault here that they do not show alone, and to try them for each company
    again takes seconds.
    """
    ids = {rule.rule_id for rule in rules if rule.company_id is not None}
    return [rule for rule in rules if rule.rule_id in ids]


def _faults(company_id: str, rules: Sequence[ThresholdRule]) -> tuple[RuleError, ...]:
    trial = Evaluator(company_id=company_id)
    trial.set_rules(rules, 0.0)
    return trial.refused


def _metrics(rules: Iterable[ThresholdRule]) -> frozenset[str]:
    return frozenset(rule.metric for rule in rules if rule.enabled)


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
