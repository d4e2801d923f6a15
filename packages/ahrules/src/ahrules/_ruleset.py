"""Many rules at once."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from attrs import field, frozen

from ahrules._compiled import CompiledRule, RuleMatch, compile_rule
from ahrules._index import TenantIndex
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
    """

    tenant_id: str
    rule_id: str
    errors: tuple[FieldError, ...]

    def __str__(self) -> str:
        """Return the rule and its faults in one text."""
        return f"rule {self.rule_id!r}: " + "; ".join(str(error) for error in self.errors)


@frozen(eq=False, repr=False)
class RuleSet:
    """An immutable set of rules, made by `compile_rules`; may be read by several threads.

    Attributes:
        rules: Every rule that was compiled, enabled or not, by its key.
        errors: The rules that were not, in the order they came; they match nothing.
    """

    rules: Mapping[RuleKey, NotificationRule] = field(factory=dict)
    errors: tuple[RuleError, ...] = ()
    _tenants: Mapping[str, TenantIndex] = field(factory=dict, alias="tenants")

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
        index = self._tenants.get(event.tenant_id)
        if index is None:
            return []
        found = [
            match
            for candidate in index.candidates(event)
            if (match := candidate.match(event)) is not None
        ]
        found.sort(key=_rule_id)
        return found

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
        compiled, errors = _compile_all(changed)
        broken = {RuleKey(error.tenant_id, error.rule_id) for error in errors} - compiled.keys()
        rules = dict(self.rules)
        for key in gone | broken:
            rules.pop(key, None)
        rules.update((key, each.rule) for key, each in compiled.items())
        settled = gone | broken | compiled.keys()
        kept = (e for e in self.errors if RuleKey(e.tenant_id, e.rule_id) not in settled)
        return RuleSet(
            rules, (*kept, *errors), _replace_in_tenants(self._tenants, compiled, gone | broken)
        )

    def _keys(self, removed: Iterable[tuple[str, str] | str]) -> set[RuleKey]:
        items = list(removed)
        keys = {RuleKey(*item) for item in items if not isinstance(item, str)}
        bare = {item for item in items if isinstance(item, str)}
        if bare:
            known = {*self.rules, *(RuleKey(e.tenant_id, e.rule_id) for e in self.errors)}
            found = [key for key in known if key.rule_id in bare]
            ids = [key.rule_id for key in found]
            for rule_id in sorted(bare):
                if ids.count(rule_id) > 1:
                    raise AmbiguousRuleError(
                        f"rule id {rule_id!r} is used by several tenants;"
                        " give RuleKey(tenant_id, rule_id)"
                    )
            keys.update(found)
        return keys


def compile_rules(rules: Iterable[NotificationRule | Mapping[str, Any]]) -> RuleSet:
    """Make many rules ready to be matched.

    A rule that is not well formed, or whose id its tenant has used before in `rules`, is left out
    and stands in `RuleSet.errors`; the rest works.

    Args:
        rules: Rules, or mappings as `NotificationRule.from_dict` takes them.
    """
    return RuleSet().replace(changed=rules)


def _rule_id(match: RuleMatch) -> str:
    return match.rule.rule_id


def _compile_all(
    rules: Iterable[NotificationRule | Mapping[str, Any]],
) -> tuple[dict[RuleKey, CompiledRule], list[RuleError]]:
    compiled: dict[RuleKey, CompiledRule] = {}
    errors: list[RuleError] = []
    for given in rules:
        try:
            # A rule that was put together by hand is checked like one from outside.
            mapping = given.to_dict() if isinstance(given, NotificationRule) else given
            rule = NotificationRule.from_dict(mapping)
        except RuleValidationError as error:
            tenant_id, rule_id = _name_of(given)
            errors.append(RuleError(tenant_id=tenant_id, rule_id=rule_id, errors=error.errors))
            continue
        key = RuleKey(rule.tenant_id, rule.rule_id)
        if key in compiled:
            fault = FieldError("rule_id", f"{rule.rule_id!r} is there twice; the first one is used")
            errors.append(RuleError(tenant_id=key[0], rule_id=key[1], errors=(fault,)))
            continue
        compiled[key] = compile_rule(rule)
    return compiled, errors


def _name_of(given: object) -> tuple[str, str]:
    names = []
    for name in RuleKey._fields:
        value = given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
        names.append(value if isinstance(value, str) else "")
    return names[0], names[1]


def _replace_in_tenants(
    tenants: Mapping[str, TenantIndex],
    compiled: Mapping[RuleKey, CompiledRule],
    gone: Iterable[RuleKey],
) -> dict[str, TenantIndex]:
    incoming: dict[str, list[CompiledRule]] = {}
    outgoing: dict[str, list[str]] = {}
    for key, each in compiled.items():
        if each.rule.enabled:
            incoming.setdefault(key.tenant_id, []).append(each)
        else:
            outgoing.setdefault(key.tenant_id, []).append(key.rule_id)
    for key in gone:
        outgoing.setdefault(key.tenant_id, []).append(key.rule_id)
    result = dict(tenants)
    for tenant_id in {*incoming, *outgoing}:
        index = result.get(tenant_id, TenantIndex()).replace(
            incoming.get(tenant_id, ()), outgoing.get(tenant_id, ())
        )
        if index.rules:
            result[tenant_id] = index
        else:
            result.pop(tenant_id, None)
    return result
