"""The further conditions of a rule, as values, and how they are read and written.

```
{"field": "geo", "op": "in", "value": ["RU"]}      a condition on a field of the event's payload
{"not": P}   {"all": [P, …]}   {"any": [P, …]}     nest to a depth of 8
{"lookup": "user_on_leave", …}                     must be asked elsewhere; what else is in it goes
along
```
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias, assert_never, cast

from attrs import Factory, field, frozen

from ahrules._limits import (
    LOOKUP_BYTES_MAX,
    LOOKUP_DEPTH_MAX,
    NUMBER_BITS_MAX,
    PATTERN_CHARS_COUNTED_MIN,
    PREDICATE_DEPTH_MAX,
    PREDICATES_MAX,
    RULE_PATTERN_STEPS_MAX,
)
from ahrules._networks import NetworkTextError, canonical_network
from ahrules._patterns import PatternError, compile_pattern
from ahrules._reading import Faults, is_number, join, members, shown, wrong

Scalar: TypeAlias = str | int | float | bool


class Op(StrEnum):
    """What is asked of a payload field. A field that is missing, or of another type, answers no."""

    EQ = "eq"
    NE = "ne"
    IN = "in"
    NOT_IN = "not_in"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    MATCHES = "matches"
    EXISTS = "exists"
    CIDR = "cidr"


@frozen(kw_only=True)
class Condition:
    """A condition on one field of the payload.

    Attributes:
        field: A dotted path through objects, as `login.geo`.
        op: What is asked.
        value: What is asked for: a list for `in` and `not_in`, a list or one network for `cidr`,
            true or false for `exists`, a text for `contains` on texts, `starts_with` and `matches`,
            else a text, number or flag.
    """

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]


@frozen
class Not:
    """True where the predicate is false."""

    predicate: "Predicate"


@frozen
class All:
    """True where every predicate is."""

    predicates: tuple["Predicate", ...]


@frozen
class AnyOf:
    """True where at least one predicate is."""

    predicates: tuple["Predicate", ...]


def _canonical(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"), default=str)


@frozen(kw_only=True)
class Lookup:
    """A question that must be asked elsewhere; matching leaves it open.

    Attributes:
        name: Whom to ask.
        arguments: What to ask; JSON values.
    """

    name: str
    arguments: Mapping[str, Any] = field(factory=dict, eq=_canonical)


Predicate: TypeAlias = Condition | Not | All | AnyOf | Lookup
"""A question about an incident's payload, as a rule's `predicates` hold them."""

_ORDERED: Final = frozenset({Op.GT, Op.GTE, Op.LT, Op.LTE})
_LISTS: Final = frozenset({Op.IN, Op.NOT_IN})
_TEXTS: Final = frozenset({Op.STARTS_WITH, Op.MATCHES})
CONDITION: Final = ("field", "op", "value")
"""The fields of a condition."""
GROUPS: Final = ("not", "all", "any")
"""The fields that hold further predicates; each stands alone in its object."""
_KINDS: Final = ("field", *GROUPS, "lookup")
_OPS: Final = members(Op)


@frozen
class PredicateReader:
    """Reads predicates of one rule and counts them."""

    faults: Faults
    _count: list[int] = field(default=Factory(lambda: [0]), init=False)
    _steps: list[int] = field(default=Factory(lambda: [0]), init=False)

    def read(self, path: str, value: object, depth: int = 0) -> Predicate | None:
        """Return the predicate at `path`, or None after its faults were kept."""
        found = self.faults.mapping(path, value)
        if found is None:
            return None
        self._count[0] += 1
        if self._count[0] == PREDICATES_MAX + 1:
            self.faults.add(
                path, f"is the {PREDICATES_MAX + 1}th condition; {PREDICATES_MAX} are the most"
            )
        if self._count[0] > PREDICATES_MAX:
            return None
        kinds = [name for name in _KINDS if name in found]
        # A lookup may carry a `field` along; it is its own affair.
        if "lookup" in kinds and not set(kinds) & set(GROUPS):
            return self._lookup(path, found)
        if len(kinds) != 1:
            self.faults.add(path, "must have exactly one of 'field', 'not', 'all', 'any', 'lookup'")
            return None
        if kinds[0] == "field":
            return self._condition(path, found)
        return self._group(path, found, kinds[0], depth + 1)

    def read_all(
        self, path: str, values: Sequence[object], depth: int = 0
    ) -> tuple[Predicate, ...]:
        """Return the predicates of the list at `path`."""
        predicates = []
        for index, value in enumerate(values):
            # What is over the limit has been told; a list may be far longer.
            if self._count[0] > PREDICATES_MAX or self.faults.are_many:
                break
            predicate = self.read(f"{path}[{index}]", value, depth)
            if predicate is not None:
                predicates.append(predicate)
        return tuple(predicates)

    def _group(
        self, path: str, found: Mapping[str, object], kind: str, depth: int
    ) -> Predicate | None:
        self.faults.unknown_fields(path, found, (kind,))
        inner_path = join(path, kind)
        if depth > PREDICATE_DEPTH_MAX:
            self.faults.add(
                inner_path, f"nests deeper than {PREDICATE_DEPTH_MAX} levels; split the rule in two"
            )
            return None
        if kind == "not":
            negated = self.read(inner_path, found[kind], depth)
            return None if negated is None else Not(negated)
        inner = found[kind]
        if not isinstance(inner, list | tuple) or not inner:
            way_out = "write a list of at least one predicate"
            self.faults.add(inner_path, wrong(inner, "cannot be used", way_out))
            return None
        predicates = self.read_all(inner_path, inner, depth)
        return All(predicates) if kind == "all" else AnyOf(predicates)

    def _lookup(self, path: str, found: Mapping[str, object]) -> Lookup | None:
        name = self.faults.text(join(path, "lookup"), found["lookup"])
        arguments = {key: value for key, value in found.items() if key != "lookup"}
        if not _nests_at_most(arguments, LOOKUP_DEPTH_MAX):
            self.faults.add(path, f"nests deeper than {LOOKUP_DEPTH_MAX} levels; make it flatter")
            return None
        try:
            text = json.dumps(arguments, allow_nan=False)
        except (TypeError, ValueError) as error:
            self.faults.add(
                path,
                f"cannot be sent as JSON ({str(error)[:200]}); use texts, numbers, lists and"
                " objects",
            )
            return None
        if len(text) > LOOKUP_BYTES_MAX:
            self.faults.add(
                path, f"carries {len(text)} bytes of JSON along; {LOOKUP_BYTES_MAX} are the most"
            )
            return None
        # Through JSON and back: a copy that nobody else can change.
        return None if name is None else Lookup(name=name, arguments=json.loads(text))

    def _condition(self, path: str, found: Mapping[str, object]) -> Condition | None:
        self.faults.unknown_fields(path, found, CONDITION)
        name = self.faults.text(join(path, "field"), found["field"])
        if name is not None and not all(name.split(".")):
            self.faults.add(
                join(path, "field"), f"{shown(name)} has an empty part; write it as login.geo"
            )
        op = self.faults.choice(join(path, "op"), found.get("op"), _OPS)
        if op is None:
            return None
        if "value" not in found:
            self.faults.add(join(path, "value"), "is missing; say what the field is compared with")
            return None
        value = self._value(join(path, "value"), op, found["value"])
        if name is None or value is None:
            return None
        return Condition(field=name, op=op, value=value)

    def _value(self, path: str, op: Op, value: object) -> Scalar | tuple[Scalar, ...] | None:
        if op in _LISTS:
            # A flag and a number that Python takes for equal (True, 1) are two values here.
            keyed = self.faults.items(path, value, self._typed_scalar)
            return None if keyed is None else tuple(item for _, item in keyed)
        if op is Op.CIDR:
            if isinstance(value, str):
                return self._network(path, value)
            return self.faults.items(path, value, self._network)
        if op is Op.EXISTS:
            return self.faults.flag(path, value)
        if op in _TEXTS:
            return self._text(path, op, value)
        if op in _ORDERED and isinstance(value, bool):
            self.faults.add(path, f"{value!r} has no order; use a number or a text")
            return None
        return self._scalar(path, value)

    def _text(self, path: str, op: Op, value: object) -> str | None:
        text = self.faults.text(path, value)
        if text is not None and op is Op.MATCHES:
            if not self.faults.may_compile(path, max(len(text), PATTERN_CHARS_COUNTED_MIN)):
                return None
            try:
                self._steps[0] += compile_pattern(text).steps
            except PatternError as error:
                self.faults.add(path, str(error))
                return None
            if self._steps[0] > RULE_PATTERN_STEPS_MAX:
                self.faults.add(
                    path,
                    f"brings the patterns of the rule to {self._steps[0]} steps;"
                    f" {RULE_PATTERN_STEPS_MAX} are the most; write smaller repetitions and fewer"
                    " classes as \\pL, or split the rule in two",
                )
                return None
        return text

    def _typed_scalar(self, path: str, value: object) -> tuple[type, Scalar] | None:
        scalar = self._scalar(path, value)
        return None if scalar is None else (type(scalar), scalar)

    def _scalar(self, path: str, value: object) -> Scalar | None:
        if isinstance(value, str):
            return self.faults.text(path, value, chars_min=0)
        if type(value) is int and value.bit_length() > NUMBER_BITS_MAX:
            self.faults.add(path, f"{shown(value)} has more than {NUMBER_BITS_MAX} bits")
            return None
        if isinstance(value, bool) or is_number(value):
            return cast("Scalar", value)
        way_out = "write a text, a finite number, true or false"
        hint = "; ask for a missing field by exists" if value is None else ""
        self.faults.add(path, wrong(value, "cannot be compared with", way_out + hint))
        return None

    def _network(self, path: str, value: object) -> str | None:
        return read_network(self.faults, path, value)


def read_network(faults: Faults, path: str, value: object) -> str | None:
    """Return the network at `path` in its one spelling, or None after its fault was kept."""
    try:
        return canonical_network(value)
    except NetworkTextError as error:
        faults.add(path, str(error))
        return None


def _nests_at_most(value: object, depth_max: int) -> bool:
    """Tell how deep a value nests, level by level: recursion would reach its own limit."""
    level = [value]
    for _ in range(depth_max + 1):
        level = [
            inner
            for each in level
            if isinstance(each, Mapping | list | tuple)
            for inner in (each.values() if isinstance(each, Mapping) else each)
        ]
        if not level:
            return True
    return False


def write_predicate(predicate: Predicate) -> dict[str, Any]:
    """Return a predicate as JSON values; reading them gives an equal predicate."""
    match predicate:
        case Condition():
            value = predicate.value
            return {
                "field": predicate.field,
                "op": predicate.op.value,
                "value": list(value) if isinstance(value, tuple) else value,
            }
        case Not():
            return {"not": write_predicate(predicate.predicate)}
        case All():
            return {"all": [write_predicate(inner) for inner in predicate.predicates]}
        case AnyOf():
            return {"any": [write_predicate(inner) for inner in predicate.predicates]}
        case Lookup():
            return {"lookup": predicate.name, **predicate.arguments}
        case _:
            assert_never(predicate)
