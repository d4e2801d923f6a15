"""One rule made ready to be asked many times."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

from ahrules._evaluate import Answers, GroupTest, Payload, compile_predicates, in_network
from ahrules._networks import Network, read_address, read_network
from ahrules._patterns import compile_glob, is_glob
from ahrules._predicates import Lookup
from ahrules._rule import Filters, NotificationRule
from ahwire.notification import IncidentEvent

NO_ANSWERS: Final[Mapping[Lookup, bool]] = {}


FilterTest: TypeAlias = Callable[[IncidentEvent], bool]


@frozen(kw_only=True)
class RuleMatch:
    """A rule that an event matches, as far as can be told without asking elsewhere.

    Attributes:
        rule: The rule.
        lookups: What is to be asked elsewhere before the match holds; empty where it holds already.
            Lookups whose answer could change nothing for this event are left out.
    """

    rule: NotificationRule
    lookups: tuple[Lookup, ...] = ()
    _test: GroupTest = field(alias="test", eq=False, repr=False)
    _payload: Payload = field(alias="payload", eq=False, repr=False)

    @property
    def rule_id(self) -> str:
        """The rule's id."""
        return self.rule.rule_id

    def decide(self, answers: Answers) -> bool | None:
        """Return whether the match holds, as far as the answers to its lookups tell.

        Args:
            answers: What has been answered so far, by lookup.

        Returns:
            True or False as soon as no further answer can change it, else None. For lookups that
            stand side by side in a rule, the first False decides.
        """
        return self._test.ask(self._payload, answers)


@frozen(kw_only=True, eq=False)
class CompiledRule:
    """A rule with its filters and predicates as functions."""

    rule: NotificationRule
    filters: tuple[FilterTest, ...]
    test: GroupTest

    def match(self, event: IncidentEvent) -> RuleMatch | None:
        """Return the match or None, never raising; tenant and `enabled` are the index's affair."""
        for accepts in self.filters:
            if not accepts(event):
                return None
        payload = event.payload or {}
        answer = self.test.ask(payload, NO_ANSWERS)
        if answer is False:
            return None
        lookups: tuple[Lookup, ...] = ()
        if answer is None:
            lookups = tuple(dict.fromkeys(self.test.open_lookups(payload, NO_ANSWERS)))
        return RuleMatch(rule=self.rule, lookups=lookups, test=self.test, payload=payload)


def compile_rule(rule: NotificationRule) -> CompiledRule:
    """Return the rule made ready; it must be one that was read without a fault."""
    # Cheap filters come first, so that most events are refused early.
    makers = (
        ("severity", severity_filter),
        ("event_type", event_type_filter),
        ("host", host_filter),
        ("ip_address", ip_address_filter),
    )
    filters = tuple(
        make(values)
        for name, make in makers
        if (values := filter_values(rule.filters, name)) is not None
    )
    return CompiledRule(rule=rule, filters=filters, test=compile_predicates(rule.predicates))


def filter_values(filters: Filters, name: str) -> tuple[str, ...] | None:
    """Return the values of one filter."""
    values: tuple[str, ...] | None = getattr(filters, name)
    return values


def severity_filter(values: tuple[str, ...]) -> FilterTest:
    """Return the test of a severity filter."""
    wanted = frozenset(values)
    return lambda event: event.severity in wanted


def event_type_filter(values: tuple[str, ...]) -> FilterTest:
    """Return the test of an event-type filter."""
    exact = frozenset(value for value in values if not value.endswith("*"))
    prefixes = tuple(value[:-1] for value in values if value.endswith("*"))
    return lambda event: event.event_type in exact or event.event_type.startswith(prefixes)


def host_filter(values: tuple[str, ...]) -> FilterTest:
    """Return the test of a host filter."""
    exact = frozenset(value for value in values if not is_glob(value))
    globs = tuple(compile_glob(value) for value in values if is_glob(value))

    def accepts(event: IncidentEvent) -> bool:
        host = event.host
        if host is None:
            return False
        return host in exact or any(glob.matches_whole(host) for glob in globs)

    return accepts


def ip_address_filter(values: tuple[str, ...]) -> FilterTest:
    """Return the test of an address filter."""
    networks: tuple[Network, ...] = tuple(read_network(value) for value in values)

    def accepts(event: IncidentEvent) -> bool:
        address = read_address(event.ip_address)
        return address is not None and any(in_network(address, network) for network in networks)

    return accepts
