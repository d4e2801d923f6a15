"""Predicates made ready to be asked many times.

The answer is True, False or None: None where it hangs on a lookup that nobody has answered yet (the
three-valued logic of Kleene). A field that is missing or of another type is False, never an
exception.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from attrs import frozen

from ahrules._limits import CONTAINS_ITEMS_MAX
from ahrules._networks import Networks
from ahrules._patterns import AskedPattern, PatternCache
from ahrules._predicates import All, AnyOf, Condition, Lookup, Not, Op, Predicate
from ahrules._reading import is_number

Answers: TypeAlias = Mapping[Lookup, bool]
Payload: TypeAlias = Mapping[str, Any]
Holds: TypeAlias = Callable[[Payload], bool]

NO_ANSWERS: Final[Answers] = {}
NO_PAYLOAD: Final[Payload] = {}

_MISSING: Final = object()
_NUMBER: Final = float


class Test(Protocol):
    """A predicate that can be asked."""

    def ask(self, payload: Payload, answers: Answers) -> bool | None:
        """Return whether the predicate holds, or None while that hangs on a lookup."""
        ...

    def open_lookups(self, payload: Payload, answers: Answers) -> Iterator[Lookup]:
        """Yield the lookups that an answer of None hangs on."""
        ...


@frozen
class ClosedTest:
    """A predicate without a lookup in it: the payload alone decides.

    Attributes:
        holds: Whether it holds for a payload.
    """

    holds: Holds

    def ask(self, payload: Payload, answers: Answers) -> bool:  # noqa: ARG002 - asks nobody
        """Return the answer, which is never None."""
        return self.holds(payload)

    def open_lookups(self, payload: Payload, answers: Answers) -> Iterator[Lookup]:  # noqa: ARG002 - hangs on none
        """Yield nothing."""
        return iter(())


@frozen
class _LookupTest:
    lookup: Lookup

    def ask(self, payload: Payload, answers: Answers) -> bool | None:  # noqa: ARG002 - asks elsewhere
        return answers.get(self.lookup)

    def open_lookups(self, payload: Payload, answers: Answers) -> Iterator[Lookup]:  # noqa: ARG002 - an open one is itself
        yield self.lookup


@frozen
class _NotTest:
    inner: Test

    def ask(self, payload: Payload, answers: Answers) -> bool | None:
        answer = self.inner.ask(payload, answers)
        return None if answer is None else not answer

    def open_lookups(self, payload: Payload, answers: Answers) -> Iterator[Lookup]:
        return self.inner.open_lookups(payload, answers)


@frozen
class _GroupTest:
    """`all` (decided by the first False) or `any` (decided by the first True)."""

    inner: tuple[Test, ...]
    deciding: bool

    def ask(self, payload: Payload, answers: Answers) -> bool | None:
        """Return the answer of the group."""
        is_open = False
        for test in self.inner:
            answer = test.ask(payload, answers)
            if answer is self.deciding:
                return self.deciding
            is_open = is_open or answer is None
        return None if is_open else not self.deciding

    def open_lookups(self, payload: Payload, answers: Answers) -> Iterator[Lookup]:
        """Yield the open lookups of members that are open."""
        for test in self.inner:
            if test.ask(payload, answers) is None:
                yield from test.open_lookups(payload, answers)


def compile_predicates(predicates: Sequence[Predicate], patterns: PatternCache) -> Test:
    """Return the test that all of a rule's predicates hold."""
    return _group([compile_predicate(inner, patterns) for inner in predicates], deciding=False)


def compile_predicate(predicate: Predicate, patterns: PatternCache) -> Test:
    """Return a predicate's test; the predicate is one that was read without a fault.

    Args:
        predicate: What is asked.
        patterns: Where the test gets its patterns, each time it is asked.
    """
    match predicate:
        case Condition():
            check = _check(predicate, patterns)
            return ClosedTest(_field_test(tuple(predicate.field.split(".")), check))
        case Not():
            inner = compile_predicate(predicate.predicate, patterns)
            return ClosedTest(_negation(inner.holds)) if _is_closed(inner) else _NotTest(inner)
        case All():
            return compile_predicates(predicate.predicates, patterns)
        case AnyOf():
            members = [compile_predicate(member, patterns) for member in predicate.predicates]
            return _group(members, deciding=True)
    return _LookupTest(predicate)


