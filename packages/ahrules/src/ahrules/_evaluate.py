"""Predicates made ready to be asked many times.

The answer is True, False or None: None where it hangs on a lookup that nobody has answered yet (the
three-valued logic of Kleene). A field that is missing or of another type is False, never an
exception.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, assert_never

from attrs import frozen

from ahrules._networks import Address, Network, read_address, read_network
from ahrules._patterns import compile_pattern
from ahrules._predicates import All, AnyOf, Condition, Lookup, Not, Op, Predicate
from ahrules._reading import is_number

Answers: TypeAlias = Mapping[Lookup, bool]
Payload: TypeAlias = Mapping[str, Any]

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
class _ConditionTest:
    parts: tuple[str, ...]
    check: Callable[[object], bool]

    def ask(self, payload: Payload, answers: Answers) -> bool | None:  # noqa: ARG002 - asks nobody
        return self.check(find(payload, self.parts))

    def open_lookups(self, payload: Payload, answers: Answers) -> Iterator[Lookup]:  # noqa: ARG002 - a condition asks nobody
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
class GroupTest:
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


def compile_predicates(predicates: Sequence[Predicate]) -> GroupTest:
    """Return the test that all of a rule's predicates hold."""
    return GroupTest(tuple(compile_predicate(inner) for inner in predicates), deciding=False)


def compile_predicate(predicate: Predicate) -> Test:
    """Return a predicate's test; the predicate is one that was read without a fault."""
    match predicate:
        case Condition():
            return _ConditionTest(tuple(predicate.field.split(".")), _check(predicate))
        case Not():
            return _NotTest(compile_predicate(predicate.predicate))
        case All():
            return compile_predicates(predicate.predicates)
        case AnyOf():
            inner = tuple(compile_predicate(member) for member in predicate.predicates)
            return GroupTest(inner, deciding=True)
        case Lookup():
            return _LookupTest(predicate)
        case _:
            assert_never(predicate)


def find(payload: Payload, parts: Sequence[str]) -> object:
    """Return the value at a dotted path, or a mark that there is none."""
    value: object = payload
    for part in parts:
        if not isinstance(value, Mapping):
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


def _check(condition: Condition) -> Callable[[object], bool]:
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
            return _network_check([read_network(text) for text in listed])
        case Op.STARTS_WITH:
            prefix = str(value)
            return lambda found: isinstance(found, str) and found.startswith(prefix)
        case _:
            pattern = compile_pattern(str(value))
            return lambda found: isinstance(found, str) and pattern.search(found)


def _comparison(compare: Callable[[Any, Any], bool], value: object) -> Callable[[object], bool]:
    kind = _kind(value)
    return lambda found: _kind(found) is kind and compare(found, value)


def _membership(listed: Sequence[object], *, wanted: bool) -> Callable[[object], bool]:
    # By kind, so that 1 does not find True; a kind that is not listed at all is another type.
    by_kind: dict[type | None, set[object]] = {}
    for value in listed:
        by_kind.setdefault(_kind(value), set()).add(value)

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
            return any(_kind(item) is kind and item == value for item in found)
        return False

    return check


def _network_check(networks: Sequence[Network]) -> Callable[[object], bool]:
    def check(found: object) -> bool:
        address = read_address(found) if isinstance(found, str) else None
        return address is not None and any(in_network(address, network) for network in networks)

    return check


def in_network(address: Address, network: Network) -> bool:
    """Tell whether an address is in a network; one of the other version never is."""
    return address.version == network.version and address in network
