"""Many rules at once."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from attrs import field, frozen

from ahrules._arguments import refuse
from ahrules._compiled import RuleMatch
from ahrules._index import TenantIndex
from ahrules._patterns import PatternCache
from ahrules._rule import NotificationRule
from ahrules.errors import AmbiguousRuleError, FieldError, RuleValidationError
from ahwire.notification import IncidentEvent


class RuleKey(NamedTuple):
    """A rule's identity: rule ids are unique within a tenant only."""

    tenant_id: str
    rule_id: str


@frozen(kw_only=True)
class RuleError:
    """A rule that could not be compiled.

    Attributes:
        tenant_id: Its tenant, or the empty text where it could not be read.
        rule_id: Its id, or the empty text where it could not be read.
        errors: Its faults.
        position: Where it stood in the list; None where its id says which it is.
    """

    tenant_id: str
    rule_id: str
    errors: tuple[FieldError, ...]
    position: int | None = None

    def __str__(self) -> str:
        """Return the rule and its faults in one text."""
        which = repr(self.rule_id) if self.position is None else f"at position {self.position}"
        return f"rule {which}: " + "; ".join(str(error) for error in self.errors)


@frozen(eq=False, repr=False)
class RuleSet:
    """An immutable set of rules, made by `compile_rules`; may be read by several threads.

    Attributes:
        rules: Every rule that was checked, enabled or not, by its key.
        errors: The rules that were not, in the order they came; they match nothing.
    """

    rules: Mapping[RuleKey, NotificationRule] = field(factory=dict)
    errors: tuple[RuleError, ...] = ()
    _tenants: Mapping[str, TenantIndex] = field(factory=dict, alias="tenants")
    _patterns: PatternCache = field(factory=PatternCache, alias="patterns")

    def __len__(self) -> int:
        """Return how many rules were compiled."""
        return len(self.rules)

    def __repr__(self) -> str:
        """Return the size, not the rules."""
        return f"<RuleSet of {len(self.rules)} rules, {len(self.errors)} errors>"

    def match(self, event: IncidentEvent) -> list[RuleMatch]:
        """Return what an event matches.

        Args:
            event: What happened.

        Returns:
            One match a rule, sorted by rule id. Those with `lookups` hold only when these are
            answered. Never raises for any content of the event: a text that is no address, a field
            of another type, simply do not match.
        """
        try:
            index = self._tenants.get(event.tenant_id)
        except AttributeError:
            refuse("event", event, "give an IncidentEvent, such as from_json reads")
        return [] if index is None else index.match(event)

    def replace(
        self,
        changed: Iterable[NotificationRule | Mapping[str, Any]] = (),
        removed: Iterable[tuple[str, str] | str] = (),
    ) -> "RuleSet":
        """Return a set with rules put in, replaced or taken out; this one stays as it is.

        Tenants without a change are shared. A changed rule that does not compile leaves the set and
        stands in `errors`; removing a rule that is not there is no fault.

        Args:
            changed: Rules, as for `compile_rules`.
            removed: Keys (tenant_id, rule_id), or bare rule ids where they are unique over all
                tenants.

        Raises:
            AmbiguousRuleError: A bare rule id is used by several tenants.
        """
        gone = self._keys(removed)
        checked, errors = _check_all(changed)
        broken = {RuleKey(error.tenant_id, error.rule_id) for error in errors} - checked.keys()
        rules = dict(self.rules)
        for key in gone | broken:
            rules.pop(key, None)
        rules.update(checked)
        settled = gone | broken | checked.keys()
        kept = (e for e in self.errors if RuleKey(e.tenant_id, e.rule_id) not in settled)
        return RuleSet(
            rules, (*kept, *errors), self._changed_tenants(checked, gone | broken), self._patterns
        )

    def _keys(self, removed: Iterable[tuple[str, str] | str]) -> set[RuleKey]:
        items = list(removed)
        keys = {RuleKey(*item) for item in items if not isinstance(item, str)}
        bare = {item for item in items if isinstance(item, str)}
        if bare:
            broken = (RuleKey(e.tenant_id, e.rule_id) for e in self.errors)
            found = {key for key in chain(self.rules, broken) if key.rule_id in bare}
            ids = [key.rule_id for key in found]
            for rule_id in sorted(bare):
                if ids.count(rule_id) > 1:
                    raise AmbiguousRuleError(
                        f"rule id {rule_id!r} is used by several tenants;"
                        " give RuleKey(tenant_id, rule_id)"
                    )
            keys.update(found)
        return keys

    def _changed_tenants(
        self, checked: Mapping[RuleKey, NotificationRule], gone: Iterable[RuleKey]
    ) -> dict[str, TenantIndex]:
        incoming: dict[str, list[NotificationRule]] = {}
        outgoing: dict[str, list[str]] = {}
        for key, rule in checked.items():
            if rule.enabled:
                incoming.setdefault(key.tenant_id, []).append(rule)
            else:
                outgoing.setdefault(key.tenant_id, []).append(key.rule_id)
        for key in gone:
            outgoing.setdefault(key.tenant_id, []).append(key.rule_id)
        tenants = dict(self._tenants)
        for tenant_id in {*incoming, *outgoing}:
            before = tenants.get(tenant_id) or TenantIndex(patterns=self._patterns)
            index = before.replace(incoming.get(tenant_id, ()), outgoing.get(tenant_id, ()))
            if len(index):
                tenants[tenant_id] = index
            else:
                tenants.pop(tenant_id, None)
        return tenants


def compile_rules(rules: Iterable[NotificationRule | Mapping[str, Any]]) -> RuleSet:
    """Make many rules ready to be matched.

    A rule that is not well formed, or whose id its tenant has used before in `rules`, is left out
    and stands in `RuleSet.errors`; the rest works.

    Args:
        rules: Rules, or mappings as `NotificationRule.from_dict` takes them.

    Raises:
        TypeError: It is one rule, not a list of rules.
    """
    return RuleSet().replace(changed=rules)


def _check_all(
    rules: Iterable[NotificationRule | Mapping[str, Any]],
) -> tuple[dict[RuleKey, NotificationRule], list[RuleError]]:
    checked: dict[RuleKey, NotificationRule] = {}
    errors: list[RuleError] = []
    if isinstance(rules, NotificationRule | Mapping | str):
        refuse("rules", rules, "give a list of rules")
    for index, given in enumerate(rules):
        try:
            # A rule that was put together by hand is checked like one from outside.
            rule = (
                given.checked()
                if isinstance(given, NotificationRule)
                else NotificationRule.from_dict(given)
            )
        except RuleValidationError as error:
            tenant_id, rule_id = _name_of(given)
            errors.append(
                RuleError(
                    tenant_id=tenant_id,
                    rule_id=rule_id,
                    errors=error.errors,
                    position=None if rule_id else index,
                )
            )
            continue
        key = RuleKey(rule.tenant_id, rule.rule_id)
        if key in checked:
            fault = FieldError("rule_id", f"{rule.rule_id!r} is there twice; the first one is used")
            errors.append(RuleError(tenant_id=key[0], rule_id=key[1], errors=(fault,)))
            continue
        checked[key] = rule
    return checked, errors


def _name_of(given: object) -> tuple[str, str]:
    names = []
    for name in RuleKey._fields:
        value = given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
        names.append(value if isinstance(value, str) else "")
    return names[0], names[1]