def _is_closed(test: Test) -> TypeGuard[ClosedTest]:
    return isinstance(test, ClosedTest)


def _group(tests: Sequence[Test], *, deciding: bool) -> Test:
    closed = [test.holds for test in tests if _is_closed(test)]
    if len(closed) < len(tests):
        return _GroupTest(tuple(tests), deciding)
    if len(closed) == 1:
        return ClosedTest(closed[0])
    return ClosedTest(_decision(tuple(closed), deciding))


def _negation(holds: Holds) -> Holds:
    return lambda payload: not holds(payload)


def _decision(members: tuple[Holds, ...], deciding: bool) -> Holds:
    def holds(payload: Payload) -> bool:
        for member in members:
            if member(payload) is deciding:
                return deciding
        return not deciding

    return holds


def _field_test(parts: tuple[str, ...], check: Callable[[object], bool]) -> Holds:
    if len(parts) == 1:
        (name,) = parts
        return lambda payload: check(payload.get(name, _MISSING))
    return lambda payload: check(find(payload, parts))


def find(payload: Payload, parts: Sequence[str]) -> object:
    """Return the value at a dotted path, or a mark that there is none."""
    value: object = payload
    for part in parts:
        # To ask whether it is a Mapping takes far longer, and decoded JSON has dicts.
        if type(value) is not dict and not isinstance(value, Mapping):
            return _MISSING
        value = value.get(part, _MISSING)
    return value


def is_missing(value: object) -> bool:
    """Tell whether `find` found nothing."""
    return value is _MISSING


def _kind(value: object) -> type | None:
    """Return a value's kind: numbers compare with numbers, texts with texts, flags with flags."""
    if isinstance(value, str):
        return str
    if isinstance(value, bool):
        return bool
    return _NUMBER if is_number(value) else None


_ORDER: Final[Mapping[Op, Callable[[Any, Any], bool]]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.LT: operator.lt,
    Op.LTE: operator.le,
}


def _check(condition: Condition, patterns: PatternCache) -> Callable[[object], bool]:
    op, value = condition.op, condition.value
    if op in _ORDER:
        return _comparison(_ORDER[op], value)
    listed = value if isinstance(value, tuple) else (value,)
    match op:
        case Op.IN:
            return _membership(listed, wanted=True)
        case Op.NOT_IN:
            return _membership(listed, wanted=False)
        case Op.CONTAINS:
            return _containment(value)
        case Op.EXISTS:
            return lambda found: (found is not _MISSING) is value
        case Op.CIDR:
            return Networks(str(text) for text in listed).hold
        case Op.STARTS_WITH:
            prefix = str(value)
            return lambda found: isinstance(found, str) and found.startswith(prefix)
        case _:
            search = AskedPattern(str(value), patterns).search
            return lambda found: isinstance(found, str) and search(found)


def _comparison(compare: Callable[[Any, Any], bool], value: object) -> Callable[[object], bool]:
    kind = _kind(value)
    if kind is str:
        return lambda found: isinstance(found, str) and compare(found, value)
    if kind is _NUMBER:
        return lambda found: is_number(found) and compare(found, value)
    return lambda found: _kind(found) is kind and compare(found, value)


def _membership(listed: Sequence[object], *, wanted: bool) -> Callable[[object], bool]:
    # By kind, so that 1 does not find True; a kind that is not listed at all is another type.
    by_kind: dict[type | None, set[object]] = {}
    for value in listed:
        by_kind.setdefault(_kind(value), set()).add(value)

    if by_kind.keys() == {str}:
        texts = frozenset(listed)
        return lambda found: isinstance(found, str) and (found in texts) is wanted

    def check(found: object) -> bool:
        kind = _kind(found)
        return kind in by_kind and (found in by_kind[kind]) is wanted

    return check


def _containment(value: object) -> Callable[[object], bool]:
    kind = _kind(value)

    def check(found: object) -> bool:
        if isinstance(found, str):
            return isinstance(value, str) and value in found
        if isinstance(found, list | tuple):
            looked_at = found if len(found) <= CONTAINS_ITEMS_MAX else found[:CONTAINS_ITEMS_MAX]
            # The kinds are asked only where something is equal: 1 equals True.
            return value in looked_at and any(
                _kind(item) is kind and item == value for item in looked_at
            )
        return False

    return check
