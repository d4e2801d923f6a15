"""Which rules of a tenant an event could match, without asking all of them."""

from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from ahrules._compiled import CompiledRule
from ahwire.notification import IncidentEvent


@frozen(eq=False)
class TenantIndex:
    """The enabled rules of one tenant, by event type; immutable.

    Attributes:
        rules: By rule id.
        by_event_type: For each type that some rule names as it stands, the ids of those rules.
        of_any_type: The ids of rules that name no type or the beginning of one.
    """

    rules: Mapping[str, CompiledRule] = field(factory=dict)
    by_event_type: Mapping[str, frozenset[str]] = field(factory=dict)
    of_any_type: frozenset[str] = frozenset()

    def candidates(self, event: IncidentEvent) -> Iterator[CompiledRule]:
        """Yield each rule that the event may match, and few others, each once."""
        named = self.by_event_type.get(event.event_type, frozenset())
        for rule_id in self.of_any_type | named:
            yield self.rules[rule_id]

    def replace(self, changed: Iterable[CompiledRule], removed: Iterable[str]) -> "TenantIndex":
        """Return the index with rules put in or taken out; sets that did not change are shared."""
        rules = dict(self.rules)
        by_event_type = dict(self.by_event_type)
        of_any_type = set(self.of_any_type)
        incoming = list(changed)
        for rule_id in {*removed, *(each.rule.rule_id for each in incoming)}:
            old = rules.pop(rule_id, None)
            of_any_type.discard(rule_id)
            for name in exact_types(old) or ():
                left = by_event_type.pop(name) - {rule_id}
                if left:
                    by_event_type[name] = left
        additions: dict[str, set[str]] = {}
        for each in incoming:
            rule_id = each.rule.rule_id
            rules[rule_id] = each
            names = exact_types(each)
            if names is None:
                of_any_type.add(rule_id)
            for name in names or ():
                additions.setdefault(name, set()).add(rule_id)
        for name, ids in additions.items():
            by_event_type[name] = by_event_type.get(name, frozenset()) | ids
        return TenantIndex(rules, by_event_type, frozenset(of_any_type))


def exact_types(compiled: CompiledRule | None) -> tuple[str, ...] | None:
    """Return the types a rule is indexed under, or None if it may match types it does not list."""
    values = compiled.rule.filters.event_type if compiled is not None else None
    if values is None or any(value.endswith("*") for value in values):
        return None
    return values
