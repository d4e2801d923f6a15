"""Rules that are there and cannot be read: they stay as they were.

A newer hub has changed such a rule, and has not taken it away; so its alerts do not end by that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from ahrules import RuleError
from ahwire.hub import ThresholdRule

__all__ = ["RuleName", "StayingRules", "name_of_fault", "name_of_item"]

_log = logging.getLogger("ahcollector.alerts")

_NAMED_MAX: Final = 20
RuleName: TypeAlias = tuple[str, str]
"""Company, empty for all of them, and id."""


def name_of_fault(error: RuleError) -> RuleName:
    """Return the name of a rule that cannot be read."""
    return error.tenant_id, error.rule_id


def name_of_item(item: Mapping[str, Any]) -> RuleName:
    """Return the name of an item, as far as it has one."""
    return str(item.get("company_id") or ""), str(item.get("rule_id"))


class StayingRules:
    """Puts the version before in the place of a rule that cannot be read, and names it once."""

    def __init__(self) -> None:
        self._staying: frozenset[RuleName] = frozenset()

    def among(
        self,
        rules: Sequence[ThresholdRule],
        unread: Sequence[RuleName],
        before: Sequence[ThresholdRule],
    ) -> list[ThresholdRule]:
        """Return the rules, and behind them those of before that are there and cannot be read."""
        known = {_name(rule): rule for rule in before} if unread else {}
        given = {_name(rule) for rule in rules} if unread else set()
        stay = {name: known[name] for name in unread if name in known and name not in given}
        fresh = sorted(stay.keys() - self._staying)
        if fresh:
            _log.warning(
                "rules that cannot be read stay in force in the version before, until the hub has "
                "one that can be read, or none: update this program",
                extra={
                    "count": len(fresh),
                    "rules": ["/".join(name) for name in fresh[:_NAMED_MAX]],
                },
            )
        self._staying = frozenset(stay)
        return [*rules, *stay.values()]


def _name(rule: ThresholdRule) -> RuleName:
    return rule.company_id or "", rule.rule_id
