"""One rule made ready to be asked many times, once its filters are known to hold."""

from typing import Final

from attrs import field, frozen

from ahrules._evaluate import (
    NO_ANSWERS,
    NO_PAYLOAD,
    Answers,
    ClosedTest,
    Holds,
    Payload,
    Test,
    compile_predicates,
)
from ahrules._patterns import PatternCache
from ahrules._predicates import Lookup
from ahrules._rule import NotificationRule

_ALWAYS: Final = ClosedTest(lambda _payload: True)


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
    _test: Test = field(default=_ALWAYS, alias="test", eq=False, repr=False)
    _payload: Payload = field(default=NO_PAYLOAD, alias="payload", eq=False, repr=False)

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


class PredicatedRule:
    """A rule with predicates, which are compiled when they are first asked.

    Most rules of a large set are asked seldom or never, and compiling takes longer than reading.
    Two threads that ask first at once both compile, and either result serves.
    """

    __slots__ = ("_closed", "_matched", "_open", "_patterns")

    def __init__(self, rule: NotificationRule, patterns: PatternCache) -> None:
        self._matched = RuleMatch(rule=rule)
        self._patterns = patterns
        # One of them once it has been asked: the latter where a lookup is part of it.
        self._closed: Holds | None = None
        self._open: Test | None = None

    @property
    def rule(self) -> NotificationRule:
        """The rule."""
        return self._matched.rule

    def ask(self, payload: Payload) -> RuleMatch | None:
        """Return the match or None, never raising; the filters are the index's affair."""
        closed = self._closed
        if closed is not None:
            return self._matched if closed(payload) else None
        test = self._open
        if test is None:
            test = compile_predicates(self.rule.predicates, self._patterns)
            if isinstance(test, ClosedTest):
                self._closed = test.holds
            else:
                self._open = test
        answer = test.ask(payload, NO_ANSWERS)
        if answer is None:
            lookups = tuple(dict.fromkeys(test.open_lookups(payload, NO_ANSWERS)))
            return RuleMatch(rule=self.rule, lookups=lookups, test=test, payload=payload)
        return self._matched if answer else None
